package cpu

// addressable is how many bytes of memory Go can address: those of 32 bits, though
// an int has 64.
const addressable = 1 << 32

//go:build !wasm

package cpu

// addressable is how many bytes of memory Go can address at most, on a host of 64
// bits.
const addressable = 1 << 47

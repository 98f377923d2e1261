package cpu

import "math/bits"

// Sizes of blocks: multiples of 64 bytes up to 512, then eight steps from each
// power of two to the next. So what a block has beyond the bytes asked for is
// at most an eighth of them, or less than 64 bytes.
const (
	linear     = 8 // classes of 64 to 512 bytes
	smallMax   = 1 << 20
	numClasses = linear + (20-9)*8 // the last is smallMax
)

// classOf returns the smallest class with room for n bytes, n > 0.
func classOf(n int) int {
	if n <= linear*Align {
		return (n - 1) / Align
	}
	k := bits.Len(uint(n-1)) - 1 // 2^k < n ≤ 2^(k+1)
	step := 1 << (k - 3)
	return linear + (k-9)*8 + (n-1<<k-1)/step
}

// classSize returns the bytes of a block of class c.
func classSize(c int) int {
	if c < linear {
		return (c + 1) * Align
	}
	k, j := 9+(c-linear)/8, (c-linear)%8+1
	return 1<<k + j<<(k-3)
}

// slabSize returns the bytes of a slab for blocks of the given size: eight
// blocks at least, so that a slab's own cost is small beside them, and no more
// blocks than 16 bits count.
func slabSize(block int) int { return max(slabMin, 8*block) }

// slabMin makes 4096 of the smallest blocks.
const slabMin = 256 << 10

// Package cpu is fuel's host memory and its byte kernels: memory from the
// operating system and a [Pool] of it, mapped files, shared memory, clearing,
// copying and filling, the conversions of numbers ([Conversion]), and the
// guarded access that turns a fault in a mapped file into an error.
//
// It is a leaf. It knows nothing of fuel and may be used without it.
//
// Every function takes any address and any length: alignment makes it faster,
// never wrong. Long work is done in pieces of [Piece] bytes, so that the
// garbage collector and other goroutines get in between.
//
// Every kernel has a generic twin in Go. The assembly and the stubs beside it
// are generated (asm/, a module of its own); kernels_*.go and convert_*.go say
// which one is called, and [Tier] which were chosen. The build tag purego
// means "no assembly".
package cpu

// Align is the alignment in bytes of every block that fuel allocates on the
// host: one cache line, and the widest vector register (AVX-512) there is.
const Align = 64

// Piece is the largest number of bytes that is worked on without a look at
// the scheduler. Go cannot preempt a clear or copy, and a stop-the-world waits
// for it (golang/go#69327): 256 KiB take well under 0.1 ms on the slowest
// memory we know of.
const Piece = 256 << 10

package cpu

import (
	"runtime"
	"unsafe"
)

// Zero clears b. A nil or empty b is fine.
//
// It is the runtime's clear, in pieces.
func Zero(b []byte) {
	for len(b) > Piece {
		clear(b[:Piece])
		b = b[Piece:]
		runtime.Gosched()
	}
	clear(b)
}

// Copy copies src to dst. They may overlap in any way: dst then holds what src
// held before. It panics where their lengths differ. Zero length is fine.
//
// It is the runtime's copy, in pieces.
func Copy(dst, src []byte) {
	if len(dst) != len(src) {
		panic("cpu.Copy: dst and src differ in length")
	}
	if Overlap(dst, src) && uintptr(unsafe.Pointer(unsafe.SliceData(dst))) > uintptr(unsafe.Pointer(unsafe.SliceData(src))) {
		for len(dst) > Piece { // from the end, so that no piece reads what another wrote
			n := len(dst) - Piece
			copy(dst[n:], src[n:])
			dst, src = dst[:n], src[:n]
			runtime.Gosched()
		}
	}
	for len(dst) > Piece {
		copy(dst[:Piece], src)
		dst, src = dst[Piece:], src[Piece:]
		runtime.Gosched()
	}
	copy(dst, src)
}

// Overlap reports whether a and b share a byte.
func Overlap(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	pa, pb := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return pa < pb+uintptr(len(b)) && pb < pa+uintptr(len(a))
}

// PatternOK reports whether a pattern of n bytes is one that Fill takes: 1, 2,
// 4, 8 or 16.
func PatternOK(n int) bool { return n >= 1 && n <= 16 && n&(n-1) == 0 }

// Fill repeats pattern over b, beginning with its first byte at b[0]. The
// pattern has 1, 2, 4, 8 or 16 bytes and its length divides that of b, else
// Fill panics. b and pattern must not overlap. An empty b is fine.
func Fill(b, pattern []byte) {
	if !PatternOK(len(pattern)) {
		panic("cpu.Fill: the pattern has not 1, 2, 4, 8 or 16 bytes")
	}
	if len(b)%len(pattern) != 0 {
		panic("cpu.Fill: the pattern does not divide the length")
	}
	// A seed that fits the first cache, doubled from the pattern, then copied.
	seed := b[:min(len(b), 4096)]
	for n := copy(seed, pattern); n < len(seed); n *= 2 {
		copy(seed[n:], seed[:n])
	}
	for b, since := b[len(seed):], 0; len(b) > 0; {
		n := copy(b, seed)
		b = b[n:]
		if since += n; since >= Piece {
			since = 0
			runtime.Gosched()
		}
	}
}

// AlignUp rounds n up to a multiple of align, a power of two. ok is false
// where n is negative or the result does not fit an int.
func AlignUp(n, align int) (up int, ok bool) {
	const maxInt = int(^uint(0) >> 1)
	if n < 0 || n > maxInt-(align-1) {
		return 0, false
	}
	return (n + align - 1) &^ (align - 1), true
}

// AlignedHeap returns n zeroed bytes of Go memory that begin at a multiple of
// Align. Go promises no alignment of a byte slice (golang/go#19057), so it
// takes up to Align-1 bytes more. n below zero panics, as make does; so does
// running out of memory, which Go cannot report.
func AlignedHeap(n int) []byte {
	b := make([]byte, n+Align-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (Align - 1)
	return b[skip : skip+n : skip+n]
}

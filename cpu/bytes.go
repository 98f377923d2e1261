package cpu

import (
	"runtime"
	"unsafe"

	"github.com/go-fuel/fuel/internal/race"
)

// limits are the lengths in bytes at which Zero, Copy, Fill and the conversions
// change their way. Variables for tests, else set once, when the program starts.
var limits = struct {
	// Up to these the runtime's clear and copy are called: they are as good
	// there (BenchmarkZero, BenchmarkCopy), and one call less; clear goes less
	// far on amd64. A fill so short is done before a kernel has its seed
	// (BenchmarkFill).
	clear, copy, fill int

	// From these on stores go around the caches, which could not hold the
	// bytes anyway; see streams.
	zeroStream, copyStream, fillStream int

	// The same for conversions and Swap: of source and destination together.
	convertStream int

	// The last of the caches, if known, keeps the beginning of a clear or fill
	// that goes around it, as much as has room beside as many bytes as it has.
	cache int
}{clear: Piece, copy: Piece, fill: 2 * Align, zeroStream: never, copyStream: never, fillStream: never, convertStream: never}

// never is a limit that no length reaches.
const never = int(^uint(0) >> 1)

// Zero clears b. A nil or empty b is fine.
func Zero(b []byte) {
	whole := len(b)
	if whole <= limits.clear {
		clear(b)
		return
	}
	for n := firstPiece(b); ; n = min(Piece, len(b)) {
		ZeroPart(b[:n], whole-len(b), whole)
		if b = b[n:]; len(b) == 0 {
			return
		}
		yield(len(b), 1)
	}
}

// ZeroPart clears b, which is a piece from off on of a range of whole bytes
// that is to be cleared: how that is done best depends on the range. It does
// not yield, so keep b at most Piece long. Whoever does pieces of a range in
// several goroutines waits for them by anything of sync or by a channel.
func ZeroPart(b []byte, off, whole int) {
	if whole <= limits.clear {
		clear(b)
		return
	}
	race.Write(b)
	if whole < limits.zeroStream || keeps(off, whole) {
		zero(b)
	} else {
		zeroStream(b)
		endStream(off+len(b), whole)
	}
}

// keeps reports whether a piece at off of a long clear or fill goes through the
// caches all the same, for whoever reads the bytes next, from the first on.
func keeps(off, whole int) bool { return off < limits.cache-whole }

// yield comes between the pieces of work that so many goroutines share, where
// left bytes are left to do in this one. Being a call, it lets a stop of the
// world in, and whoever has waited for ten milliseconds.
//
// Where the work has all processors it also lets the others run, once in four
// pieces. Where it has not, they run beside it, and the scheduler would wake a
// thread that looks for them, which takes as long as one to four pieces
// (BenchmarkZero, BenchmarkCopy). So it does so once in 256 there, in case that
// more work like this has the rest.
//
//go:noinline
func yield(left, workers int) {
	if left%(4*Piece) >= 3*Piece && (workers >= runtime.GOMAXPROCS(0) || left%(256*Piece) >= 255*Piece) {
		runtime.Gosched()
	}
}

// Copy copies src to dst. They may overlap in any way: dst then holds what src
// held before. It panics where their lengths differ. Zero length is fine.
func Copy(dst, src []byte) {
	if len(dst) != len(src) {
		panic("cpu.Copy: dst and src differ in length")
	}
	whole := len(dst)
	if whole <= limits.copy {
		copy(dst, src)
		return
	}
	if Overlap(dst, src) {
		move(dst, src)
		return
	}
	for n := firstPiece(dst); ; n = min(Piece, len(dst)) {
		CopyPart(dst[:n], src[:n], whole)
		if dst, src = dst[n:], src[n:]; len(dst) == 0 {
			return
		}
		yield(len(dst), 1)
	}
}

// CopyPart copies src to dst as Copy does, as a piece of a range of whole bytes
// that is to be copied: how that is done best depends on the range. Pieces of
// ranges that overlap must come in an order in which none reads what another
// wrote. It does not yield, so keep dst at most Piece long.
func CopyPart(dst, src []byte, whole int) {
	if len(dst) != len(src) {
		panic("cpu.CopyPart: dst and src differ in length")
	}
	if whole <= limits.copy || Overlap(dst, src) {
		copy(dst, src)
		return
	}
	race.Read(src)
	race.Write(dst)
	if whole < limits.copyStream {
		copyCached(dst, src)
	} else {
		copyStream(dst, src)
	}
}

// move copies between ranges that overlap, by the runtime's copy, in the order
// in which no piece reads what another wrote.
func move(dst, src []byte) {
	if uintptr(unsafe.Pointer(unsafe.SliceData(dst))) > uintptr(unsafe.Pointer(unsafe.SliceData(src))) {
		for len(dst) > Piece {
			n := len(dst) - Piece
			copy(dst[n:], src[n:])
			dst, src = dst[:n], src[:n]
			yield(len(dst), 1)
		}
	}
	for len(dst) > Piece {
		copy(dst[:Piece], src)
		dst, src = dst[Piece:], src[Piece:]
		yield(len(dst), 1)
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
	whole := len(b)
	if whole%len(pattern) != 0 {
		panic("cpu.Fill: the pattern does not divide the length")
	}
	if whole <= limits.fill {
		for n := copy(b, pattern); n < len(b); n *= 2 {
			copy(b[n:], b[:n])
		}
		return
	}
	seed := newSeed(pattern)
	for n := firstPiece(b); ; n = min(Piece, len(b)) {
		fillPart(b[:n], &seed, whole-len(b), whole)
		if b = b[n:]; len(b) == 0 {
			return
		}
		if n < Piece { // the first
			seed = turned(seed, n)
		}
		yield(len(b), 1)
	}
}

// FillPart fills b as Fill does, as a piece from off on of a range of whole
// bytes that is to be filled: how that is done best depends on the range. The
// piece begins where the pattern does. It does not yield, so keep b at most
// Piece long. For several goroutines see ZeroPart.
func FillPart(b, pattern []byte, off, whole int) {
	if !PatternOK(len(pattern)) {
		panic("cpu.FillPart: the pattern has not 1, 2, 4, 8 or 16 bytes")
	}
	if len(b)%len(pattern) != 0 {
		panic("cpu.FillPart: the pattern does not divide the length")
	}
	seed := newSeed(pattern)
	fillPart(b, &seed, off, whole)
}

func fillPart(b []byte, seed *[32]byte, off, whole int) {
	race.Write(b)
	if whole < limits.fillStream || keeps(off, whole) {
		fill(b, seed)
	} else {
		fillStream(b, seed)
		endStream(off+len(b), whole)
	}
}

// endStream fences the stores of a clear or fill around the caches, where off
// is the end of its range of whole bytes. Until then nobody else looks, and
// whatever hands a goroutine, or what it did, to another thread is a locked
// instruction, which waits for such stores too.
func endStream(off, whole int) {
	if off == whole {
		fence()
	}
}

// newSeed repeats pattern over 32 bytes: the kernels read 16 of them from
// anywhere in the first half.
func newSeed(pattern []byte) (seed [32]byte) {
	for n := copy(seed[:], pattern); n < len(seed); n *= 2 {
		copy(seed[n:], seed[:n])
	}
	return seed
}

// turned is the seed whose first byte is the one that seed has after n bytes.
func turned(seed [32]byte, n int) (t [32]byte) {
	for i := range t {
		t[i] = seed[(n+i)&15]
	}
	return t
}

// firstPiece is the length of a first piece of b after which the next begins
// at a multiple of Align, so that no line of the cache is written in halves.
func firstPiece(b []byte) int {
	return min(len(b), Piece-int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))%Align))
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

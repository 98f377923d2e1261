package cpu

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel/internal/guard"
)

// canary is what a kernel must leave around its range.
const canary = 0xA5

// lengths goes through every remainder of the kernels' steps, and around the
// seed of Fill and the piece.
var lengths = func() []int {
	var ns []int
	for n := range 321 {
		ns = append(ns, n)
	}
	return append(ns, 511, 512, 513, 4095, 4096, 4097, 8192, Piece-1, Piece, Piece+1, 2*Piece+17)
}()

// alignments are those at which vector code goes wrong.
var alignments = []int{0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127}

// sweep calls kernel for every length and alignment on a range between
// canaries, and compares with want, which says what byte i becomes.
func sweep(t *testing.T, kernel func(b []byte), want func(i int) byte, ok func(n int) bool) {
	t.Helper()
	mem := make([]byte, 2*Piece+17+512)
	for _, n := range lengths {
		if !ok(n) {
			continue
		}
		for _, align := range alignments {
			if n > 8192 && align > 3 {
				break
			}
			skip := -int(uintptr(unsafe.Pointer(&mem[0])))&127 + align
			whole := mem[skip : skip+n+128]
			for i := range whole {
				whole[i] = canary
			}
			kernel(whole[64 : 64+n : 64+n])
			for i, got := range whole {
				w := byte(canary)
				if 64 <= i && i < 64+n {
					w = want(i - 64)
				}
				if got != w {
					t.Fatalf("length %d, alignment %d: byte %d is %#x, want %#x", n, align, i-64, got, w)
				}
			}
		}
	}
}

func always(int) bool { return true }

func TestZeroTouchesNothingOutside(t *testing.T) {
	sweep(t, Zero, func(int) byte { return 0 }, always)
}

func TestFillTouchesNothingOutside(t *testing.T) {
	for _, k := range []int{1, 2, 4, 8, 16} {
		pattern := make([]byte, k)
		for i := range pattern {
			pattern[i] = byte(i + 1)
		}
		sweep(t, func(b []byte) { Fill(b, pattern) },
			func(i int) byte { return pattern[i%k] },
			func(n int) bool { return n%k == 0 })
	}
}

func TestCopyTouchesNothingOutside(t *testing.T) {
	src := make([]byte, 2*Piece+17+1)
	for i := range src {
		src[i] = byte(i*7 + i>>8)
	}
	before := slices.Clone(src)
	for _, off := range []int{0, 1} {
		sweep(t, func(b []byte) { Copy(b, src[off:off+len(b)]) },
			func(i int) byte { return src[off+i] }, always)
	}
	if !bytes.Equal(src, before) {
		t.Fatal("Copy changed its source")
	}
}

func TestKernelsStayBetweenGuardPages(t *testing.T) {
	dst, src := guard.New(t, 2*Piece), guard.New(t, 2*Piece)
	for _, n := range lengths {
		if n > len(dst) {
			continue
		}
		for _, b := range [][]byte{dst.First(n), dst.Last(n)} {
			for _, s := range [][]byte{src.First(n), src.Last(n)} {
				Copy(b, s)
			}
			Zero(b)
			if n%16 == 0 {
				Fill(b, bytes.Repeat([]byte{3, 4}, 8))
			}
			Fill(b, []byte{9})
		}
	}
}

// A guard page that does not fault would make the test above prove nothing.
func TestGuardPagesFault(t *testing.T) {
	b := guard.New(t, 100).Last(100)
	over := unsafe.Slice(&b[0], 101)
	err := Guard(func() { Zero(over) })
	if fault, ok := err.(*FaultError); !ok || fault.Addr == 0 {
		t.Fatalf("writing one byte into the guard page: %v", err)
	}
}

func TestCopyMovesOverlappingRanges(t *testing.T) {
	const size = 3*Piece + 100
	mem, want := make([]byte, size+200), make([]byte, size+200)
	for _, shift := range []int{-200, -65, -1, 0, 1, 63, 64, 200} {
		for _, n := range []int{1, 64, 300, Piece, Piece + 1, size - 200} {
			for i := range mem {
				mem[i] = byte(i*13 + i>>7)
			}
			copy(want, mem)
			copy(want[200+shift:][:n], want[200:][:n])
			Copy(mem[200+shift:][:n], mem[200:][:n])
			if !bytes.Equal(mem, want) {
				t.Fatalf("%d bytes moved by %d differ from what copy makes", n, shift)
			}
		}
	}
}

func TestOverlapIsExact(t *testing.T) {
	b := make([]byte, 10)
	for _, c := range []struct {
		x, y []byte
		want bool
	}{
		{b[:5], b[5:], false}, {b[:6], b[5:], true}, {b[5:], b[:6], true}, {b, b[3:4], true},
		{b[:0], b, false}, {nil, b, false}, {b, make([]byte, 10), false},
	} {
		if got := Overlap(c.x, c.y); got != c.want {
			t.Errorf("Overlap of %d and %d bytes = %v", len(c.x), len(c.y), got)
		}
	}
}

func TestBrokenArgumentsPanic(t *testing.T) {
	for text, f := range map[string]func(){
		"cpu.Copy: dst and src differ in length":                   func() { Copy(make([]byte, 2), make([]byte, 3)) },
		"cpu.Fill: the pattern has not 1, 2, 4, 8 or 16 bytes":     func() { Fill(make([]byte, 6), make([]byte, 3)) },
		"cpu.Fill: the pattern does not divide the length":         func() { Fill(make([]byte, 6), make([]byte, 4)) },
		"cpu.Fill: the pattern has not 1, 2, 4, 8 or 16 bytes\x00": func() { Fill(nil, nil) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); got != string(bytes.TrimRight([]byte(text), "\x00")) {
					t.Errorf("panic %q, want %q", got, text)
				}
			}()
			f()
		}()
	}
}

// Report 28: pad macros wrap near the largest size.
func TestAlignUpDoesNotWrap(t *testing.T) {
	for _, c := range []struct {
		n, align, up int
		ok           bool
	}{
		{0, 64, 0, true}, {1, 64, 64, true}, {64, 64, 64, true}, {65, 64, 128, true}, {5, 1, 5, true},
		{math.MaxInt - 63, 64, math.MaxInt - 63, true}, {math.MaxInt - 62, 64, 0, false}, {math.MaxInt, 64, 0, false},
		{math.MaxInt, 1, math.MaxInt, true}, {-1, 64, 0, false}, {math.MinInt, 64, 0, false},
	} {
		if up, ok := AlignUp(c.n, c.align); up != c.up || ok != c.ok {
			t.Errorf("AlignUp(%d, %d) = %d, %v", c.n, c.align, up, ok)
		}
	}
}

// Report 10: make([]byte, n) begins at any of 1, 8, 16 or 32 mod 64.
func TestGoSlicesAreNotTrustedToBeAligned(t *testing.T) {
	var keep [][]byte
	for range 20 {
		for n := range 200 {
			b := AlignedHeap(n)
			keep = append(keep, b)
			if p := uintptr(unsafe.Pointer(unsafe.SliceData(b))); p%Align != 0 || len(b) != n || cap(b) != n {
				t.Fatalf("%d bytes at %d mod 64, length %d, capacity %d", n, p%Align, len(b), cap(b))
			}
		}
	}
	if len(keep) != 4000 {
		t.Fatal(len(keep))
	}
}

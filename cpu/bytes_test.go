package cpu

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"unsafe"
)

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
		"cpu.CopyPart: dst and src differ in length":               func() { CopyPart(make([]byte, 2), make([]byte, 3), 9) },
		"cpu.FillPart: the pattern has not 1, 2, 4, 8 or 16 bytes": func() { FillPart(make([]byte, 6), make([]byte, 3), 0, 6) },
		"cpu.FillPart: the pattern does not divide the length":     func() { FillPart(make([]byte, 6), make([]byte, 4), 0, 6) },
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

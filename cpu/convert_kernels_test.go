package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel/internal/guard"
)

// Every number of elements to 320, of blocks to 20, so that each loop is left
// after each number of rounds.
func TestConversionKernelsTakeEveryCount(t *testing.T) {
	alignments := []int{0, 1, 2, 3, 4, 8, 15, 16, 31, 32, 33, 48, 62, 63}
	if !full() {
		alignments = []int{0, 32, 48, 63}
	}
	eachTier(t, func(t *testing.T, k *tier) {
		for _, c := range k.conversions {
			if err := sweepConversion(c, everyCount(c), alignments); err != nil {
				t.Error(err)
			}
		}
	})
}

func everyCount(k conversion) []int {
	switch {
	case k.dst > 8:
		return smallLengths[:21]
	case !full(): // to two rounds of the longest loop
		return smallLengths[:2*256/k.dst+2]
	}
	return smallLengths
}

// inputs are what matters to k: all elements of two bytes, words around each
// place where rounding turns, blocks with each scale.
func inputs(k conversion) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	every := 1
	if !full() { // in an emulator, or with the race detector
		every = 31
	}
	var b []byte
	switch k.src {
	case 2:
		for u := range 1 << 16 {
			b = host.AppendUint16(b, uint16(u))
		}
	case 4:
		for upper := 0; upper < 1<<16; upper += every {
			for _, lower := range []uint32{0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001, 0xFFFF, random.Uint32() >> 16} {
				b = host.AppendUint32(b, uint32(upper)<<16|lower)
			}
		}
		// Halfway between two float16, and beside it.
		for h := uint16(0); h <= 0x7C00; h += uint16(every) {
			low, high := math.Float32frombits(f16ToF32Bits(h)), math.Float32frombits(f16ToF32Bits(h+1))
			if h == 0x7BFF {
				high = 0x1p16
			}
			mid := math.Float32bits(low + (high-low)/2)
			for _, u := range []uint32{mid - 1, mid, mid + 1} {
				b = host.AppendUint32(host.AppendUint32(b, u), u|f32Sign)
			}
		}
	case 8:
		for range 1 << 12 {
			b = host.AppendUint64(b, random.Uint64())
		}
	default:
		for scale := 0; scale < 1<<16; scale += every {
			b = ggml.AppendUint16(b, uint16(scale))
			for range k.src/2 - 1 {
				b = ggml.AppendUint16(b, uint16(random.Uint32()))
			}
		}
	}
	return b
}

// withoutTies leaves out the words halfway between two float16.
func withoutTies(words []byte) (rest []byte) {
	for ; len(words) > 0; words = words[4:] {
		if u := host.Uint32(words); f32ToF16Bits(u-1) == f32ToF16Bits(u+1) {
			rest = host.AppendUint32(rest, u)
		}
	}
	return rest
}

// differs compares k with its twin on src, so many blocks at a time.
func differs(k conversion, src []byte, blocks int) error {
	got, want := make([]byte, min(blocks*k.dst, len(src)/k.src*k.dst)), make([]byte, len(src)/k.src*k.dst)
	k.twin(want, src)
	for at := 0; at < len(src); {
		n := min(blocks, (len(src)-at)/k.src)
		k.run(got[:n*k.dst], src[at:][:n*k.src])
		if i := firstDifference(got[:n*k.dst], want[at/k.src*k.dst:][:n*k.dst]); i >= 0 {
			block := at + i/k.dst*k.src
			return fmt.Errorf("%s of %x, with %d blocks: byte %d is %#x, want %#x", k.name, src[block:block+k.src], n, i%k.dst, got[i], want[at/k.src*k.dst+i])
		}
		at += n * k.src
	}
	return nil
}

// Bit by bit, NaNs, infinities and subnormals included, in long runs and in
// those that the kernels do by other instructions.
func TestConversionKernelsNeverDifferFromTheirTwins(t *testing.T) {
	eachTier(t, func(t *testing.T, k *tier) {
		for _, c := range k.conversions {
			src := inputs(c)
			if testing.Short() && strings.HasPrefix(c.name, "f32ToF16") {
				src = withoutTies(src) // Bochs 2.7 rounds them up, not to even
			}
			for _, blocks := range []int{len(src), 1, 3, 7, 31} {
				if err := differs(c, src, blocks); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// wrongValues are kernels that write the right bytes, and one number wrong.
func wrongValues(k conversion) map[string]func(dst, src []byte) {
	all := map[string]func(dst, src []byte){}
	after := func(what string, wrong func(dst []byte)) {
		all[what] = func(dst, src []byte) { k.run(dst, src); wrong(dst) }
	}
	each32 := func(change func(u uint32) uint32) func(dst []byte) {
		return func(dst []byte) {
			for ; len(dst) >= 4; dst = dst[4:] {
				host.PutUint32(dst, change(host.Uint32(dst)))
			}
		}
	}
	each16 := func(change func(u uint16) uint16) func(dst []byte) {
		return func(dst []byte) {
			for ; len(dst) >= 2; dst = dst[2:] {
				host.PutUint16(dst, change(host.Uint16(dst)))
			}
		}
	}
	if k.dst%4 == 0 && k.src != k.dst {
		after("a NaN loses its payload", each32(func(u uint32) uint32 {
			if u&^f32Sign > f32Inf && u&0x3FFFFF != 0 {
				u = u&f32Sign | f32NaN
			}
			return u
		}))
		after("subnormal float16 are flushed", each32(func(u uint32) uint32 {
			if u&^f32Sign < (127-14)<<23 {
				u &= f32Sign
			}
			return u
		}))
		after("-0 becomes 0", each32(func(u uint32) uint32 {
			if u == f32Sign {
				u = 0
			}
			return u
		}))
	}
	if k.dst == 2 && k.src == 4 {
		inf := uint16(0x7C00)
		if strings.HasPrefix(k.name, "f32ToBF16") {
			inf = 0x7F80
		}
		after("a NaN loses its payload", each16(func(u uint16) uint16 {
			if u&0x7FFF > inf {
				u &= 0x8000 | inf | inf>>1
			}
			return u
		}))
		after("a NaN becomes infinity", each16(func(u uint16) uint16 {
			if u&0x7FFF > inf {
				u = u&0x8000 | inf
			}
			return u
		}))
		all["it cuts off instead of rounding"] = func(dst, src []byte) {
			cut := make([]byte, len(src))
			for i := 0; i+4 <= len(src); i += 4 {
				host.PutUint32(cut[i:], host.Uint32(src[i:])&0xFFFF0000)
			}
			k.run(dst, cut)
		}
		all["ties are rounded up"] = func(dst, src []byte) {
			up := make([]byte, len(src))
			for i := 0; i+4 <= len(src); i += 4 {
				u := host.Uint32(src[i:])
				if u&^f32Sign < f32Inf {
					u |= 1
				}
				host.PutUint32(up[i:], u)
			}
			k.run(dst, up)
		}
	}
	return all
}

// A comparison that a wrong kernel passes proves nothing.
func TestConversionComparisonCatchesBrokenKernels(t *testing.T) {
	eachTier(t, func(t *testing.T, k *tier) {
		for _, c := range k.conversions {
			src := inputs(c)
			for what, run := range wrongValues(c) {
				bad := c
				bad.run = run
				if differs(bad, src, len(src)) == nil {
					t.Errorf("%s: %s, and the comparison passes", c.name, what)
				}
			}
			if c.src != c.dst {
				continue
			}
			bad := c
			bad.run = func(dst, src []byte) { // the last is read after it was written
				c.run(dst, src)
				if last := len(dst) - c.dst; last >= 0 {
					c.run(dst[last:], src[last:])
				}
			}
			if sweepConversion(bad, []int{1, 9}, []int{0}) == nil {
				t.Errorf("%s: it is wrong in place, and the sweep passes", c.name)
			}
		}
	})
}

// What the sweeps and guard pages prove, they prove only if a kernel that goes
// too far faults there, as an error.
func TestConversionKernelsFaultAtGuardPages(t *testing.T) {
	dst, src := guard.New(t, 1<<16), guard.New(t, 1<<16)
	over := func(b []byte) []byte { return unsafe.Slice(unsafe.SliceData(b), len(b)+1) }
	eachTier(t, func(t *testing.T, k *tier) {
		for _, c := range k.conversions {
			for _, n := range []int{1, 2, 7, 16, 63, 200, 400} {
				to, from := n*c.dst, n*c.src
				if err, ok := Guard(func() { c.run(over(dst.Last(to-1)), src.First(from)) }).(*FaultError); !ok || err.Addr == 0 {
					t.Errorf("%s: writing a byte of %d blocks into the guard page: %v", c.name, n, err)
				}
				if err, ok := Guard(func() { c.run(dst.First(to), over(src.Last(from-1))) }).(*FaultError); !ok {
					t.Errorf("%s: reading a byte of %d blocks from the guard page: %v", c.name, n, err)
				}
			}
		}
	})
}

// All 2^32 words take a minute or so for each kernel, and run with
// FUEL_EXHAUSTIVE=1.
func TestConversionKernelsNeverDifferOnAnyWord(t *testing.T) {
	if os.Getenv("FUEL_EXHAUSTIVE") != "1" {
		t.Skip("FUEL_EXHAUSTIVE=1 turns it on")
	}
	src := make([]byte, 4<<16)
	eachTier(t, func(t *testing.T, k *tier) {
		for _, c := range k.conversions {
			if c.src != 4 || c.dst != 2 {
				continue
			}
			for upper := range uint32(1 << 16) {
				for lower := range uint32(1 << 16) {
					host.PutUint32(src[4*lower:], upper<<16|lower)
				}
				if err := differs(c, src, len(src)); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

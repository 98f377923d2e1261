package cpu

import (
	"bytes"
	"embed"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel/internal/guard"
	"github.com/go-fuel/fuel/internal/race"
)

// genericConversions are the twins, as kernels of the generic tier.
var genericConversions = []conversion{
	{"bf16ToF32", bf16ToF32Generic, bf16ToF32Generic, 2, 4},
	{"f32ToBF16", f32ToBF16Generic, f32ToBF16Generic, 4, 2},
	{"f16ToF32", f16ToF32Generic, f16ToF32Generic, 2, 4},
	{"f32ToF16", f32ToF16Generic, f32ToF16Generic, 4, 2},
	{"q8_0ToF32", q8_0ToF32Generic, q8_0ToF32Generic, 34, 128},
	{"q4_0ToF32", q4_0ToF32Generic, q4_0ToF32Generic, 18, 128},
	{"swap2", swap2Generic, swap2Generic, 2, 2},
	{"swap4", swap4Generic, swap4Generic, 4, 4},
	{"swap8", swap8Generic, swap8Generic, 8, 8},
}

// twins are what each Conversion is compared with.
var twins = [conversionEnd]func(dst, src []byte){
	BF16ToF32:     bf16ToF32Generic,
	F32ToBF16:     f32ToBF16Generic,
	F16ToF32:      f16ToF32Generic,
	F32ToF16:      f32ToF16Generic,
	F8E4M3FNToF32: func(dst, src []byte) { f8ToF32Generic(dst, src, &f8e4m3fn) },
	F8E5M2ToF32:   func(dst, src []byte) { f8ToF32Generic(dst, src, &f8e5m2) },
	Q8_0ToF32:     q8_0ToF32Generic,
	Q4_0ToF32:     q4_0ToF32Generic,
	Q4_KToF32:     q4_KToF32Generic,
	Q6_KToF32:     q6_KToF32Generic,
}

// wholeConversions are the exported functions, as kernels.
func wholeConversions() (all []conversion) {
	for c := range conversionEnd {
		src, dst := c.Block()
		all = append(all,
			conversion{c.String(), c.Convert, twins[c], src, dst},
			conversion{c.String() + " in part", func(dst, src []byte) { c.ConvertPart(dst, src, 3*len(dst)) }, twins[c], src, dst})
	}
	for width, twin := range map[int]func(dst, src []byte){2: swap2Generic, 4: swap4Generic, 8: swap8Generic} {
		all = append(all,
			conversion{fmt.Sprint("Swap of ", width), func(dst, src []byte) { Swap(dst, src, width) }, twin, width, width},
			conversion{fmt.Sprint("SwapPart of ", width), func(dst, src []byte) { SwapPart(dst, src, width, 3*len(dst)) }, twin, width, width})
	}
	return all
}

// sweepConversion runs a kernel on every number of blocks and every pair of
// alignments, between canaries, and returns the first thing that is wrong.
func sweepConversion(k conversion, counts, alignments []int) error {
	most := slices.Max(counts)
	block := func(n int) []byte {
		b := make([]byte, n+2*edge+256)
		return b[-int(uintptr(unsafe.Pointer(unsafe.SliceData(b))))&127:]
	}
	got, want, src := block(most*k.dst), make([]byte, most*k.dst+2*edge), block(most*k.src)
	varied(src[:len(src)&^1])
	before := slices.Clone(src)
	blank := bytes.Repeat([]byte{canary}, len(want))
	for _, n := range counts {
		for _, at := range alignments {
			from := src[at : at+n*k.src : at+n*k.src]
			want := want[:n*k.dst+2*edge]
			copy(want, blank)
			k.twin(want[edge:edge+n*k.dst], from)
			for _, to := range alignments {
				whole := got[to : to+n*k.dst+2*edge]
				copy(whole, blank)
				k.run(whole[edge:edge+n*k.dst:edge+n*k.dst], from)
				if i := firstDifference(whole, want); i >= 0 {
					return fmt.Errorf("%s of %d blocks from %d to %d mod 128: byte %d is %#x, want %#x", k.name, n, at, to, i-edge, whole[i], want[i])
				}
				if k.src != k.dst || to != at {
					continue
				}
				copy(whole, blank)
				b := whole[edge : edge+n*k.dst : edge+n*k.dst]
				copy(b, from)
				k.run(b, b)
				if i := firstDifference(whole, want); i >= 0 {
					return fmt.Errorf("%s of %d blocks in place at %d mod 128: byte %d is %#x, want %#x", k.name, n, to, i-edge, whole[i], want[i])
				}
			}
		}
		if !bytes.Equal(src, before) {
			return fmt.Errorf("%s of %d blocks changed its source", k.name, n)
		}
	}
	return nil
}

func firstDifference(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// conversionCounts are those that take every path of a kernel.
func conversionCounts(k conversion) (counts []int) {
	most := 130
	if k.dst > 8 {
		most = 6
	}
	for n := range most + 1 {
		counts = append(counts, n)
	}
	return append(counts, 3*most+1)
}

func TestConversionsTakeAnyAddressAndLength(t *testing.T) {
	alignments := someAlignments
	if !full() {
		alignments = []int{0, 1, 63}
	}
	eachTier(t, func(t *testing.T, k *tier) {
		for _, c := range slices.Concat(k.conversions, wholeConversions()) {
			if err := sweepConversion(c, conversionCounts(c), alignments); err != nil {
				t.Error(err)
			}
		}
		lower(t, 0) // around the caches
		for _, c := range wholeConversions() {
			if err := sweepConversion(c, conversionCounts(c), []int{0, 1}); err != nil {
				t.Errorf("streamed: %v", err)
			}
		}
	})
}

func TestLongConversionsNeverLoseABlockBetweenPieces(t *testing.T) {
	eachTier(t, func(t *testing.T, k *tier) {
		for _, stream := range []int{never, 3 * Piece} {
			lower(t, stream)
			for _, c := range wholeConversions() {
				per := Piece / max(c.src, c.dst)
				counts, alignments := []int{per - 1, per, per + 1, 2*per + 17}, []int{0, 1}
				if !full() {
					counts, alignments = []int{2*per + 17}, []int{1}
				}
				if err := sweepConversion(c, counts, alignments); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// brokenConversions are what a kernel gets wrong: k, each time with one mistake.
func brokenConversions(k conversion) map[string]func(dst, src []byte) {
	longer := func(b []byte, n int) []byte { return unsafe.Slice(unsafe.SliceData(b), len(b)+n) }
	return map[string]func(dst, src []byte){
		"it ends a block early": func(dst, src []byte) {
			k.run(dst[:max(len(dst)-k.dst, 0)], src[:max(len(src)-k.src, 0)])
		},
		"it ends a block late": func(dst, src []byte) { k.run(longer(dst, k.dst), longer(src, k.src)) },
		"it begins late": func(dst, src []byte) {
			k.run(dst[min(k.dst, len(dst)):], src[min(k.src, len(src)):])
		},
		"one bit is wrong": func(dst, src []byte) {
			k.run(dst, src)
			if len(dst) > 0 {
				dst[len(dst)-1] ^= 1
			}
		},
		"it changes its source": func(dst, src []byte) {
			k.run(dst, src)
			if len(src) > 0 {
				src[0]++
			}
		},
	}
}

// A sweep that a wrong kernel passes proves nothing; nor does such a check.
func TestBrokenConversionsAreCaught(t *testing.T) {
	eachTier(t, func(t *testing.T, k *tier) {
		for _, c := range k.conversions {
			if err := checkConversions(&tier{conversions: []conversion{c}}); err != nil {
				t.Errorf("%s as it is: %v", c.name, err)
			}
			for what, run := range brokenConversions(c) {
				bad := c
				bad.run = run
				if sweepConversion(bad, conversionCounts(c), []int{0, 1}) == nil {
					t.Errorf("%s: %s, and the sweep passes", c.name, what)
				}
				if checkConversions(&tier{conversions: []conversion{bad}}) == nil && what != "it changes its source" {
					t.Errorf("%s: %s, and the check at the start passes", c.name, what)
				}
			}
		}
	})
}

func TestConversionsStayBetweenGuardPages(t *testing.T) {
	const size = 200 * 34
	dst, src := guard.New(t, 13*1024), guard.New(t, size)
	varied(src[:len(src)&^1])
	eachTier(t, func(t *testing.T, k *tier) {
		for _, c := range slices.Concat(k.conversions, wholeConversions()) {
			for _, n := range conversionCounts(c) {
				if n*c.dst > len(dst)-edge || n*c.src > len(src)-edge {
					continue
				}
				for _, b := range [][]byte{dst.First(n * c.dst), dst.Last(n * c.dst)} {
					for _, from := range [][]byte{src.First(n * c.src), src.Last(n * c.src)} {
						if err := Guard(func() { c.run(b, from) }); err != nil {
							t.Fatalf("%s of %d blocks: %v", c.name, n, err)
						}
					}
				}
			}
		}
	})
}

func TestBrokenConversionsPanic(t *testing.T) {
	b, c := make([]byte, 256), make([]byte, 256)
	for text, f := range map[string]func(){
		"cpu.Convert: dst or src is no whole number of blocks":        func() { BF16ToF32.Convert(b[:8], c[:3]) },
		"cpu.Convert: dst or src is no whole number of blocks\x00":    func() { Q8_0ToF32.Convert(b[:128], c[:33]) },
		"cpu.Convert: dst and src differ in the number of blocks":     func() { F32ToF16.Convert(b[:4], c[:4]) },
		"cpu.Convert: dst and src overlap":                            func() { F16ToF32.Convert(b[:4], b[3:5]) },
		"cpu.Convert: unknown conversion":                             func() { conversionEnd.Convert(nil, nil) },
		"cpu.ConvertPart: unknown conversion":                         func() { Conversion(255).ConvertPart(nil, nil, 0) },
		"cpu.ConvertPart: dst and src differ in the number of blocks": func() { Q4_0ToF32.ConvertPart(nil, c[:18], 18) },
		"cpu.ScaleI8: dst has not four bytes for each of src":         func() { ScaleI8(b[:8], c[:3], 1) },
		"cpu.ScaleI8: dst has not four bytes for each of src\x00":     func() { ScaleI8(b[:9], c[:2], 1) },
		"cpu.ScaleU8: dst and src overlap":                            func() { ScaleU8(b[:8], b[7:9], 1, 0) },
		"cpu.Swap: the width is not 2, 4 or 8":                        func() { Swap(b, c, 16) },
		"cpu.Swap: dst and src differ in length":                      func() { Swap(b, c[:128], 2) },
		"cpu.Swap: the width does not divide the length":              func() { Swap(b[:6], c[:6], 4) },
		"cpu.SwapPart: dst and src overlap":                           func() { SwapPart(b[:8], b[4:12], 4, 8) },
	} {
		if got := panicOf(f); got != strings.TrimRight(text, "\x00") {
			t.Errorf("panic %q, want %q", got, text)
		}
	}
	if from, to := conversionEnd.Block(); from != 0 || to != 0 || conversionEnd.String() != "Conversion(10)" {
		t.Errorf("%v has blocks of %d and %d bytes", conversionEnd, from, to)
	}
}

//go:embed testdata/*.bin
var golden embed.FS

// Blocks come out as gguf decodes them. A NaN need only be one: which bits it
// has depends on the processor (infinity times zero).
func TestBlocksNeverDifferFromGGUF(t *testing.T) {
	for _, c := range []Conversion{Q8_0ToF32, Q4_0ToF32, Q4_KToF32, Q6_KToF32} {
		name := strings.TrimSuffix(c.String(), "ToF32")
		file, err := golden.ReadFile("testdata/" + strings.ToLower(name) + ".bin")
		if err != nil {
			t.Fatal(err)
		}
		head, data, _ := bytes.Cut(file, []byte("\n"))
		var gguf, numpy, is string
		var n int
		if _, err := fmt.Sscanf(string(head), "gguf %s numpy %s %s %d", &gguf, &numpy, &is, &n); err != nil || is != name || n < 10 {
			t.Fatalf("%s: head %q: %v", name, head, err)
		}
		from, to := c.Block()
		src, want := data[:n*from], data[n*from:]
		if len(want) != n*to {
			t.Fatalf("%s: %d bytes of float32, want %d", name, len(want), n*to)
		}
		eachTier(t, func(t *testing.T, _ *tier) {
			got := make([]byte, n*to)
			c.Convert(got, src)
			for i := 0; i < len(got); i += 4 {
				g, w := math.Float32frombits(host.Uint32(got[i:])), math.Float32frombits(binary.LittleEndian.Uint32(want[i:]))
				if math.Float32bits(g) != math.Float32bits(w) && (g == g || w == w) {
					t.Fatalf("%v: element %d of block %d is %g, want %g", c, i%to/4, i/to, g, w)
				}
			}
		})
	}
}

func TestSwapNeverDiffersFromReversedElements(t *testing.T) {
	for _, width := range []int{2, 4, 8} {
		for n := 0; n <= 40*width; n += width {
			src := counted(n)
			want, got := slices.Clone(src), make([]byte, n)
			for e := range slices.Chunk(want, width) {
				slices.Reverse(e)
			}
			Swap(got, src, width)
			Swap(src, src, width)
			if !bytes.Equal(got, want) || !bytes.Equal(src, want) {
				t.Fatalf("%d bytes of width %d: %x, in place %x, want %x", n, width, got, src, want)
			}
		}
	}
}

func TestScaledIntegersNeverDifferFromTheFormula(t *testing.T) {
	for _, n := range []int{0, 1, 3, 256, 257} {
		src, dst := counted(n + 1)[1:], make([]byte, 4*n+1)[1:]
		for _, scale := range []float32{1, -0.25, 0x1p-149, 3e38, 1.1} {
			ScaleI8(dst, src, scale)
			for i, q := range src {
				if got, want := host.Uint32(dst[4*i:]), math.Float32bits(float32(int8(q))*scale); got != want {
					t.Fatalf("ScaleI8 of %d by %g: %#x, want %#x", int8(q), scale, got, want)
				}
			}
			for _, zero := range []uint8{0, 128, 255} {
				ScaleU8(dst, src, scale, zero)
				for i, q := range src {
					if got, want := host.Uint32(dst[4*i:]), math.Float32bits(float32(int(q)-int(zero))*scale); got != want {
						t.Fatalf("ScaleU8 of %d, %d by %g: %#x, want %#x", q, zero, scale, got, want)
					}
				}
			}
		}
	}
}

// A slice of an array on the stack must not make it escape.
func TestConversionsDoNotAllocate(t *testing.T) {
	probe := testing.AllocsPerRun(10, func() {
		var b [300]byte
		addressOf(b[:])
	})
	if race.Enabled || probe != 0 {
		t.Skip("this build (-race, -d=checkptr) lets whatever has its address taken escape")
	}
	eachTier(t, func(t *testing.T, k *tier) {
		for _, stream := range []int{never, 0} {
			lower(t, stream)
			for c := range conversionEnd {
				from, to := c.Block()
				n := testing.AllocsPerRun(100, func() {
					var dst, src [1024]byte
					c.Convert(dst[:to], src[:from])
					c.ConvertPart(dst[:to], src[:from], Piece)
				})
				if n != 0 {
					t.Errorf("%v allocations per call of %v", n, c)
				}
			}
			n := testing.AllocsPerRun(100, func() {
				var dst, src [256]byte
				for _, width := range [...]int{2, 4, 8} {
					Swap(dst[:], src[:], width)
					SwapPart(dst[:], dst[:], width, 256)
				}
				ScaleI8(dst[:], src[:64], 1)
				ScaleU8(dst[:], src[:64], 1, 1)
			})
			if n != 0 {
				t.Errorf("%v allocations per call of Swap, ScaleI8 and ScaleU8", n)
			}
		}
	})
}

// Any bytes, any number of blocks, any addresses: each tier makes what the
// generic twin makes, and nothing around it.
func FuzzConversions(f *testing.F) {
	f.Add([]byte("some numbers of no sense, in a row"), uint8(0), uint8(1), uint8(2))
	some := make([]byte, 1500)
	varied(some)
	f.Add(some, uint8(3), uint8(0), uint8(63))
	f.Fuzz(func(t *testing.T, data []byte, which, at, to uint8) {
		all := wholeConversions()
		k := all[int(which)%len(all)]
		data = data[:min(len(data), 4096)]
		n := len(data) / k.src
		src := append(make([]byte, at), data...)[at:][:n*k.src]
		want := make([]byte, n*k.dst)
		k.twin(want, src)
		got := bytes.Repeat([]byte{canary}, n*k.dst+int(to)+edge)
		k.run(got[to:][:n*k.dst], src)
		if i := firstDifference(got[to:][:n*k.dst], want); i >= 0 {
			t.Fatalf("%s of %d blocks: byte %d differs", k.name, n, i)
		}
		for i, b := range got {
			if (i < int(to) || i >= int(to)+n*k.dst) && b != canary {
				t.Fatalf("%s of %d blocks: byte %d was written", k.name, n, i-int(to))
			}
		}
	})
}

package fuel_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	kernels "github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/race"
)

// host is the byte order of elements.
var host = binary.NativeEndian

// widened are the float32 that c makes of all codes of a type.
func widened(c kernels.Conversion) []uint32 {
	size, _ := c.Block()
	n := 1 << (8 * size)
	src, dst := make([]byte, n*size), make([]byte, 4*n)
	for code := range n {
		if size == 1 {
			src[code] = byte(code)
		} else {
			host.PutUint16(src[2*code:], uint16(code))
		}
	}
	c.Convert(dst, src)
	out := make([]uint32, n)
	for i := range out {
		out[i] = host.Uint32(dst[4*i:])
	}
	return out
}

func TestWideningNeverDiffersFromTheScalarTypes(t *testing.T) {
	for c, scalar := range map[kernels.Conversion]func(code int) float32{
		kernels.BF16ToF32:     func(code int) float32 { return fuel.BFloat16(code).Float32() },
		kernels.F16ToF32:      func(code int) float32 { return fuel.Float16(code).Float32() },
		kernels.F8E4M3FNToF32: func(code int) float32 { return fuel.Float8E4M3FN(code).Float32() },
		kernels.F8E5M2ToF32:   func(code int) float32 { return fuel.Float8E5M2(code).Float32() },
	} {
		for code, got := range widened(c) {
			if want := math.Float32bits(scalar(code)); got != want {
				t.Fatalf("%v of %#x is %#08x, want %#08x", c, code, got, want)
			}
		}
	}
}

// narrowSample are float32 patterns: all upper halves, each with the lower ones
// at which rounding to bfloat16 or float16 turns.
func narrowSample() []byte {
	var src []byte
	for upper := range uint32(1 << 16) {
		for _, lower := range []uint32{0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xF000, 0xFFFF, upper * 40503 & 0xFFFF} {
			src = host.AppendUint32(src, upper<<16|lower)
		}
	}
	return src
}

func TestNarrowingNeverDiffersFromTheScalarTypes(t *testing.T) {
	src := narrowSample()
	// The numbers halfway between two float16, and their neighbours.
	for code := range uint16(0x7C00) {
		low, high := fuel.Float16(code).Float32(), float32(65536)
		if code < 0x7BFF {
			high = fuel.Float16(code + 1).Float32()
		}
		mid := math.Float32bits(low + (high-low)/2)
		for _, u := range []uint32{mid - 1, mid, mid + 1} {
			src = host.AppendUint32(host.AppendUint32(src, u), u|1<<31)
		}
	}
	dst := make([]byte, len(src)/2)
	for c, scalar := range map[kernels.Conversion]func(x float32) uint16{
		kernels.F32ToBF16: func(x float32) uint16 { return fuel.BFloat16FromFloat32(x).Bits() },
		kernels.F32ToF16:  func(x float32) uint16 { return fuel.Float16FromFloat32(x).Bits() },
	} {
		c.Convert(dst, src)
		for i := 0; 4*i < len(src); i++ {
			u, got := host.Uint32(src[4*i:]), host.Uint16(dst[2*i:])
			if want := scalar(math.Float32frombits(u)); got != want {
				t.Fatalf("%v of %#08x is %#04x, want %#04x", c, u, got, want)
			}
		}
	}
}

// The same for all 2^32 float32. It takes minutes, so it runs only with
// FUEL_EXHAUSTIVE=1.
func TestNarrowingOfEveryFloat32NeverDiffersFromTheScalarTypes(t *testing.T) {
	if os.Getenv("FUEL_EXHAUSTIVE") != "1" {
		t.Skip("FUEL_EXHAUSTIVE=1 turns it on")
	}
	const some = 1 << 20
	src, dst := make([]byte, 4*some), make([]byte, 2*some)
	for first := uint64(0); first < 1<<32; first += some {
		for i := range uint32(some) {
			host.PutUint32(src[4*i:], uint32(first)+i)
		}
		kernels.F32ToBF16.Convert(dst, src)
		for i := range uint32(some) {
			u := uint32(first) + i
			if got, want := host.Uint16(dst[2*i:]), fuel.BFloat16FromFloat32(math.Float32frombits(u)).Bits(); got != want {
				t.Fatalf("bf16 of %#08x is %#04x, want %#04x", u, got, want)
			}
		}
		kernels.F32ToF16.Convert(dst, src)
		for i := range uint32(some) {
			u := uint32(first) + i
			if got, want := host.Uint16(dst[2*i:]), fuel.Float16FromFloat32(math.Float32frombits(u)).Bits(); got != want {
				t.Fatalf("f16 of %#08x is %#04x, want %#04x", u, got, want)
			}
		}
	}
}

// encoded makes a Storage of n elements of type d in the encoding e.
func encoded(t testing.TB, s *fuel.Storage, d fuel.DType, e fuel.Encoding) *fuel.Storage {
	t.Helper()
	r := must(t)(s.ReinterpretAs(d, e))
	s.Close()
	return r
}

// granule is Encoding.Granule.
func granule(t testing.TB, e fuel.Encoding, d fuel.DType) (n, bytes int) {
	t.Helper()
	n, bytes, err := e.Granule(d)
	if err != nil {
		t.Fatal(err)
	}
	return n, bytes
}

// convertible are all pairs that Convert takes, with what does it.
var convertible = []struct {
	from, to fuel.DType
	enc      fuel.Encoding
	by       func(dst, src []byte)
}{
	{fuel.BF16, fuel.F32, fuel.Plain(), kernels.BF16ToF32.Convert},
	{fuel.F16, fuel.F32, fuel.Plain(), kernels.F16ToF32.Convert},
	{fuel.F8E4M3FN, fuel.F32, fuel.Plain(), kernels.F8E4M3FNToF32.Convert},
	{fuel.F8E5M2, fuel.F32, fuel.Plain(), kernels.F8E5M2ToF32.Convert},
	{fuel.F32, fuel.BF16, fuel.Plain(), kernels.F32ToBF16.Convert},
	{fuel.F32, fuel.F16, fuel.Plain(), kernels.F32ToF16.Convert},
	{fuel.I8, fuel.F32, fuel.Plain(), func(dst, src []byte) { kernels.ScaleI8(dst, src, 1) }},
	{fuel.U8, fuel.F32, fuel.Plain(), func(dst, src []byte) { kernels.ScaleU8(dst, src, 1, 0) }},
	{fuel.F32, fuel.F32, fuel.GGMLBlock(fuel.GGMLQ8_0), kernels.Q8_0ToF32.Convert},
	{fuel.BF16, fuel.F32, fuel.GGMLBlock(fuel.GGMLQ4_0), kernels.Q4_0ToF32.Convert},
	{fuel.F16, fuel.F32, fuel.GGMLBlock(fuel.GGMLQ4_K), kernels.Q4_KToF32.Convert},
	{fuel.F32, fuel.F32, fuel.GGMLBlock(fuel.GGMLQ6_K), kernels.Q6_KToF32.Convert},
}

// Whatever memory the bytes are in, at whatever address, in few pieces and in
// many.
func TestConvertNeverDiffersFromItsKernel(t *testing.T) {
	for _, c := range convertible {
		n, size := granule(t, c.enc, c.from)
		blocks := []int{0, 1, 7, 300_000 / size, 3_000_000 / size}
		if testing.Short() || race.Enabled {
			blocks = blocks[:4]
		}
		for _, many := range blocks {
			b := count(many*size + 3)
			for name, open := range memories {
				s := open(t, b)
				window := must(t)(s.View(3, many*size))
				in := encoded(t, window, c.from, c.enc)
				s.Close()
				out := must(t)(fuel.Convert(t.Context(), in, c.to, nil))
				per := value(c.to.Bytes(n))(t)
				want := make([]byte, many*per)
				c.by(want, b[3:])
				if out.DType() != c.to || !out.Encoding().IsPlain() || out.Len() != many*n || out.Device() != cpu || out.Alignment() < 64 {
					t.Errorf("%v of %v is %v, aligned to %d", c.to, in, out, out.Alignment())
				}
				wantBytes(t, name, out, want)
				wantBytes(t, name+", the source", in, b[3:])
				in.Close()
				out.Close()
			}
		}
	}
}

// A part of a Storage of blocks is converted alone.
func TestConvertOfAViewTakesItsBlocksOnly(t *testing.T) {
	q := fuel.GGMLBlock(fuel.GGMLQ8_0)
	s := encoded(t, must(t)(fuel.FromBytes(cpu, fuel.U8, count(34*9))), fuel.F32, q)
	v := must(t)(s.View(32*2, 32*5))
	whole := must(t)(fuel.Convert(t.Context(), s, fuel.F32, nil))
	part := must(t)(fuel.Convert(t.Context(), v, fuel.F32, nil))
	wantBytes(t, "view", part, contents(t, whole)[128*2:128*7])
}

func TestConvertToTheSameIsAClone(t *testing.T) {
	for _, d := range []fuel.DType{fuel.F32, fuel.U8, fuel.F4E2M1, fuel.I64} {
		s := must(t)(fuel.Alloc(cpu, d, 1001, nil))
		c := must(t)(fuel.Convert(t.Context(), s, d, nil))
		if r := s.Region(); r.Owners != 2 || c.DType() != d || c.Len() != 1001 {
			t.Errorf("%v: %v, and the region has %d owners", s, c, r.Owners)
		}
		if _, err := c.WriteAt([]byte{1}, 0); err != nil {
			t.Fatal(err)
		}
		if !all(contents(t, s), 0) {
			t.Errorf("%v: a write to the clone shows in the original", s)
		}
	}
}

func TestConvertSaysWhatItCannotConvert(t *testing.T) {
	before := value(fuel.MemStats(cpu))(t).InUse
	for _, c := range []struct {
		from, to fuel.DType
		enc      fuel.Encoding
		opt      *fuel.ConvertOptions
		text     string
	}{
		{fuel.F16, fuel.BF16, fuel.Plain(), nil, "no conversion of plain f16 to bf16"},
		{fuel.F64, fuel.F32, fuel.Plain(), nil, "no conversion of plain f64 to f32"},
		{fuel.F32, fuel.F8E5M2, fuel.Plain(), nil, "no conversion"},
		{fuel.F32, fuel.I8, fuel.Plain(), nil, "no conversion"},
		{fuel.F32, 0, fuel.Plain(), nil, "no conversion"},
		{fuel.F32, 250, fuel.Plain(), nil, "no conversion"},
		{fuel.F32, fuel.F32, fuel.GGMLBlock(fuel.GGMLQ5_0), nil, "no conversion of ggml:Q5_0 f32 to f32"},
		{fuel.F16, fuel.F16, fuel.GGMLBlock(fuel.GGMLQ8_0), nil, "no conversion of ggml:Q8_0 f16 to f16"},
		{fuel.F32, fuel.F32, value(fuel.MX(fuel.F8E4M3FN, fuel.ScalesInside))(t), nil, "no conversion"},
		{fuel.F16, fuel.F32, fuel.Plain(), &fuel.ConvertOptions{Scale: 2}, "a scale is for i8 and u8"},
		{fuel.F32, fuel.F32, fuel.Plain(), &fuel.ConvertOptions{Scale: 2}, "a scale is for i8 and u8"},
		{fuel.F32, fuel.F32, fuel.GGMLBlock(fuel.GGMLQ8_0), &fuel.ConvertOptions{Scale: 2}, "a scale is for i8 and u8"},
		{fuel.I8, fuel.F32, fuel.Plain(), &fuel.ConvertOptions{Zero: 1}, "a zero point for u8"},
		{fuel.U8, fuel.U8, fuel.Plain(), &fuel.ConvertOptions{Zero: 1}, "no conversion of plain u8 to u8"},
	} {
		s := must(t)(fuel.Alloc(cpu, c.from, 512, &fuel.Options{Encoding: c.enc}))
		_, err := fuel.Convert(t.Context(), s, c.to, c.opt)
		wantErr(t, "Convert", err, fuel.ErrMismatch)
		if !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v to %v: %v", s, c.to, err)
		}
		s.Close()
	}
	if now := value(fuel.MemStats(cpu))(t).InUse; now != before {
		t.Errorf("%d bytes are left", now-before)
	}
}

func TestConvertScalesIntegers(t *testing.T) {
	i := must(t)(fuel.FromSlice(cpu, []int8{-128, -1, 0, 127}))
	u := must(t)(fuel.FromSlice(cpu, []uint8{0, 100, 128, 255}))
	for _, c := range []struct {
		s    *fuel.Storage
		opt  fuel.ConvertOptions
		want []float32
	}{
		{i, fuel.ConvertOptions{Scale: 0.5}, []float32{-64, -0.5, 0, 63.5}},
		{i, fuel.ConvertOptions{}, []float32{-128, -1, 0, 127}},
		{u, fuel.ConvertOptions{Scale: 2, Zero: 128}, []float32{-256, -56, 0, 254}},
		{u, fuel.ConvertOptions{Zero: 100}, []float32{-100, 0, 28, 155}},
	} {
		out := must(t)(fuel.Convert(t.Context(), c.s, fuel.F32, &c.opt))
		if got := value(fuel.Slice[float32](out))(t); !slices.Equal(got, c.want) {
			t.Errorf("%v with %+v: %v, want %v", c.s, c.opt, got, c.want)
		}
	}
}

// The end of a truncated file is missing in Convert as well, in one goroutine
// and in several.
func TestConvertOfATruncatedFileNeverKills(t *testing.T) {
	before := value(fuel.MemStats(cpu))(t).InUse
	for _, size := range []int{34 * 9000, 34 * 300_000} {
		for _, c := range convertible {
			_, block := granule(t, c.enc, c.from)
			s := shrunk(t, size/block*block)
			in := encoded(t, s, c.from, c.enc)
			_, err := fuel.Convert(t.Context(), in, c.to, nil)
			wantErr(t, fmt.Sprint(in, " to ", c.to), err, fuel.ErrMapFault)
			in.Close()
		}
		if testing.Short() || race.Enabled {
			break
		}
	}
	if now := value(fuel.MemStats(cpu))(t).InUse; now != before {
		t.Errorf("%d bytes are left", now-before)
	}
}

func TestConvertStopsWhenItsContextEnds(t *testing.T) {
	const n = 8 << 20
	s := must(t)(fuel.Alloc(cpu, fuel.BF16, n, nil))
	before := value(fuel.MemStats(cpu))(t).InUse
	ctx, cancel := context.WithCancel(t.Context())
	calls, last := 0, 0
	_, err := fuel.Convert(ctx, s, fuel.F32, &fuel.ConvertOptions{Progress: func(done, total int) {
		if calls++; total != 2*n || done <= last || done > total || done%2 != 0 {
			t.Errorf("progress: %d of %d after %d", done, total, last)
		}
		last = done
		cancel()
	}})
	wantErr(t, "Convert", err, context.Canceled)
	op, _ := errors.AsType[*fuel.OpError](err)
	if calls == 0 || op.Op != "Convert" || op.Bytes < last || op.Bytes >= 2*n {
		t.Errorf("%d calls of Progress, the last with %d bytes; %+v", calls, last, op)
	}
	for _, n := range []int{0, 4} {
		s := must(t)(fuel.Alloc(cpu, fuel.BF16, n, nil))
		for _, d := range []fuel.DType{fuel.F32, fuel.BF16} {
			_, err := fuel.Convert(ctx, s, d, nil)
			wantErr(t, "Convert after the end", err, context.Canceled)
		}
		s.Close()
	}
	if now := value(fuel.MemStats(cpu))(t).InUse; now != before {
		t.Errorf("%d bytes are left", now-before)
	}
}

func TestConvertTellsAllItDoes(t *testing.T) {
	for _, c := range convertible {
		per, size := granule(t, c.enc, c.from)
		n := 20 << 20 / size * per
		s := must(t)(fuel.Alloc(cpu, c.from, n, &fuel.Options{Encoding: c.enc}))
		last := 0
		out := must(t)(fuel.Convert(t.Context(), s, c.to, &fuel.ConvertOptions{Progress: func(done, total int) {
			if done <= last || total != s.LenBytes() {
				t.Errorf("progress: %d of %d after %d", done, total, last)
			}
			last = done
		}}))
		if last != s.LenBytes() {
			t.Errorf("%v to %v: the last call was of %d bytes of %d", s, c.to, last, s.LenBytes())
		}
		s.Close()
		out.Close()
		if testing.Short() || race.Enabled {
			break
		}
	}
}

func TestConvertCountsInItsScope(t *testing.T) {
	scope := fuel.NewScope("converted", 1<<20)
	small := must(t)(fuel.Alloc(cpu, fuel.BF16, 1000, nil))
	out := must(t)(fuel.Convert(t.Context(), small, fuel.F32, &fuel.ConvertOptions{Scope: scope}))
	if in := scope.Stats().InUse; in != 4000 || out.Region().Scope != "converted" {
		t.Errorf("the scope has %d bytes: %+v", in, out.Region())
	}
	large := must(t)(fuel.Alloc(cpu, fuel.BF16, 1<<20, nil))
	_, err := fuel.Convert(t.Context(), large, fuel.F32, &fuel.ConvertOptions{Scope: scope})
	wantErr(t, "Convert beyond the limit", err, fuel.ErrOutOfMemory)
}

// Reading, cloning and closing go on beside it; what comes out is always all
// of what was there, or ErrClosed.
func TestConvertIsSafeBesideCloneAndClose(t *testing.T) {
	want := make([]byte, 4*50_000)
	b := count(2 * 50_000)
	kernels.BF16ToF32.Convert(want, b)
	for range 30 {
		s := value(fuel.FromBytes(cpu, fuel.BF16, b))(t)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for range 5 {
					out, err := fuel.Convert(t.Context(), s, fuel.F32, nil)
					if errors.Is(err, fuel.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					if got := value(out.Bytes())(t); !bytes.Equal(got, want) {
						t.Error("the numbers are wrong")
					}
					out.Close()
				}
			})
		}
		wg.Go(func() {
			c, err := s.Clone()
			if err != nil {
				return
			}
			if _, err := c.WriteAt([]byte{0xEE}, 0); err != nil {
				t.Error(err)
			}
			c.Close()
		})
		wg.Go(func() {
			time.Sleep(100 * time.Microsecond)
			s.Close()
		})
		wg.Wait()
	}
}

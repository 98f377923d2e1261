package fuel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-fuel/fuel"
	kernels "github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/fueltest"
)

// Reports 26 and 28: a product or a padded size wraps to a small number.
func TestSizesDoNotWrap(t *testing.T) {
	for _, n := range []int{math.MaxInt, math.MaxInt/4 + 1, math.MaxInt/8 + 1, -1, math.MinInt} {
		for _, d := range []fuel.DType{fuel.F32, fuel.Complex128} {
			if n > 0 && n < math.MaxInt && d == fuel.F32 && n <= math.MaxInt/4 {
				continue // fits, and is for the system to refuse
			}
			s, err := fuel.Alloc(cpu, d, n, nil)
			wantErr(t, "Alloc", err, fuel.ErrOverflow)
			if s != nil {
				t.Error("a Storage beside an error")
			}
			_, err = fuel.AllocCPUZeroed(d, n)
			wantErr(t, "AllocCPUZeroed", err, fuel.ErrOverflow)
			_, err = fuel.AllocUninit(cpu, d, n, nil)
			wantErr(t, "AllocUninit", err, fuel.ErrOverflow)
		}
	}
	_, err := fuel.Compose(cpu, []fuel.SlotSpec{
		{Name: "a", DType: fuel.U8, Len: 1}, {Name: "b", DType: fuel.U8, Len: math.MaxInt - 10},
	})
	wantErr(t, "Compose", err, fuel.ErrOverflow)
}

// Reports 71 and 72, and the crate's floor.
func TestSubByteCountsAreRoundedUp(t *testing.T) {
	for _, c := range []struct {
		d        fuel.DType
		n, bytes int
	}{
		{fuel.F4E2M1, 5, 3}, {fuel.U4, 1, 1}, {fuel.U1, 9, 2}, {fuel.I2, 5, 2}, {fuel.F6E2M3, 3, 3}, {fuel.F6E3M2, 4, 3}, {fuel.U1, 0, 0},
	} {
		s := must(t)(fuel.Alloc(cpu, c.d, c.n, nil))
		if s.Len() != c.n || s.LenBytes() != c.bytes {
			t.Errorf("%d %s: %d elements in %d bytes, want %d", c.n, c.d, s.Len(), s.LenBytes(), c.bytes)
		}
	}
}

func TestPadBitsDoNotCount(t *testing.T) {
	ctx := t.Context()
	a := must(t)(fuel.AllocUninit(cpu, fuel.U4, 3, nil))
	b := must(t)(fuel.AllocUninit(cpu, fuel.U4, 3, nil))
	for _, s := range []*fuel.Storage{a, b} {
		if last := contents(t, s)[1]; last&0xF0 != 0 {
			t.Errorf("AllocUninit left pad bits: %#x", last)
		}
	}
	write := func(s *fuel.Storage, b ...byte) {
		if _, err := s.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
	}
	write(a, 0x21, 0x03)
	write(b, 0x21, 0xF3)
	equal, err := a.Equal(ctx, b)
	if !equal || err != nil {
		t.Errorf("Equal looks at pad bits: %v, %v", equal, err)
	}
	x, _ := a.Checksum(ctx)
	y, err := b.Checksum(ctx)
	if x != y || err != nil {
		t.Errorf("Checksum looks at pad bits: %#x, %#x, %v", x, y, err)
	}
	write(b, 0x21, 0xF4)
	if equal, _ := a.Equal(ctx, b); equal {
		t.Error("Equal does not look at the last element")
	}
	if z, _ := b.Checksum(ctx); z == x {
		t.Error("Checksum does not look at the last element")
	}
}

func TestPartElementsAreRefused(t *testing.T) {
	_, err := fuel.FromBytes(cpu, fuel.F32, make([]byte, 7))
	wantErr(t, "FromBytes", err, fuel.ErrMismatch)
	_, err = fuel.Wrap(fuel.F32, make([]byte, 7), func() { t.Error("released") })
	wantErr(t, "Wrap", err, fuel.ErrMismatch)
	s := must(t)(fuel.Alloc(cpu, fuel.U8, 7, nil))
	_, err = s.Reinterpret(fuel.F32)
	wantErr(t, "Reinterpret", err, fuel.ErrMismatch)
	_, err = s.ReinterpretAs(fuel.F32, fuel.GGMLBlock(fuel.GGMLQ8_0))
	wantErr(t, "ReinterpretAs", err, fuel.ErrMismatch)
	_, err = fuel.Alloc(cpu, fuel.F32, 33, &fuel.Options{Encoding: fuel.GGMLBlock(fuel.GGMLQ8_0)})
	wantErr(t, "Alloc of part of a block", err, fuel.ErrMismatch)
}

func TestEncodingFixesTheLength(t *testing.T) {
	s := must(t)(fuel.Alloc(cpu, fuel.F32, 64, &fuel.Options{Encoding: fuel.GGMLBlock(fuel.GGMLQ8_0)}))
	if s.Len() != 64 || s.LenBytes() != 68 {
		t.Errorf("64 elements of Q8_0 are %d bytes", s.LenBytes())
	}
	if _, err := fuel.Slice[float32](s); !errors.Is(err, fuel.ErrMismatch) {
		t.Errorf("blocks as a slice: %v", err)
	}
	v := must(t)(s.View(32, 32))
	if v.LenBytes() != 34 || v.Encoding() != s.Encoding() {
		t.Errorf("a block is %d bytes of %s", v.LenBytes(), v.Encoding())
	}
	_, err := s.View(16, 32)
	wantErr(t, "a View within a block", err, fuel.ErrMismatch)
}

// Reports 20, 22 and 24.
func TestZeroLengthIsValidEverywhere(t *testing.T) {
	ctx := t.Context()
	for name, open := range map[string]func() (*fuel.Storage, error){
		"Alloc":       func() (*fuel.Storage, error) { return fuel.Alloc(cpu, fuel.F32, 0, nil) },
		"AllocUninit": func() (*fuel.Storage, error) { return fuel.AllocUninit(cpu, fuel.U4, 0, nil) },
		"FromBytes":   func() (*fuel.Storage, error) { return fuel.FromBytes(cpu, fuel.F32, nil) },
		"FromSlice":   func() (*fuel.Storage, error) { return fuel.FromSlice[float32](cpu, nil) },
		"Wrap":        func() (*fuel.Storage, error) { return fuel.Wrap(fuel.F32, nil, nil) },
		"Map":         func() (*fuel.Storage, error) { return fuel.Map(file(t, []byte("xyz")), fuel.F32, 3, 0) },
		"Compose":     func() (*fuel.Storage, error) { return fuel.Compose(cpu, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			s := must(t)(open())
			if s.Len() != 0 || s.LenBytes() != 0 {
				t.Fatal(s.Len(), s.LenBytes())
			}
			clone, view := must(t)(s.Clone()), must(t)(s.View(0, 0))
			moved := must(t)(clone.To(ctx, cpu, nil))
			n, err := s.WriteTo(io.Discard)
			m, err2 := s.ReadFrom(strings.NewReader("rest"))
			equal, err3 := s.Equal(ctx, moved)
			sum, err4 := view.Checksum(ctx)
			_, err5 := s.WriteAt(nil, 0)
			_, err6 := s.ReadAt(nil, 0)
			b, err7 := s.MutableBytes()
			report := fuel.CopyReport{Bytes: 9}
			err8 := s.CopyFrom(ctx, moved, &fuel.CopyOptions{Report: &report})
			if err := errors.Join(err, err2, err3, err4, err5, err6, err7, err8, s.Zero(ctx), s.Fill(ctx, []byte{1, 2}),
				s.Use(func(b []byte) error { return nil }), s.Mutate(func(b []byte) error { return nil })); err != nil {
				t.Error(err)
			}
			if n != 0 || m != 0 || !equal || sum != 0 || len(b) != 0 || b == nil || report.Bytes != 0 {
				t.Error(n, m, equal, sum, b, report)
			}
			if _, err := s.ReadAt(make([]byte, 1), 0); err != io.EOF {
				t.Errorf("ReadAt past the end: %v", err)
			}
		})
	}
}

// Report 67: uninitialized buffers gave NaN.
func TestAllocIsZeroedAlsoInUsedMemory(t *testing.T) {
	for _, n := range []int{1, 100, 4096, 64 << 10, 1 << 20} {
		for range 3 {
			s, err := fuel.Alloc(cpu, fuel.U8, n, nil)
			if err != nil {
				t.Fatal(err)
			}
			if b := contents(t, s); len(bytes.Trim(b, "\x00")) != 0 {
				t.Fatalf("Alloc of %d bytes is not zero", n)
			}
			if err := errors.Join(s.Fill(t.Context(), []byte{0xFF}), s.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Report 6, and 8: alignment is promised and survives.
func TestAlignmentIsNotLost(t *testing.T) {
	for _, n := range []int{1, 7, 63, 64, 65, 1000, 64 << 10, 3<<20 + 1} {
		s := must(t)(fuel.Alloc(cpu, fuel.U8, n, nil))
		c := must(t)(s.Clone())
		if err := c.Fill(t.Context(), []byte{1}); err != nil { // a private copy
			t.Fatal(err)
		}
		view := must(t)(c.View(0, n))
		taken := must(t)(must(t)(s.Clone()).Take())
		for what, x := range map[string]*fuel.Storage{"Alloc": s, "copy-on-write": c, "View of 0": view, "Take": taken} {
			if a := x.Alignment(); a < 64 {
				t.Errorf("%s of %d bytes is aligned to %d", what, n, a)
			}
		}
	}
	s := must(t)(fuel.Alloc(cpu, fuel.F32, 100, nil))
	if a := must(t)(s.View(1, 5)).Alignment(); a != 4 {
		t.Errorf("element 1 of F32 is aligned to %d", a)
	}
	if a := must(t)(s.View(8, 5)).Alignment(); a != 32 {
		t.Errorf("element 8 of F32 is aligned to %d", a)
	}
}

// Report 4: a typed slice of memory that does not suit it.
func TestMisalignedOrMistypedSlicesAreRefused(t *testing.T) {
	s := must(t)(fuel.FromSlice(cpu, []float32{1, 2, 3, 4}))
	if v, err := fuel.Slice[float32](s); err != nil || !slices.Equal(v, []float32{1, 2, 3, 4}) {
		t.Fatal(v, err)
	}
	_, err := fuel.Slice[uint32](s)
	wantErr(t, "Slice[uint32] of F32", err, fuel.ErrMismatch)
	_, err = fuel.MutableSlice[int8](s)
	wantErr(t, "MutableSlice[int8] of F32", err, fuel.ErrMismatch)
	raw := must(t)(s.Reinterpret(fuel.U8))
	off := must(t)(must(t)(raw.View(1, 8)).Reinterpret(fuel.F32))
	_, err = fuel.Slice[float32](off)
	wantErr(t, "Slice at an odd address", err, fuel.ErrMisaligned)
	if b, err := off.Bytes(); len(b) != 8 || err != nil {
		t.Errorf("Bytes of a misaligned view: %d, %v", len(b), err)
	}
	bits := must(t)(s.Reinterpret(fuel.U32))
	u, err := fuel.MutableSlice[uint32](bits)
	if err != nil {
		t.Fatal(err)
	}
	u[0] = math.Float32bits(9)
	if v, err := fuel.Slice[float32](s); err != nil || v[0] != 9 {
		t.Errorf("a write through a reinterpreted view is not seen: %v, %v", v, err)
	}
}

func TestFromSliceCopies(t *testing.T) {
	v := []uint16{1, 2, 3}
	s := must(t)(fuel.FromSliceCPU(v))
	v[0] = 9
	got, err := fuel.Slice[uint16](s)
	if err != nil || !slices.Equal(got, []uint16{1, 2, 3}) || s.DType() != fuel.U16 {
		t.Error(got, err, s.DType())
	}
}

func TestRangesOutsideAreRefused(t *testing.T) {
	ctx := t.Context()
	s := must(t)(fuel.FromSlice(cpu, []uint16{1, 2, 3, 4}))
	other := must(t)(fuel.Alloc(cpu, fuel.U16, 100, nil))
	before := contents(t, s)
	for _, r := range [][2]int{{-1, 1}, {0, -1}, {0, 5}, {4, 1}, {5, 0}, {2, 3}, {1, math.MaxInt}, {math.MaxInt, 1}} {
		_, err := s.View(r[0], r[1])
		wantErr(t, "View", err, fuel.ErrRange)
		wantErr(t, "FillRange", s.FillRange(ctx, r[0], r[1], []byte{9}), fuel.ErrRange)
		wantErr(t, "CopyRange to", s.CopyRange(ctx, r[0], other, 0, r[1], nil), fuel.ErrRange)
		wantErr(t, "CopyRange from", other.CopyRange(ctx, 0, s, r[0], r[1], nil), fuel.ErrRange)
	}
	for _, off := range []int64{-1, 8, 9, math.MaxInt64} {
		_, err := s.WriteAt([]byte{1}, off)
		wantErr(t, "WriteAt", err, fuel.ErrRange)
	}
	_, err := s.WriteAt(make([]byte, 9), 0)
	wantErr(t, "a long WriteAt", err, fuel.ErrRange)
	_, err = s.ReadAt(make([]byte, 1), -1)
	wantErr(t, "ReadAt before the begin", err, fuel.ErrRange)
	if n, err := s.ReadAt(make([]byte, 9), 4); n != 4 || err != io.EOF {
		t.Errorf("ReadAt over the end: %d, %v", n, err)
	}
	wantBytes(t, "after refused writes", s, before)
}

func TestRangesWithinAByteAreRefused(t *testing.T) {
	ctx := t.Context()
	s := must(t)(fuel.Alloc(cpu, fuel.U4, 9, nil))
	if v := must(t)(s.View(2, 7)); v.LenBytes() != 4 || v.Len() != 7 {
		t.Errorf("a view to the end: %d elements, %d bytes", v.Len(), v.LenBytes())
	}
	_, err := s.View(1, 2)
	wantErr(t, "View from within a byte", err, fuel.ErrMismatch)
	_, err = s.View(2, 3)
	wantErr(t, "View to within a byte", err, fuel.ErrMismatch)
	f6 := must(t)(fuel.Alloc(cpu, fuel.F6E2M3, 8, nil))
	for off := range 5 {
		v, err := f6.View(off, 4)
		if ok := off%4 == 0; ok != (err == nil) {
			t.Errorf("four 6-bit elements from %d: %v", off, err)
		}
		if v != nil {
			v.Close()
		}
	}
	long := must(t)(fuel.Alloc(cpu, fuel.U4, 10, nil))
	wantErr(t, "CopyRange that ends within a byte of one", long.CopyRange(ctx, 0, s, 0, 9, nil), fuel.ErrMismatch)
}

func TestMismatchedCopiesAreRefused(t *testing.T) {
	ctx := t.Context()
	s := must(t)(fuel.FromSlice(cpu, []float32{1, 2}))
	before := contents(t, s)
	for what, src := range map[string]*fuel.Storage{
		"a longer one":     must(t)(fuel.Alloc(cpu, fuel.F32, 3, nil)),
		"a shorter one":    must(t)(fuel.Alloc(cpu, fuel.F32, 1, nil)),
		"another dtype":    must(t)(fuel.Alloc(cpu, fuel.I32, 2, nil)),
		"another encoding": must(t)(fuel.Alloc(cpu, fuel.F32, 32, &fuel.Options{Encoding: fuel.GGMLBlock(fuel.GGMLQ8_0)})),
	} {
		wantErr(t, "CopyFrom "+what, s.CopyFrom(ctx, src, nil), fuel.ErrMismatch)
		if equal, err := s.Equal(ctx, src); equal || err != nil {
			t.Errorf("equal to %s: %v, %v", what, equal, err)
		}
	}
	wantBytes(t, "after refused copies", s, before)
}

func TestBadPatternsAreRefused(t *testing.T) {
	s := must(t)(fuel.FromSlice(cpu, []uint8{1, 2, 3, 4, 5, 6}))
	before := contents(t, s)
	for _, p := range [][]byte{nil, make([]byte, 3), make([]byte, 32), make([]byte, 4), make([]byte, 8)} {
		wantErr(t, "Fill", s.Fill(t.Context(), p), fuel.ErrMismatch)
	}
	wantErr(t, "FillRange", s.FillRange(t.Context(), 0, 3, []byte{1, 2}), fuel.ErrMismatch)
	wantBytes(t, "after refused fills", s, before)
}

// Report 73.
func TestOddFillsStayInside(t *testing.T) {
	for off := range 20 {
		for n := range 70 {
			s := must(t)(fuel.FromBytes(cpu, fuel.U8, bytes.Repeat([]byte{0xA5}, 100)))
			if err := s.FillRange(t.Context(), off, n, []byte{1}); err != nil {
				t.Fatal(err)
			}
			want := bytes.Repeat([]byte{0xA5}, 100)
			for i := range n {
				want[off+i] = 1
			}
			wantBytes(t, "fill", s, want)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestReadFromTakesNotOneByteMore(t *testing.T) {
	s := must(t)(fuel.Alloc(cpu, fuel.U8, 5, nil))
	r := strings.NewReader("12345678")
	if n, err := s.ReadFrom(iotest.OneByteReader(r)); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if rest, _ := io.ReadAll(r); string(rest) != "678" {
		t.Errorf("left in the reader: %q", rest)
	}
	wantBytes(t, "ReadFrom", s, []byte("12345"))
	_, err := s.ReadFrom(strings.NewReader("123"))
	wantErr(t, "a short reader", err, io.ErrUnexpectedEOF)
	var op *fuel.OpError
	if errors.As(err, &op); op.Bytes != 3 {
		t.Errorf("a short reader gave %d bytes", op.Bytes)
	}
	_, err = s.ReadFrom(strings.NewReader(""))
	wantErr(t, "an empty reader", err, io.ErrUnexpectedEOF)
	bad := errors.New("bad disk")
	_, err = s.ReadFrom(iotest.ErrReader(bad))
	wantErr(t, "a failing reader", err, bad)
	var out bytes.Buffer
	if _, err := s.ReadFrom(strings.NewReader("abcde")); err != nil {
		t.Fatal(err)
	}
	if n, err := s.WriteTo(&out); n != 5 || err != nil || out.String() != "abcde" {
		t.Errorf("WriteTo: %d, %v, %q", n, err, out.String())
	}
}

// pieceReader fails the test where it is asked for more than a piece: a reader of
// memory copies what it is asked for at once, and stops the world meanwhile.
type pieceReader struct{ t testing.TB }

func (r pieceReader) Read(p []byte) (int, error) {
	if len(p) > kernels.Piece {
		r.t.Errorf("asked for %d bytes", len(p))
	}
	p[len(p)-1] = 3
	return len(p), nil
}

func TestReadFromNeverAsksForMoreThanAPiece(t *testing.T) {
	const n = 2<<20 + 5
	fake := fueltest.Register(t, fuel.Vulkan, fueltest.FakeOptions{})
	for _, dev := range []fuel.Device{cpu, fake.Device(0)} {
		s := must(t)(fuel.Alloc(dev, fuel.U8, n, nil))
		if got, err := s.ReadFrom(pieceReader{t}); got != n || err != nil {
			t.Errorf("%d, %v", got, err)
		}
		if b := contents(t, s); b[n-1] != 3 || b[kernels.Piece-1] != 3 {
			t.Error("the bytes are not those of the reader")
		}
		_, err := s.ReadFrom(bytes.NewReader(make([]byte, kernels.Piece)))
		if op, ok := errors.AsType[*fuel.OpError](err); !ok || op.Bytes != kernels.Piece || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a reader of one piece: %v", err)
		}
		s.Close()
	}
}

func TestCancelledWorkLeavesTheHandleUsable(t *testing.T) {
	const size = 32 << 20
	s := must(t)(fuel.Alloc(cpu, fuel.U8, size, nil))
	src := must(t)(fuel.FromBytes(cpu, fuel.U8, count(size)))
	ctx, cancel := context.WithCancel(t.Context())
	err := s.CopyFrom(ctx, src, &fuel.CopyOptions{Progress: func(done, total int) {
		if total != size || done <= 0 || done > total {
			t.Errorf("progress %d of %d", done, total)
		}
		cancel()
	}})
	wantErr(t, "a cancelled copy", err, context.Canceled)
	var op *fuel.OpError
	if errors.As(err, &op); op.Bytes <= 0 || op.Bytes >= size {
		t.Errorf("a cancelled copy did %d bytes", op.Bytes)
	}
	for what, err := range map[string]error{"Zero": s.Zero(ctx), "Fill": s.Fill(ctx, []byte{1}), "CopyFrom": s.CopyFrom(ctx, src, nil)} {
		wantErr(t, what, err, context.Canceled)
	}
	_, err = s.Checksum(ctx)
	wantErr(t, "Checksum", err, context.Canceled)
	_, err = s.Equal(ctx, src)
	wantErr(t, "Equal", err, context.Canceled)
	var report fuel.CopyReport
	if err := s.CopyFrom(t.Context(), src, &fuel.CopyOptions{Report: &report}); err != nil {
		t.Fatal(err)
	}
	if report.Bytes != size || report.Path != fuel.PathHost || report.Staged != 0 || report.Private || report.Duration <= 0 {
		t.Errorf("%+v", report)
	}
	if equal, err := s.Equal(t.Context(), src); !equal || err != nil {
		t.Error(equal, err)
	}
}

func TestTakeOfASharedOwnerIsRefused(t *testing.T) {
	s := must(t)(fuel.FromSlice(cpu, []uint8{1, 2, 3}))
	v := must(t)(s.View(1, 1))
	_, err := s.Take()
	wantErr(t, "Take beside a View", err, fuel.ErrShared)
	_, err = v.Take()
	wantErr(t, "Take of the View", err, fuel.ErrShared)
	wantBytes(t, "after a refused Take", s, []byte{1, 2, 3})
	if err := s.Mutate(func([]byte) error {
		_, err := s.Take()
		wantErr(t, "Take within Mutate", err, fuel.ErrShared)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	id := s.ID()
	taken := must(t)(s.Take())
	wantBytes(t, "Take", taken, []byte{1, 2, 3})
	if taken.ID() == id {
		t.Error("the taken Storage has the old ID")
	}
	before, _ := fuel.MemStats(cpu)
	if _, err := taken.WriteAt([]byte{9}, 0); err != nil {
		t.Fatal(err)
	}
	if after, _ := fuel.MemStats(cpu); after.PrivateCopies != before.PrivateCopies {
		t.Error("the taken Storage copied its bytes")
	}
}

// Report 51: the net under a forgotten Close.
func TestForgottenStoragesAreFreedAndCounted(t *testing.T) {
	const size = 1 << 20 // from the system: small blocks are the collector's anyway
	before, err := fuel.MemStats(cpu)
	if err != nil {
		t.Fatal(err)
	}
	forget := func() {
		if _, err := fuel.Alloc(cpu, fuel.U8, size, nil); err != nil {
			t.Fatal(err)
		}
		released := make(chan struct{})
		if _, err := fuel.Wrap(fuel.U8, make([]byte, size), func() { close(released) }); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { <-released })
	}
	forget()
	var after fuel.Stats
	for range 100 {
		runtime.GC()
		if after, _ = fuel.MemStats(cpu); after.Regions == before.Regions && after.Leaks > before.Leaks {
			break
		}
		runtime.Gosched()
	}
	if after.Regions != before.Regions || after.InUse != before.InUse {
		t.Fatalf("forgotten memory is not freed: %+v, before %+v", after, before)
	}
	if n := after.Leaks - before.Leaks; n < 1 || after.Leaked-before.Leaked != n*size {
		t.Errorf("forgotten memory is not counted: %+v, before %+v", after, before)
	}
}

func TestALeakIsNeverFreedUnderARawSlice(t *testing.T) {
	const size = 1 << 20
	s, err := fuel.Wrap(fuel.U8, make([]byte, size), func() { t.Error("freed under a raw slice") })
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	before, _ := fuel.MemStats(cpu)
	s = nil
	for range 100 {
		runtime.GC()
		if after, _ := fuel.MemStats(cpu); after.Leaks > before.Leaks {
			runtime.KeepAlive(b)
			deliberateLeaks.Add(1)
			return
		}
	}
	t.Error("the leak is not reported")
}

// Report 12: checkptr ends the program at an unsafe cast that reaches beyond
// its object. Most of all under -gcflags=all=-d=checkptr=2, this goes through
// all of them at the edges of what they may see.
func TestUnsafeCastsStayWithinTheirObject(t *testing.T) {
	each(t, 64, func(t *testing.T, s *fuel.Storage, want []byte) {
		for n := 0; n <= 64; n += 8 {
			v := must(t)(must(t)(s.View(64-n, n)).Reinterpret(fuel.F64))
			if got, err := fuel.Slice[float64](v); err != nil || len(got) != n/8 {
				t.Errorf("the last %d bytes: %d elements, %v", n, len(got), err)
			}
			if got, err := fuel.MutableSlice[float64](v); err != nil || len(got) != n/8 || cap(got) != n/8 {
				t.Errorf("the last %d bytes, mutable: %d elements, %v", n, len(got), err)
			}
		}
	})
	for n := range 5 {
		for _, s := range []*fuel.Storage{
			must(t)(fuel.FromSlice(cpu, make([]complex128, n))), must(t)(fuel.FromSlice(cpu, make([]fuel.Float8E5M2, n))),
		} {
			if s.Len() != n {
				t.Errorf("%d of %d elements", s.Len(), n)
			}
		}
	}
	if v, err := fuel.Slice[float64](must(t)(fuel.AllocCPUZeroed(fuel.F64, 0))); len(v) != 0 || err != nil {
		t.Errorf("no elements: %v, %v", v, err)
	}
}

func TestTypedCallbacksSeeTheElements(t *testing.T) {
	s := must(t)(fuel.FromSlice(cpu, []float32{1, 2, 3}))
	if err := fuel.MutateSlice(s, func(v []float32) error { v[1] = 9; return nil }); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("mine")
	if err := fuel.UseSlice(s, func(v []float32) error {
		if !slices.Equal(v, []float32{1, 9, 3}) {
			t.Error(v)
		}
		return bad
	}); err != bad {
		t.Errorf("the callback's error came as %v", err)
	}
	never := func([]int32) error { t.Error("called"); return nil }
	wantErr(t, "UseSlice of another type", fuel.UseSlice(s, never), fuel.ErrMismatch)
	wantErr(t, "MutateSlice of another type", fuel.MutateSlice(s, never), fuel.ErrMismatch)
	raw := must(t)(s.Reinterpret(fuel.U8))
	odd := must(t)(must(t)(raw.View(1, 4)).Reinterpret(fuel.I32))
	wantErr(t, "UseSlice at an odd address", fuel.UseSlice(odd, never), fuel.ErrMisaligned)
	if got := s.String(); got != "f32[3] plain on cpu" {
		t.Errorf("String: %s", got)
	}
}

func TestErrorsTellTheSizeOfTheOperation(t *testing.T) {
	s := must(t)(fuel.Alloc(cpu, fuel.U8, 512, nil))
	_, err := s.WriteAt([]byte{1}, 600)
	var op *fuel.OpError
	if !errors.As(err, &op) || op.Bytes != 1 || op.Op != "WriteAt" {
		t.Errorf("%+v", op)
	}
	_, err = fuel.Dispatch(s, fuel.Cases[int]{})
	wantErr(t, "Dispatch without a case", err, fuel.ErrUnsupportedKind)
}

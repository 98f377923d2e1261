package fueltest

import (
	"context"
	"errors"
	"math"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
)

func checkAlloc(x *subject) {
	for _, n := range x.sizes() {
		// Twice, so that the second may get the memory that the first left.
		for round := range 2 {
			s := x.must(fuel.Alloc(x.dev, fuel.U8, n, nil))
			if s.Len() != n || s.LenBytes() != n || s.DType() != fuel.U8 || s.Device() != x.dev || s.Encoding() != fuel.Plain() || s.Bundle() != nil {
				x.Errorf("Alloc of %d u8 on %s: %d elements of %s in %d bytes on %s", n, x.dev, s.Len(), s.DType(), s.LenBytes(), s.Device())
			}
			if a := s.Alignment(); a&(a-1) != 0 || a <= 0 || x.dev.Kind == fuel.CPU && a < 64 {
				x.Errorf("Alloc of %d bytes has alignment %d", n, a)
			}
			x.holds(s, make([]byte, n), "Alloc of %d bytes, round %d", n, round)
			b := x.random(n)
			if k, err := s.WriteAt(b, 0); k != n || err != nil {
				x.Fatalf("WriteAt of %d bytes: %d, %v", n, k, err)
			}
			x.holds(s, b, "%d bytes after WriteAt", n)
			x.close(s)

			u := x.must(fuel.AllocUninit(x.dev, fuel.U8, n, nil))
			if k, err := u.WriteAt(b, 0); k != n || err != nil {
				x.Fatalf("WriteAt of %d bytes: %d, %v", n, k, err)
			}
			x.holds(u, b, "AllocUninit of %d bytes after WriteAt", n)
			x.close(u)
		}
	}
	for _, d := range []fuel.DType{fuel.Bool, fuel.F16, fuel.F32, fuel.I64, fuel.Complex128, fuel.F6E2M3, fuel.U1} {
		for _, n := range []int{0, 1, 3, 100, 1001} {
			s := x.must(fuel.Alloc(x.dev, d, n, nil))
			if want, _ := d.Bytes(n); s.LenBytes() != want || s.Len() != n || s.DType() != d {
				x.Errorf("Alloc of %d %s: %d elements of %s in %d bytes, want %d", n, d, s.Len(), s.DType(), s.LenBytes(), want)
			}
			x.holds(s, make([]byte, s.LenBytes()), "Alloc of %d %s", n, d)
			x.close(s)
		}
	}
}

func checkAllocTooMuch(x *subject) {
	alloc := func(d fuel.DType, n int) error {
		s, err := fuel.Alloc(x.dev, d, n, nil)
		if err == nil {
			x.close(s)
		}
		return err
	}
	x.is(alloc(fuel.U8, -1), fuel.ErrOverflow, "Alloc of -1 elements")
	x.is(alloc(fuel.F64, math.MaxInt/4), fuel.ErrOverflow, "Alloc of MaxInt/4 f64")
	x.is(alloc(0, 1), fuel.ErrUnknownDType, "Alloc of an invalid dtype")
	if x.dev.Kind == fuel.CPU && race.Enabled {
		return // all memory is from the Go heap, which cannot refuse
	}
	err := alloc(fuel.U8, math.MaxInt/2)
	switch oom := (*fuel.OutOfMemoryError)(nil); {
	case err == nil, errors.Is(err, fuel.ErrTooLarge): // 32-bit hosts may have it
	case !errors.As(err, &oom) || !errors.Is(err, fuel.ErrOutOfMemory):
		x.Errorf("Alloc of MaxInt/2 bytes: %v, want an *OutOfMemoryError", err)
	case oom.Device != x.dev || oom.Requested != math.MaxInt/2:
		x.Errorf("Alloc of MaxInt/2 bytes: the error tells of %d bytes on %s", oom.Requested, oom.Device)
	}
	x.ok(alloc(fuel.U8, 1)) // the device is as good as before
}

func checkConstruct(x *subject) {
	for _, n := range x.sizes() {
		b := x.random(n)
		want := append([]byte{}, b...)
		s := x.from(b)
		clear(b) // no longer the Storage's business
		x.holds(s, want, "FromBytes of %d bytes", n)
		x.close(s)
	}
	f := []float32{0, 1, -1, float32(math.NaN()), float32(math.Inf(1)), 1e-45}
	s := x.must(fuel.FromSlice(x.dev, f))
	if s.DType() != fuel.F32 || s.Len() != len(f) || s.LenBytes() != 4*len(f) {
		x.Errorf("FromSlice of %d float32: %d %s in %d bytes", len(f), s.Len(), s.DType(), s.LenBytes())
	}
	host := x.must(s.To(x.ctx, fuel.Device{}, nil))
	got, err := fuel.Slice[float32](host)
	x.ok(err)
	for i := range f {
		if math.Float32bits(got[i]) != math.Float32bits(f[i]) {
			x.Errorf("element %d of a slice: %x, want %x", i, math.Float32bits(got[i]), math.Float32bits(f[i]))
		}
	}
	x.close(s, host)

	_, err = fuel.FromBytes(x.dev, fuel.F32, make([]byte, 6))
	x.is(err, fuel.ErrMismatch, "FromBytes of 6 bytes as f32")
	_, err = fuel.FromBytes(x.dev, 0, make([]byte, 6))
	x.is(err, fuel.ErrUnknownDType, "FromBytes of an invalid dtype")
}

// repeat writes a pattern over b.
func repeat(b, pattern []byte) {
	for i := range b {
		b[i] = pattern[i%len(pattern)]
	}
}

func checkFill(x *subject) {
	for _, n := range x.sizes() {
		model := x.random(n)
		s := x.from(model)
		for _, k := range []int{1, 2, 4, 8, 16} {
			pattern := x.random(k)
			err := s.Fill(x.ctx, pattern)
			if n%k != 0 {
				x.is(err, fuel.ErrMismatch, "Fill of %d bytes with a pattern of %d", n, k)
			} else {
				x.ok(err)
				repeat(model, pattern)
			}
			x.holds(s, model, "Fill of %d bytes with a pattern of %d", n, k)
		}
		x.ok(s.Zero(x.ctx))
		x.holds(s, make([]byte, n), "Zero of %d bytes", n)
		x.close(s)
	}
	s := x.from(make([]byte, 48))
	for _, k := range []int{0, 3, 5, 12, 17, 32} {
		x.is(s.Fill(x.ctx, make([]byte, k)), fuel.ErrMismatch, "Fill with a pattern of %d", k)
	}
	x.is(s.FillRange(x.ctx, 40, 9, []byte{1}), fuel.ErrRange, "FillRange past the end")
	x.is(s.FillRange(x.ctx, -1, 2, []byte{1}), fuel.ErrRange, "FillRange before the begin")
	x.is(s.FillRange(x.ctx, 1, -1, []byte{1}), fuel.ErrRange, "FillRange of -1")
	x.is(s.FillRange(x.ctx, math.MaxInt, 2, []byte{1}), fuel.ErrRange, "FillRange at MaxInt")
	x.holds(s, make([]byte, 48), "after refused fills")
	x.close(s)
}

// checkFillBorders fills at every offset around what drivers align to. All
// the other bytes must stay.
func checkFillBorders(x *subject) {
	for _, part := range []struct{ size, near, offsets int }{
		{200, 16, 64},
		{4096 + 256, 4096, 64},
	} {
		model := x.random(part.size)
		s := x.from(model)
		for off := 0; off <= part.offsets; off++ {
			if part.near > 1000 && off > 5 && off%16 > 1 && off%16 < 15 && !x.thorough() {
				continue
			}
			for _, k := range []int{1, 2, 4, 8, 16} {
				for _, n := range []int{0, k, part.near - k, part.near - 1, part.near, part.near + 1, part.near + k, 2*part.near - 1} {
					if n%k != 0 || off+n > part.size || x.short && (off+n+k)%3 != 0 {
						continue
					}
					pattern := x.random(k)
					x.ok(s.FillRange(x.ctx, off, n, pattern))
					repeat(model[off:off+n], pattern)
					if !x.holds(s, model, "FillRange of %d bytes at %d with a pattern of %d", n, off, k) {
						x.close(s)
						return
					}
				}
			}
		}
		// Elements wider than a byte.
		w := x.must(s.Reinterpret(fuel.F64))
		for _, r := range [][2]int{{0, 1}, {1, 3}, {3, w.Len() - 3}, {w.Len(), 0}} {
			pattern := x.random(8)
			x.ok(w.FillRange(x.ctx, r[0], r[1], pattern))
			repeat(model[8*r[0]:8*(r[0]+r[1])], pattern)
			x.holds(s, model, "FillRange of %d f64 at %d", r[1], r[0])
		}
		x.close(w, s)
	}
}

// thorough reports whether there is time for everything.
func (x *subject) thorough() bool { return !x.short && !race.Enabled && x.dev.Kind == fuel.CPU }

func checkZeroLength(x *subject) {
	base := x.from([]byte{1, 2, 3})
	mid := x.must(base.View(1, 0))
	end := x.must(base.View(3, 0))
	empties := []*fuel.Storage{
		x.must(fuel.Alloc(x.dev, fuel.F32, 0, nil)),
		x.must(fuel.AllocUninit(x.dev, fuel.U1, 0, nil)),
		x.must(fuel.FromBytes(x.dev, fuel.U8, nil)),
		x.must(fuel.FromSlice(x.dev, []float32{})),
		x.must(fuel.Compose(x.dev, nil)),
		x.must(mid.Clone()),
		mid, end,
	}
	q, err := fuel.QueueOf(x.dev)
	x.ok(err)
	for i, s := range empties {
		if s.Len() != 0 || s.LenBytes() != 0 {
			x.Errorf("empty Storage %d has %d elements, %d bytes", i, s.Len(), s.LenBytes())
		}
		if s.Alignment() <= 0 {
			x.Errorf("empty Storage %d has alignment %d", i, s.Alignment())
		}
		x.ok(s.Zero(x.ctx))
		x.ok(s.Fill(x.ctx, []byte{1, 2, 3, 4}))
		x.ok(s.FillRange(x.ctx, 0, 0, []byte{7}))
		if n, err := s.ReadAt(nil, 0); n != 0 || err != nil {
			x.Errorf("ReadAt of nothing: %d, %v", n, err)
		}
		if n, err := s.WriteAt(nil, 0); n != 0 || err != nil {
			x.Errorf("WriteAt of nothing: %d, %v", n, err)
		}
		if n, err := s.WriteTo(nil); n != 0 || err != nil {
			x.Errorf("WriteTo of nothing: %d, %v", n, err)
		}
		if n, err := s.ReadFrom(nil); n != 0 || err != nil {
			x.Errorf("ReadFrom of nothing: %d, %v", n, err)
		}
		if sum, err := s.Checksum(x.ctx); sum != 0 || err != nil {
			x.Errorf("Checksum of nothing: %x, %v", sum, err)
		}
		c := x.must(s.Clone())
		v := x.must(s.View(0, 0))
		r := x.must(s.Reinterpret(fuel.I64))
		x.ok(c.CopyFrom(x.ctx, s, nil))
		x.ok(c.CopyRange(x.ctx, 0, s, 0, 0, nil))
		if same, err := c.Equal(x.ctx, v); !same || err != nil {
			x.Errorf("Equal of nothing: %v, %v", same, err)
		}
		for _, work := range []func() (fuel.Point, error){
			func() (fuel.Point, error) { return q.Copy(c, s) },
			func() (fuel.Point, error) { return q.Zero(c) },
			func() (fuel.Point, error) { return q.Fill(c, []byte{1, 2}) },
		} {
			p, err := work()
			x.ok(err)
			x.ok(q.Wait(x.ctx, p))
		}
		host := x.must(s.To(x.ctx, fuel.Device{}, nil))
		back := x.must(host.To(x.ctx, x.dev, nil))
		x.ok(back.CopyFrom(x.ctx, s, nil))
		x.ok(back.CopyFrom(x.ctx, host, nil))
		x.ok(host.CopyFrom(x.ctx, back, nil))
		for _, visit := range []func() (int, error){
			func() (int, error) { return fuel.Visit(s, sizes{}) },
			func() (int, error) { return fuel.VisitMutable(s, sizes{}) },
		} {
			if n, err := visit(); n != 0 || err != nil {
				x.Errorf("Visit of nothing: %d bytes, %v", n, err)
			}
		}
		if x.dev.Kind == fuel.CPU {
			x.ok(s.Use(func(b []byte) error { return lengthIs(b, 0) }))
			x.ok(s.Mutate(func(b []byte) error { return lengthIs(b, 0) }))
			b, err := s.Bytes()
			x.ok(err)
			m, err := s.MutableBytes()
			x.ok(err)
			x.ok(errors.Join(lengthIs(b, 0), lengthIs(m, 0)))
		}
		x.close(c, v, r, host, back)
	}
	x.holds(base, []byte{1, 2, 3}, "after writing to empty views")
	taken := x.must(empties[0].Take())
	x.close(taken)
	x.close(empties[1:]...)
	x.close(base)
}

func lengthIs(b []byte, n int) error {
	if len(b) != n {
		return errors.New("a slice of another length than the Storage")
	}
	return nil
}

// sizes is a Visitor that tells the number of bytes.
type sizes struct{}

func (sizes) VisitCPU(m fuel.CPUMemory) (int, error)       { return len(m.Bytes), nil }
func (sizes) VisitCUDA(m fuel.CUDAMemory) (int, error)     { return m.Bytes, nil }
func (sizes) VisitVulkan(m fuel.VulkanMemory) (int, error) { return m.Bytes, nil }
func (sizes) VisitMetal(m fuel.MetalMemory) (int, error)   { return m.Bytes, nil }

func checkSubByte(x *subject) {
	for _, d := range []fuel.DType{fuel.U1, fuel.U2, fuel.I4, fuel.F4E2M1, fuel.F6E2M3, fuel.F6E3M2} {
		for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17} {
			size := (n*d.Bits() + 7) / 8
			u := x.must(fuel.AllocUninit(x.dev, d, n, nil))
			if u.LenBytes() != size {
				x.Fatalf("%d %s take %d bytes, want %d", n, d, u.LenBytes(), size)
			}
			if size == 0 {
				x.close(u)
				continue
			}
			mask := byte(0xFF)
			if used := n * d.Bits() % 8; used != 0 {
				mask = 1<<used - 1
			}
			if last := x.content(u)[size-1]; last&^mask != 0 && mask != 0xFF {
				x.Errorf("AllocUninit of %d %s: last byte %08b, and the upper bits are padding", n, d, last)
			}
			b := x.random(size)
			_, err := u.WriteAt(b, 0)
			x.ok(err)

			// Equal but for the padding.
			c := x.must(fuel.Alloc(fuel.Device{}, d, n, nil))
			other := append([]byte{}, b...)
			other[size-1] ^= ^mask
			_, err = c.WriteAt(other, 0)
			x.ok(err)
			x.equal(u, c, true, "%d %s that differ in padding", n, d)
			// And not equal in the highest bit of an element.
			other[size-1] ^= mask &^ (mask >> 1)
			_, err = c.WriteAt(other, 0)
			x.ok(err)
			x.equal(u, c, false, "%d %s that differ in the last element", n, d)

			whole := size / 3 * 3 * 8 / d.Bits() // elements up to a byte border, of all types
			v, err := u.View(0, min(whole, n))
			x.ok(err)
			x.same(x.content(v), b[:v.LenBytes()], "View of %d %s", min(whole, n), d)
			x.close(v, u, c)
		}
		s := x.must(fuel.Alloc(x.dev, d, 25, nil))
		_, err := s.View(1, 8)
		x.is(err, fuel.ErrMismatch, "View of %s from element 1", d)
		_, err = s.View(0, 9)
		x.is(err, fuel.ErrMismatch, "View of %s up to element 9", d)
		x.is(s.FillRange(x.ctx, 3, 8, []byte{1}), fuel.ErrMismatch, "FillRange of %s from element 3", d)
		x.is(s.CopyRange(x.ctx, 0, s, 3, 8, nil), fuel.ErrMismatch, "CopyRange of %s from element 3", d)
		tail := x.must(s.View(24, 1))
		x.ok(tail.Fill(x.ctx, []byte{0}))
		model := make([]byte, s.LenBytes())
		x.ok(s.FillRange(x.ctx, 8, 8, []byte{0xA5}))
		repeat(model[d.Bits():2*d.Bits()], []byte{0xA5})
		x.holds(s, model, "FillRange of elements 8 to 16 of %s", d)
		x.close(tail, s)
	}
}

// equal fails unless Equal says so both ways, and the checksums agree.
func (x *subject) equal(a, b *fuel.Storage, want bool, format string, args ...any) {
	x.Helper()
	for range 2 {
		if got, err := a.Equal(x.ctx, b); got != want || err != nil {
			x.Errorf("Equal, "+format+": %v, %v", append(args, got, err)...)
		}
		a, b = b, a
	}
	sumA, err := a.Checksum(x.ctx)
	x.ok(err)
	sumB, err := b.Checksum(x.ctx)
	x.ok(err)
	if (sumA == sumB) != want {
		x.Errorf("Checksum, "+format+": %08x and %08x", append(args, sumA, sumB)...)
	}
}

func checkEncodings(x *subject) {
	e := fuel.GGMLBlock(fuel.GGMLQ4_0)
	s := x.must(fuel.Alloc(x.dev, fuel.F32, 128, &fuel.Options{Encoding: e}))
	size, err := e.Bytes(fuel.F32, 128)
	x.ok(err)
	if s.LenBytes() != size || s.Len() != 128 || s.Encoding() != e {
		x.Errorf("128 elements of %s: %d in %d bytes, want %d", e, s.Len(), s.LenBytes(), size)
	}
	model := x.random(size)
	_, err = s.WriteAt(model, 0)
	x.ok(err)
	v := x.must(s.View(32, 64))
	x.holds(v, model[size/4:3*size/4], "View of two blocks of four")
	_, err = s.View(16, 32)
	x.is(err, fuel.ErrMismatch, "View from half a block")
	host := x.must(v.To(x.ctx, fuel.Device{}, nil))
	if host.Encoding() != e || host.Len() != 64 {
		x.Errorf("To has %d elements of %s, want 64 of %s", host.Len(), host.Encoding(), e)
	}
	x.equal(v, host, true, "blocks on two devices")
	x.ok(s.CopyRange(x.ctx, 0, host, 32, 32, nil))
	copy(model[:size/4], model[size/2:3*size/4])
	x.holds(s, model, "CopyRange of a block")
	_, err = fuel.Alloc(x.dev, fuel.F32, 33, &fuel.Options{Encoding: e})
	x.is(err, fuel.ErrMismatch, "Alloc of a block and a bit")
	x.close(s, v, host)
}

func checkContext(x *subject) {
	canceled, cancel := context.WithCancel(x.ctx)
	cancel()
	n := x.big()
	model := x.random(n)
	src := x.from(model)
	dst := x.must(fuel.Alloc(x.dev, fuel.U8, n, nil))
	elsewhere := x.must(fuel.Alloc(fuel.Device{}, fuel.U8, n, nil))
	shared := x.must(src.Clone())
	operations := []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{"Zero", func(ctx context.Context) error { return dst.Zero(ctx) }},
		{"Fill", func(ctx context.Context) error { return dst.Fill(ctx, []byte{1}) }},
		{"FillRange", func(ctx context.Context) error { return dst.FillRange(ctx, 1, n-1, []byte{1}) }},
		{"FillRange of shared memory", func(ctx context.Context) error { return shared.FillRange(ctx, 1, n-1, []byte{1}) }},
		{"CopyFrom", func(ctx context.Context) error { return dst.CopyFrom(ctx, src, nil) }},
		{"CopyFrom the CPU", func(ctx context.Context) error { return dst.CopyFrom(ctx, elsewhere, nil) }},
		{"CopyFrom to the CPU", func(ctx context.Context) error { return elsewhere.CopyFrom(ctx, src, nil) }},
		{"CopyRange", func(ctx context.Context) error { return dst.CopyRange(ctx, 1, src, 0, n-1, nil) }},
		{"CopyRange to shared memory", func(ctx context.Context) error { return shared.CopyRange(ctx, 1, elsewhere, 0, n-1, nil) }},
		{"Equal", func(ctx context.Context) error { _, err := dst.Equal(ctx, src); return err }},
		{"Checksum", func(ctx context.Context) error { _, err := src.Checksum(ctx); return err }},
	}
	for _, op := range operations {
		x.is(op.do(canceled), context.Canceled, "%s with a canceled context", op.name)
		for looks := range int64(4) {
			err := op.do(newCountdown(looks))
			if err == nil {
				continue // done before it looked so often
			}
			x.is(err, context.Canceled, "%s canceled at look %d", op.name, looks)
			if e := (*fuel.OpError)(nil); errors.As(err, &e) && (e.Bytes < 0 || e.Bytes > n) {
				x.Errorf("%s canceled at look %d: %d bytes done of %d", op.name, looks, e.Bytes, n)
			}
		}
	}
	var e *fuel.OpError
	if err := dst.Zero(canceled); !errors.As(err, &e) || e.Bytes != 0 {
		x.Errorf("Zero with a canceled context: %v, want 0 bytes done", err)
	}
	before := x.stats(fuel.Device{})
	other := fuel.Device{}
	if x.dev.Kind != fuel.CPU {
		_, err := src.To(canceled, other, nil)
		x.is(err, context.Canceled, "To with a canceled context")
		_, err = elsewhere.To(canceled, x.dev, nil)
		x.is(err, context.Canceled, "To with a canceled context")
		x.settled(other, before)
	}
	// Everything is still usable.
	x.holds(src, model, "the source of canceled copies")
	x.ok(dst.CopyFrom(x.ctx, src, nil))
	x.holds(dst, model, "CopyFrom after canceled operations")
	x.ok(shared.CopyFrom(x.ctx, src, nil))
	x.holds(shared, model, "CopyFrom to a clone after canceled operations")
	x.close(src, dst, elsewhere, shared)
}

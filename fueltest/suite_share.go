package fueltest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"

	"github.com/go-fuel/fuel"
)

func checkClone(x *subject) {
	for _, n := range []int{1, 100, 4097, 256<<10 + 1} {
		a := x.random(n)
		s := x.from(a)
		id := s.ID()
		c := x.must(s.Clone())
		d := x.must(c.Clone())
		if c.ID() == id || d.ID() == id || c.ID() == d.ID() {
			x.Errorf("IDs of a Storage and its clones: %d, %d, %d", id, c.ID(), d.ID())
		}
		if c.Len() != n || c.DType() != s.DType() || c.Device() != x.dev {
			x.Errorf("a Clone has %d %s on %s", c.Len(), c.DType(), c.Device())
		}
		if r := s.Region(); r.Owners != 3 || r.Bytes != n {
			x.Errorf("three that share %d bytes: %+v", n, r)
		}
		before := x.stats(x.dev)

		version := c.Version()
		b := x.random(n)
		_, err := c.WriteAt(b, 0)
		x.ok(err)
		x.holds(s, a, "original after a write to its clone")
		x.holds(d, a, "clone of a clone after a write to that")
		x.holds(c, b, "clone after a write")
		if c.Version() <= version {
			x.Errorf("a write took the version from %d to %d", version, c.Version())
		}
		if c.Region().Owners != 1 || s.Region().Owners != 2 {
			x.Errorf("after a write: %d and %d owners, want 1 and 2", c.Region().Owners, s.Region().Owners)
		}

		e := x.random(n)
		_, err = s.WriteAt(e[:1], 0)
		x.ok(err)
		model := slices.Clone(a)
		model[0] = e[0]
		x.holds(s, model, "original after a write of a byte")
		x.holds(d, a, "clone after a write of a byte to the original")
		if s.ID() == id {
			x.Errorf("the ID is the same after a private copy")
		}
		if got := x.stats(x.dev).PrivateCopies - before.PrivateCopies; got != 2 {
			x.Errorf("%d private copies for two writers, want 2", got)
		}

		// The last owner writes in place.
		x.close(c, s)
		_, err = d.WriteAt(b, 0)
		x.ok(err)
		x.holds(d, b, "the last clone after a write")
		if got := x.stats(x.dev).PrivateCopies - before.PrivateCopies; got != 2 {
			x.Errorf("the last owner made a private copy")
		}
		x.close(d)
	}
}

// checkCloneAndEveryWrite looks that no way to write shows in a clone, made
// before or of a View.
func checkCloneAndEveryWrite(x *subject) {
	const n = 1024 + 16
	q, err := fuel.QueueOf(x.dev)
	x.ok(err)
	queued := func(p fuel.Point, err error) error {
		if err != nil {
			return err
		}
		return q.Wait(x.ctx, p)
	}
	type write struct {
		name string
		do   func(s, src *fuel.Storage, in []byte) error
		want func(old, in []byte) []byte
	}
	all := func(old, in []byte) []byte { return in }
	sixteen := func(old, in []byte) []byte { return bytes.Repeat(in[:16], n/16) }
	writes := []write{
		{"WriteAt", func(s, src *fuel.Storage, in []byte) error { _, err := s.WriteAt(in, 0); return err }, all},
		{"WriteAt of a byte", func(s, src *fuel.Storage, in []byte) error { _, err := s.WriteAt(in[5:6], 5); return err },
			func(old, in []byte) []byte { old[5] = in[5]; return old }},
		{"ReadFrom", func(s, src *fuel.Storage, in []byte) error { _, err := s.ReadFrom(bytes.NewReader(in)); return err }, all},
		{"Zero", func(s, src *fuel.Storage, in []byte) error { return s.Zero(x.ctx) },
			func(old, in []byte) []byte { return make([]byte, n) }},
		{"Fill", func(s, src *fuel.Storage, in []byte) error { return s.Fill(x.ctx, in[:16]) }, sixteen},
		{"FillRange", func(s, src *fuel.Storage, in []byte) error { return s.FillRange(x.ctx, 3, 7, in[:1]) },
			func(old, in []byte) []byte { repeat(old[3:10], in[:1]); return old }},
		{"CopyFrom", func(s, src *fuel.Storage, in []byte) error { return s.CopyFrom(x.ctx, src, nil) }, all},
		{"CopyRange", func(s, src *fuel.Storage, in []byte) error { return s.CopyRange(x.ctx, 1, src, 2, 3, nil) },
			func(old, in []byte) []byte { copy(old[1:4], in[2:]); return old }},
		{"CopyRange of itself", func(s, src *fuel.Storage, in []byte) error { return s.CopyRange(x.ctx, 1, s, 0, n-1, nil) },
			func(old, in []byte) []byte { copy(old[1:], old); return old }},
		{"Queue.Copy", func(s, src *fuel.Storage, in []byte) error { return queued(q.Copy(s, src)) }, all},
		{"Queue.Zero", func(s, src *fuel.Storage, in []byte) error { return queued(q.Zero(s)) },
			func(old, in []byte) []byte { return make([]byte, n) }},
		{"Queue.Fill", func(s, src *fuel.Storage, in []byte) error { return queued(q.Fill(s, in[:16])) }, sixteen},
	}
	if x.dev.Kind == fuel.CPU {
		writes = append(writes,
			write{"Mutate", func(s, src *fuel.Storage, in []byte) error {
				return s.Mutate(func(b []byte) error { copy(b, in); return nil })
			}, all},
			write{"MutableBytes", func(s, src *fuel.Storage, in []byte) error {
				b, err := s.MutableBytes()
				copy(b, in)
				return err
			}, all},
			write{"VisitMutable", func(s, src *fuel.Storage, in []byte) error {
				_, err := fuel.VisitMutable(s, &fuel.Cases[int]{CPU: func(m fuel.CPUMemory) (int, error) { return copy(m.Bytes, in), nil }})
				return err
			}, all},
		)
	}
	for _, w := range writes {
		old, in := x.random(n), x.random(n)
		s, src := x.from(old), x.from(in)
		c := x.must(s.Clone())
		window := x.must(s.View(1, 30))
		part := x.must(window.Clone())
		for round := range 2 { // the second time there is nothing to copy
			if err := w.do(s, src, in); err != nil {
				x.Fatalf("%s: %v", w.name, err)
			}
			want := w.want(slices.Clone(old), in)
			if round == 1 && w.name == "CopyRange of itself" {
				want = w.want(want, in)
			}
			x.holds(s, want, "%s, round %d", w.name, round)
			x.holds(window, want[1:31], "View after %s", w.name)
		}
		x.holds(c, old, "Clone after %s", w.name)
		x.holds(part, old[1:31], "Clone of a View after %s", w.name)
		x.holds(src, in, "source after %s", w.name)

		// And the other way: the clone writes.
		if err := w.do(c, src, in); err != nil {
			x.Fatalf("%s: %v", w.name, err)
		}
		x.holds(c, w.want(slices.Clone(old), in), "Clone after its own %s", w.name)
		x.holds(part, old[1:31], "Clone of a View after %s of another", w.name)
		x.close(s, src, c, window, part)
	}
}

func checkCloneOfView(x *subject) {
	const n = 5000
	model := x.random(n)
	s := x.from(model)
	v := x.must(s.View(1001, 333))
	c := x.must(v.Clone())
	x.close(v)
	if c.Len() != 333 {
		x.Errorf("the Clone of a View of 333 has %d", c.Len())
	}
	x.holds(c, model[1001:1334], "Clone of a View")
	w := x.must(c.View(10, 20)) // a View of it, from before its private copy
	b := x.random(5)
	_, err := w.WriteAt(b, 3)
	x.ok(err)
	part := slices.Clone(model[1001:1334])
	copy(part[13:], b)
	x.holds(c, part, "Clone of a View after a write to its View")
	x.holds(w, part[10:30], "View of the Clone of a View")
	x.holds(s, model, "Storage after a write to the Clone of its View")
	// A few more where that keeps the alignment.
	if r := c.Region(); r.Owners != 1 || r.Bytes < 333 || r.Bytes > 2*333 {
		x.Errorf("a private copy of 333 bytes of %d is a Region of %d", n, r.Bytes)
	}
	x.close(s)
	d := x.must(w.Clone())
	x.ok(c.Zero(x.ctx))
	x.holds(d, part[10:30], "Clone of a View of a Clone of a View")
	x.holds(w, make([]byte, 20), "its View after Zero")
	x.close(c, w, d)
}

func checkView(x *subject) {
	const n = 300
	model := x.random(n)
	s := x.from(model)
	early := x.must(s.View(10, 100))
	inner := x.must(early.View(5, 20))
	empty := x.must(s.View(n, 0))
	write := func(h *fuel.Storage, at, off, k int) {
		x.Helper()
		b := x.random(k)
		_, err := h.WriteAt(b, int64(off))
		x.ok(err)
		copy(model[at+off:], b)
	}
	same := func(when string) {
		x.Helper()
		x.holds(s, model, "Storage %s", when)
		x.holds(early, model[10:110], "View %s", when)
		x.holds(inner, model[15:35], "View of a View %s", when)
	}
	write(s, 0, 12, 7)
	same("after a write to the Storage")
	write(inner, 15, 3, 4)
	same("after a write to a View of a View")
	if s.ID() != early.ID() || s.ID() != inner.ID() {
		x.Errorf("a View has another ID than its Storage")
	}
	if s.Region().Owners != 1 {
		x.Errorf("Views count as %d owners", s.Region().Owners)
	}

	c := x.must(s.Clone())
	old := slices.Clone(model)
	id, version := s.ID(), s.Version()
	write(early, 10, 50, 9) // makes the private copy
	same("after a write to a View of shared memory")
	x.holds(c, old, "Clone after a write to a View")
	if s.ID() == id || s.Version() <= version || s.ID() != inner.ID() {
		x.Errorf("a write to a View left ID and version at %d, %d", s.ID(), s.Version())
	}
	late := x.must(s.View(0, 50))
	write(late, 0, 16, 4)
	write(s, 0, 20, 1)
	write(inner, 15, 0, 2)
	same("after several writes")
	x.holds(late, model[:50], "a View made after the private copy")

	// A View outlives its Storage.
	x.close(s, early)
	write(inner, 15, 1, 3)
	x.holds(inner, model[15:35], "a View without its Storage")
	x.holds(late, model[:50], "another View without its Storage")
	for _, r := range [][2]int{{-1, 1}, {0, 51}, {51, 0}, {50, 1}, {0, -1}} {
		_, err := late.View(r[0], r[1])
		x.is(err, fuel.ErrRange, "View(%d, %d) of 50", r[0], r[1])
	}
	x.close(inner, empty, late, c)
}

func checkOnePrivateCopy(x *subject) {
	const parts, size = 16, 1000
	for round := range 4 {
		old := x.random(parts * size)
		fresh := x.random(parts * size)
		s := x.from(old)
		c := x.must(s.Clone())
		views := make([]*fuel.Storage, parts)
		for i := range views {
			views[i] = x.must(s.View(i*size, size))
		}
		before := x.stats(x.dev).PrivateCopies
		var failed atomic.Pointer[error]
		each(parts, func(i int) {
			part := fresh[i*size : (i+1)*size]
			var err error
			switch (i + round) % 4 {
			case 0:
				_, err = s.WriteAt(part, int64(i*size))
			case 1:
				_, err = views[i].WriteAt(part, 0)
			case 2:
				_, err = views[i].ReadFrom(bytes.NewReader(part))
			case 3:
				for j := 0; j < size && err == nil; j += 100 {
					_, err = s.WriteAt(part[j:j+100], int64(i*size+j))
				}
			}
			if err != nil {
				failed.Store(&err)
			}
		})
		if err := failed.Load(); err != nil {
			x.Fatal(*err)
		}
		x.holds(s, fresh, "after writes to disjoint ranges at once")
		x.holds(c, old, "Clone after writes to disjoint ranges at once")
		if got := x.stats(x.dev).PrivateCopies - before; got != 1 {
			x.Errorf("%d private copies for one owner, want 1", got)
		}
		x.close(views...)
		x.close(s, c)
	}
}

func checkTake(x *subject) {
	model := x.random(100)
	s := x.from(model)
	v := x.must(s.View(10, 20))
	_, err := s.Take()
	x.is(err, fuel.ErrShared, "Take with a View")
	x.holds(s, model, "after a Take that was refused")
	x.close(v)

	id := s.ID()
	c := x.must(s.Clone()) // does not matter
	before := x.stats(x.dev)
	taken := x.must(s.Take())
	if now := x.stats(x.dev); now.Regions != before.Regions || now.InUse != before.InUse || now.PrivateCopies != before.PrivateCopies {
		x.Errorf("Take copied the bytes")
	}
	x.holds(taken, model, "after Take")
	if taken.ID() == id {
		x.Errorf("Take kept the ID")
	}
	x.is(s.Close(), fuel.ErrClosed, "Close after Take")
	_, err = s.Take()
	x.is(err, fuel.ErrClosed, "Take after Take")
	_, err = s.ReadAt(make([]byte, 1), 0)
	x.is(err, fuel.ErrClosed, "ReadAt after Take")
	x.ok(taken.Zero(x.ctx))
	x.holds(c, model, "Clone after a write to what was taken")
	x.close(c, taken)

	// The last View of an owner can be taken.
	s = x.from(model)
	v = x.must(s.View(10, 20))
	x.close(s)
	taken = x.must(v.Take())
	x.holds(taken, model[10:30], "a View that was taken")
	_, err = taken.WriteAt([]byte{1, 2, 3}, 17)
	x.ok(err)
	x.holds(taken, append(slices.Clone(model[10:27]), 1, 2, 3), "a write to a View that was taken")
	x.close(taken)
}

func checkReinterpret(x *subject) {
	model := x.random(64)
	s := x.from(model)
	f := x.must(s.Reinterpret(fuel.F32))
	bits := x.must(f.Reinterpret(fuel.U1))
	if f.Len() != 16 || f.DType() != fuel.F32 || bits.Len() != 512 {
		x.Errorf("64 bytes are %d f32 and %d u1", f.Len(), bits.Len())
	}
	c := x.must(s.Clone())
	b := x.random(8)
	v := x.must(f.View(3, 2))
	_, err := v.WriteAt(b, 0)
	x.ok(err)
	old := slices.Clone(model)
	copy(model[12:], b)
	x.holds(s, model, "after a write as f32")
	x.holds(bits, model, "as bits, after a write as f32")
	x.holds(c, old, "Clone after a write as f32")
	if s.ID() != f.ID() {
		x.Errorf("Reinterpret made another owner")
	}
	odd := x.must(s.View(0, 63))
	_, err = odd.Reinterpret(fuel.F16)
	x.is(err, fuel.ErrMismatch, "63 bytes as f16")
	_, err = odd.Reinterpret(0)
	x.is(err, fuel.ErrUnknownDType, "Reinterpret as an invalid dtype")
	blocks := x.must(s.View(0, 36))
	q := x.must(blocks.ReinterpretAs(fuel.F32, fuel.GGMLBlock(fuel.GGMLQ4_0)))
	if q.Len() != 64 || q.LenBytes() != 36 {
		x.Errorf("36 bytes of Q4_0 are %d elements", q.Len())
	}
	x.close(s, f, bits, c, v, odd, blocks, q)
}

func checkBundle(x *subject) {
	specs := []fuel.SlotSpec{
		{Name: "values", DType: fuel.F32, Len: 10},
		{Name: "none", DType: fuel.I64, Len: 0},
		{Name: "mask", DType: fuel.U1, Len: 13},
		{Name: "blocks", DType: fuel.F32, Len: 64, Encoding: fuel.GGMLBlock(fuel.GGMLQ4_0)},
		{Name: "last", DType: fuel.U8, Len: 3},
	}
	s := x.must(fuel.Compose(x.dev, specs))
	model := make([]byte, s.LenBytes())
	x.holds(s, model, "Compose")
	if s.Bundle().Len() != len(specs) {
		x.Fatalf("a bundle of %d has %d slots", len(specs), s.Bundle().Len())
	}
	end := 0
	slots := make([]*fuel.Storage, len(specs))
	for i, spec := range specs {
		info := s.Bundle().Slot(i)
		if info.SlotSpec != spec || info.Offset%64 != 0 || info.Offset < end {
			x.Errorf("slot %d is %+v, after %d bytes", i, info, end)
		}
		end = info.Offset + info.Bytes
		slots[i] = x.must(s.Slot(spec.Name))
		if h := slots[i]; h.DType() != spec.DType || h.Len() != spec.Len || h.LenBytes() != info.Bytes || h.Encoding() != spec.Encoding {
			x.Errorf("slot %q has %d %s in %d bytes", spec.Name, h.Len(), h.DType(), h.LenBytes())
		}
	}
	fillSlots := func(of []*fuel.Storage, bundle *fuel.Storage, model []byte) {
		for i, h := range of {
			b := x.random(h.LenBytes())
			_, err := h.WriteAt(b, 0)
			x.ok(err)
			copy(model[bundle.Bundle().Slot(i).Offset:], b)
		}
	}
	fillSlots(slots, s, model)
	x.holds(s, model, "a bundle after writes to all slots")

	for name, other := range map[string]*fuel.Storage{
		"Clone":  x.must(s.Clone()),
		"To CPU": x.must(s.To(x.ctx, fuel.Device{}, nil)),
	} {
		if other.Bundle().Len() != len(specs) {
			x.Fatalf("%s of a bundle has %d slots", name, other.Bundle().Len())
		}
		its := make([]*fuel.Storage, len(specs))
		for i := range its {
			its[i] = x.must(other.SlotAt(i))
		}
		theirs := slices.Clone(model)
		fillSlots(its, other, theirs)
		x.holds(other, theirs, "%s of a bundle after writes to its slots", name)
		x.holds(s, model, "a bundle after writes to the slots of its %s", name)
		x.close(its...)
		x.close(other)
	}
	_, err := s.Slot("absent")
	x.is(err, fuel.ErrMismatch, "a slot that is not there")
	_, err = s.SlotAt(len(specs))
	x.is(err, fuel.ErrRange, "slot %d of %d", len(specs), len(specs))
	_, err = s.SlotAt(-1)
	x.is(err, fuel.ErrRange, "slot -1")
	_, err = slots[0].Slot("values")
	x.is(err, fuel.ErrMismatch, "a slot of a slot")
	for _, bad := range [][]fuel.SlotSpec{
		{{Name: "", DType: fuel.U8}},
		{{Name: "a", DType: fuel.U8}, {Name: "a", DType: fuel.U8}},
	} {
		_, err := fuel.Compose(x.dev, bad)
		x.is(err, fuel.ErrMismatch, "Compose of %+v", bad)
	}
	_, err = fuel.Compose(x.dev, []fuel.SlotSpec{{Name: "a"}})
	x.is(err, fuel.ErrUnknownDType, "Compose of an invalid dtype")
	x.close(slots...)
	x.close(s)
}

// uses are all uses of a handle, with arguments that an open one accepts.
// Each returns the error of the use, and other is an open handle like it.
func (x *subject) uses() map[string]func(s, other *fuel.Storage) error {
	q, err := fuel.QueueOf(x.dev)
	x.ok(err)
	only := func(_ any, err error) error { return err }
	handle := func(h *fuel.Storage, err error) error {
		if err != nil {
			return err
		}
		return h.Close()
	}
	uses := map[string]func(s, other *fuel.Storage) error{
		"Clone":                func(s, _ *fuel.Storage) error { return handle(s.Clone()) },
		"View":                 func(s, _ *fuel.Storage) error { return handle(s.View(0, 1)) },
		"View of nothing":      func(s, _ *fuel.Storage) error { return handle(s.View(0, 0)) },
		"Reinterpret":          func(s, _ *fuel.Storage) error { return handle(s.Reinterpret(fuel.I8)) },
		"ReinterpretAs":        func(s, _ *fuel.Storage) error { return handle(s.ReinterpretAs(fuel.I8, fuel.Plain())) },
		"ReadAt":               func(s, _ *fuel.Storage) error { return only(s.ReadAt(make([]byte, 1), 0)) },
		"ReadAt of nothing":    func(s, _ *fuel.Storage) error { return only(s.ReadAt(nil, 0)) },
		"WriteAt":              func(s, _ *fuel.Storage) error { return only(s.WriteAt(make([]byte, 1), 0)) },
		"WriteAt of nothing":   func(s, _ *fuel.Storage) error { return only(s.WriteAt(nil, 0)) },
		"WriteTo":              func(s, _ *fuel.Storage) error { return only(s.WriteTo(io.Discard)) },
		"ReadFrom":             func(s, _ *fuel.Storage) error { return only(s.ReadFrom(bytes.NewReader(make([]byte, 64)))) },
		"Zero":                 func(s, _ *fuel.Storage) error { return s.Zero(x.ctx) },
		"Fill":                 func(s, _ *fuel.Storage) error { return s.Fill(x.ctx, []byte{1}) },
		"FillRange":            func(s, _ *fuel.Storage) error { return s.FillRange(x.ctx, 0, 1, []byte{1}) },
		"FillRange of nothing": func(s, _ *fuel.Storage) error { return s.FillRange(x.ctx, 1, 0, []byte{1}) },
		"CopyFrom":             func(s, o *fuel.Storage) error { return s.CopyFrom(x.ctx, o, nil) },
		"CopyFrom as source":   func(s, o *fuel.Storage) error { return o.CopyFrom(x.ctx, s, nil) },
		"CopyRange":            func(s, o *fuel.Storage) error { return s.CopyRange(x.ctx, 0, o, 0, 1, nil) },
		"CopyRange of nothing": func(s, o *fuel.Storage) error { return s.CopyRange(x.ctx, 0, o, 0, 0, nil) },
		"CopyRange as source":  func(s, o *fuel.Storage) error { return o.CopyRange(x.ctx, 0, s, 0, 1, nil) },
		"To the same":          func(s, _ *fuel.Storage) error { return handle(s.To(x.ctx, x.dev, nil)) },
		"To the CPU":           func(s, _ *fuel.Storage) error { return handle(s.To(x.ctx, fuel.Device{}, nil)) },
		"Equal":                func(s, o *fuel.Storage) error { return only(s.Equal(x.ctx, o)) },
		"Equal as argument":    func(s, o *fuel.Storage) error { return only(o.Equal(x.ctx, s)) },
		"Checksum":             func(s, _ *fuel.Storage) error { return only(s.Checksum(x.ctx)) },
		"Visit":                func(s, _ *fuel.Storage) error { return only(fuel.Visit(s, sizes{})) },
		"VisitMutable":         func(s, _ *fuel.Storage) error { return only(fuel.VisitMutable(s, sizes{})) },
		"UsedUntil":            func(s, _ *fuel.Storage) error { return s.UsedUntil(fuel.Point{}) },
		"Queue.Copy":           func(s, o *fuel.Storage) error { return only(q.Copy(s, o)) },
		"Queue.Copy as source": func(s, o *fuel.Storage) error { return only(q.Copy(o, s)) },
		"Queue.Zero":           func(s, _ *fuel.Storage) error { return only(q.Zero(s)) },
		"Queue.Fill":           func(s, _ *fuel.Storage) error { return only(q.Fill(s, []byte{1})) },
		"Slot":                 func(s, _ *fuel.Storage) error { return handle(s.Slot("all")) },
		"SlotAt":               func(s, _ *fuel.Storage) error { return handle(s.SlotAt(0)) },
	}
	if x.dev.Kind == fuel.CPU {
		uses["Bytes"] = func(s, _ *fuel.Storage) error { return only(s.Bytes()) }
		uses["MutableBytes"] = func(s, _ *fuel.Storage) error { return only(s.MutableBytes()) }
		uses["Use"] = func(s, _ *fuel.Storage) error { return s.Use(func([]byte) error { return nil }) }
		uses["Mutate"] = func(s, _ *fuel.Storage) error { return s.Mutate(func([]byte) error { return nil }) }
		uses["Slice"] = func(s, _ *fuel.Storage) error { return only(fuel.Slice[uint8](s)) }
		uses["MutableSlice"] = func(s, _ *fuel.Storage) error { return only(fuel.MutableSlice[uint8](s)) }
	}
	return uses
}

// closedFirst looks that a closed handle says so also where the arguments are
// wrong.
func (x *subject) closedFirst(s, other *fuel.Storage) {
	x.Helper()
	q := x.queue()
	short := x.must(other.View(0, 3))
	defer x.close(short)
	only := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"ReadAt":               only(s.ReadAt(nil, -1)),
		"WriteAt":              only(s.WriteAt(nil, -1)),
		"View":                 only(s.View(65, 1)),
		"Reinterpret":          only(s.Reinterpret(0)),
		"FillRange":            s.FillRange(x.ctx, 65, 1, []byte{1}),
		"Fill":                 s.Fill(x.ctx, nil),
		"CopyFrom":             s.CopyFrom(x.ctx, short, nil),
		"CopyFrom as source":   short.CopyFrom(x.ctx, s, nil),
		"CopyRange":            s.CopyRange(x.ctx, 65, short, 0, 1, nil),
		"Slot":                 only(s.Slot("absent")),
		"SlotAt":               only(s.SlotAt(-1)),
		"Queue.Copy":           only(q.Copy(s, short)),
		"Queue.Copy as source": only(q.Copy(short, s)),
		"Queue.Fill":           only(q.Fill(s, nil)),
		"Slice":                only(fuel.Slice[float32](s)),
		"Mutate":               s.Mutate(nil),
		"Bytes":                only(s.Bytes()),
		"Equal":                only(s.Equal(x.ctx, short)),
	} {
		x.is(err, fuel.ErrClosed, "%s of a closed handle with wrong arguments", name)
	}
}

func checkClosed(x *subject) {
	spec := []fuel.SlotSpec{{Name: "all", DType: fuel.U8, Len: 64}}
	other := x.must(fuel.Compose(x.dev, spec))
	s := x.must(fuel.Compose(x.dev, spec))
	for name, use := range x.uses() {
		if err := use(s, other); err != nil {
			x.Errorf("%s of an open handle: %v", name, err)
		}
	}
	// Open handles of the same owner, and the same memory, must not matter.
	view, clone := x.must(s.View(0, 64)), x.must(s.Clone())
	x.close(s)
	for range 2 {
		for name, use := range x.uses() {
			x.is(use(s, other), fuel.ErrClosed, "%s of a closed handle", name)
		}
		x.closedFirst(s, other)
		x.is(s.Close(), fuel.ErrClosed, "second Close")
		_, err := s.Take()
		x.is(err, fuel.ErrClosed, "Take of a closed handle")
		if s.Region() != (fuel.RegionInfo{}) {
			x.Errorf("the Region of a closed handle is %+v", s.Region())
		}
		if s.Len() != 64 || s.DType() != fuel.U8 || s.Device() != x.dev || s.LenBytes() != 64 {
			x.Errorf("a closed handle forgot what it was")
		}
		_, _, _, _ = s.ID(), s.Version(), s.Alignment(), s.Encoding() // do not panic
	}
	model := x.random(64)
	_, err := view.WriteAt(model, 0)
	x.ok(err)
	x.holds(view, model, "a View after its Storage was closed")
	x.close(view)
	x.ok(clone.Zero(x.ctx))
	x.close(clone)

	// And once nothing of it is open any more.
	for name, use := range x.uses() {
		x.is(use(s, other), fuel.ErrClosed, "%s of a handle whose memory is gone", name)
	}
	x.close(other)
}

func checkCloseWhileRunning(x *subject) {
	const half = 128 << 10
	rounds := 12
	if x.short {
		rounds = 4
	}
	model := x.random(2*half + 5)
	for round := range rounds {
		s := x.from(model)
		keep := x.must(s.Clone())
		view := x.must(s.View(1, half-1))
		src := x.from(model)
		each(6, func(i int) {
			var err error
			for err == nil {
				switch i {
				case 0: // closes
					if round%2 == 0 {
						_, _ = view.Checksum(x.ctx) // let the others begin
					}
					if err := s.Close(); err != nil {
						x.Errorf("Close while others run: %v", err)
					}
					if err := view.Close(); err != nil {
						x.Errorf("Close of a View while others run: %v", err)
					}
					return
				case 1: // writes the second half
					err = s.CopyRange(x.ctx, half, src, half, half+5, nil)
				case 2: // the others read the first
					_, err = s.ReadAt(make([]byte, half), 0)
				case 3:
					_, err = view.Checksum(x.ctx)
				case 4:
					var c *fuel.Storage
					if c, err = s.Clone(); err == nil {
						err = c.Close()
					}
				case 5:
					var to *fuel.Storage
					if to, err = src.Clone(); err == nil {
						err = errors.Join(to.CopyRange(x.ctx, 0, s, 0, half, nil), to.Close())
					}
				}
			}
			if !errors.Is(err, fuel.ErrClosed) {
				x.Errorf("use %d while another closes: %v", i, err)
			}
		})
		x.holds(keep, model, "Clone of what was closed while others ran")
		x.holds(src, model, "source of what was closed while others ran")
		x.close(keep, src)
	}
}

func checkLoad(x *subject) {
	const n = 4099
	workers, rounds := 64, 24
	if x.short {
		workers, rounds = 16, 12
	}
	shared := x.random(n)
	parent := x.from(shared)
	q, err := fuel.QueueOf(x.dev)
	x.ok(err)
	seeds := make([]uint64, workers)
	for i := range seeds {
		seeds[i] = x.rng.Uint64()
	}
	each(workers, func(i int) {
		if err := load(x.ctx, x, q, parent, shared, seeds[i], rounds); err != nil {
			x.Errorf("goroutine %d: %v", i, err)
		}
	})
	x.holds(parent, shared, "what all goroutines cloned")
	x.close(parent)
}

// load does what comes to its mind with Storages of its own, and compares them
// with a plain slice.
func load(ctx context.Context, x *subject, q *fuel.Queue, parent *fuel.Storage, shared []byte, seed uint64, rounds int) error {
	rng := newRand(seed)
	s, err := parent.Clone()
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // an error before matters more
	model := slices.Clone(shared)
	for range rounds {
		off := rng.IntN(len(model))
		n := rng.IntN(len(model) - off + 1)
		if rng.IntN(2) == 0 {
			n = min(n, 9)
		}
		b := []byte{byte(rng.Uint32())}
		switch rng.IntN(10) {
		case 0:
			err = s.FillRange(ctx, off, n, b)
			repeat(model[off:off+n], b)
		case 1:
			part := bytes.Repeat(b, n)
			_, err = s.WriteAt(part, int64(off))
			copy(model[off:], part)
		case 2:
			err = s.CopyRange(ctx, off, parent, 0, n, nil)
			copy(model[off:], shared[:n])
		case 3:
			var c *fuel.Storage
			if c, err = s.Clone(); err == nil {
				err = errors.Join(s.Close(), c.FillRange(ctx, 0, 1, b))
				model[0] = b[0]
				s = c
			}
		case 4:
			var v *fuel.Storage
			if v, err = s.View(off, n); err == nil {
				err = errors.Join(v.Zero(ctx), v.Close())
				clear(model[off : off+n])
			}
		case 5:
			var host, back *fuel.Storage
			if host, err = s.To(ctx, fuel.Device{}, nil); err == nil {
				if back, err = host.To(ctx, x.dev, nil); err == nil {
					err = s.Close()
					s = back
				}
				err = errors.Join(err, host.Close())
			}
		case 6:
			var p fuel.Point
			if p, err = q.Copy(s, parent); err == nil && rng.IntN(2) == 0 {
				err = q.Wait(ctx, p)
			}
			copy(model, shared)
		case 7:
			_, err = q.Fill(s, b)
			repeat(model, b)
		case 8:
			var t *fuel.Storage
			if t, err = s.Take(); err == nil {
				s = t
			}
		case 9:
			err = s.CopyRange(ctx, 0, s, off, n, nil)
			copy(model, model[off:off+n])
		}
		if err != nil {
			return err
		}
		got := make([]byte, len(model))
		if _, err := s.ReadAt(got, 0); err != nil {
			return err
		}
		if !bytes.Equal(got, model) {
			return errors.New("bytes differ from those of the model")
		}
	}
	return nil
}

package fueltest

import (
	"bytes"
	"errors"
	"slices"
	"sync"

	"github.com/go-fuel/fuel"
)

// pinned returns a Storage of host memory with a copy of b that is page-locked
// for the device where it can be, and whether it is.
func (x *subject) pinned(b []byte) (*fuel.Storage, bool) {
	x.Helper()
	s := x.must(fuel.Alloc(fuel.Device{}, fuel.U8, len(b), &fuel.Options{Pinned: x.dev}))
	x.holds(s, make([]byte, len(b)), "%d new bytes of page-locked memory", len(b))
	in := s.Region()
	if len(b) > 0 && in.Pinned != (in.PinnedRefused == "") || in.Pinned && in.Memory != fuel.MemoryAnonymous {
		x.Errorf("page-locking for %s was asked for, and the Region is %+v", x.dev, in)
	}
	if a := s.Alignment(); a < 64 {
		x.Errorf("page-locked memory has an alignment of %d", a)
	}
	_, err := s.WriteAt(b, 0)
	x.ok(err)
	return s, in.Pinned
}

// checkPin looks that page-locked memory is as other host memory, whether the
// device takes it or not, and that what it is used for ends before a copy
// returns.
func checkPin(x *subject) {
	if x.dev.Kind == fuel.CPU {
		s := x.must(fuel.Alloc(x.dev, fuel.U8, 5, nil))
		x.is(s.Pin(x.ctx, x.dev), fuel.ErrMismatch, "Pin for the CPU")
		x.close(s)
		return
	}
	can := false
	for _, n := range []int{0, 1, 5000, 1<<20 + 3} {
		can = x.pinOne(n) || can
	}
	x.pinMemory()

	s := x.from(x.random(100))
	x.is(s.Pin(x.ctx, x.dev), fuel.ErrNotHost, "Pin of a device's memory")
	x.close(s)
	x.is(s.Pin(x.ctx, x.dev), fuel.ErrClosed, "Pin of a closed Storage")
	_, err := fuel.Alloc(x.dev, fuel.U8, 1, &fuel.Options{Pinned: x.dev})
	x.is(err, fuel.ErrMismatch, "page-locked memory on a device")
	s, err = fuel.Alloc(fuel.Device{}, fuel.U8, 100, &fuel.Options{Pinned: x.dev, PinnedOnly: true})
	if err == nil {
		if !s.Region().Pinned {
			x.Errorf("PinnedOnly returned %+v", s.Region())
		}
		x.close(s)
	} else {
		x.is(err, fuel.ErrPinned, "PinnedOnly")
	}
	if got := err == nil; got != can {
		x.Errorf("PinnedOnly: %v, and others were page-locked: %v", err, can)
	}
}

// pinOne uses n bytes of page-locked memory, and returns whether they were.
func (x *subject) pinOne(n int) bool {
	b := x.random(n)
	s, pinned := x.pinned(b)

	// To the device and back, and the source changes as soon as it may.
	there := x.must(s.To(x.ctx, x.dev, nil))
	x.ok(s.Fill(x.ctx, []byte{0xE1}))
	x.holds(there, b, "%d bytes from page-locked memory that changed then", n)
	x.ok(there.CopyFrom(x.ctx, s, nil))
	x.ok(s.Zero(x.ctx))
	x.holds(there, bytes.Repeat([]byte{0xE1}, n), "page-locked memory that was cleared then")
	_, err := there.WriteAt(b, 0)
	x.ok(err)
	x.ok(s.CopyFrom(x.ctx, there, nil))
	x.holds(s, b, "%d bytes to page-locked memory", n)
	if n < 100 {
		x.close(s, there)
		return pinned
	}

	// Parts at any place, beside what must stay.
	model := slices.Clone(b)
	for range 20 {
		to, from := x.rng.IntN(n-90), x.rng.IntN(n-90)
		k := 1 + x.rng.IntN(90)
		if x.rng.IntN(4) == 0 {
			k = min(n-to, n-from)
		}
		x.ok(s.CopyRange(x.ctx, to, there, from, k, nil))
		copy(model[to:to+k], b[from:])
		x.holds(s, model, "page-locked memory after %d bytes from %d to %d", k, from, to)
		x.ok(there.CopyRange(x.ctx, from, s, to, k, nil)) // what is there
		x.holds(there, b, "the device after %d bytes from %d to %d", k, to, from)
	}

	// Report 41 (pytorch#132485): a Clone is a Clone.
	clone := x.must(s.Clone())
	view := x.must(clone.View(7, n-7))
	_, err = s.WriteAt([]byte{^model[3]}, 3)
	x.ok(err)
	x.holds(clone, model, "a Clone of page-locked memory")
	x.holds(view, model[7:], "a View of a Clone of page-locked memory")
	if in := s.Region(); in.Pinned != pinned && in.PinnedRefused == "" {
		x.Errorf("a private copy of page-locked memory is %+v", in)
	}
	model[3] = ^model[3]
	x.ok(there.CopyFrom(x.ctx, s, nil))
	x.holds(there, model, "bytes from a private copy of page-locked memory")
	x.close(s, clone)
	x.ok(there.CopyRange(x.ctx, 7, view, 0, n-7, nil))
	x.close(view)

	// Several at once, in both directions.
	s, _ = x.pinned(b)
	var wg sync.WaitGroup
	const parts = 8
	for i := range parts {
		begin, end := i*n/parts, (i+1)*n/parts
		wg.Go(func() {
			var err error
			for range 3 {
				err = errors.Join(err, there.CopyRange(x.ctx, begin, s, begin, end-begin, nil), s.CopyRange(x.ctx, begin, there, begin, end-begin, nil))
			}
			if err != nil {
				x.Error(err)
			}
		})
	}
	wg.Wait()
	x.holds(there, b, "bytes that went to and fro")
	x.holds(s, b, "page-locked bytes that went to and fro")
	x.close(s, there)
	return pinned
}

// pinMemory page-locks memory that is there.
func (x *subject) pinMemory() {
	kinds := map[string]func(b []byte) *fuel.Storage{
		"a large Storage": func(b []byte) *fuel.Storage { return x.must(fuel.FromBytes(fuel.Device{}, fuel.U8, b)) },
		"a small Storage": func(b []byte) *fuel.Storage { return x.must(fuel.FromBytes(fuel.Device{}, fuel.U8, b[:100])) },
		"wrapped memory": func(b []byte) *fuel.Storage { // of whole pages, where large blocks are
			under := x.must(fuel.FromBytes(fuel.Device{}, fuel.U8, b))
			mem, err := under.Bytes()
			x.ok(err)
			return x.must(fuel.Wrap(fuel.U8, mem[:len(mem)&^(1<<16-1)], func() { x.close(under) }))
		},
		"wrapped bytes within a page": func(b []byte) *fuel.Storage { return x.must(fuel.Wrap(fuel.U8, b[1:len(b)-1], nil)) },
		"a mapped file":               func(b []byte) *fuel.Storage { s, in := x.mapped(len(b), 5); copy(b, in); return s },
	}
	for name, kind := range kinds {
		b := x.random(2<<20 + 1)
		s := kind(b)
		want := x.content(s)
		part := x.must(s.View(s.LenBytes()/2, s.LenBytes()/4))
		err := part.Pin(x.ctx, x.dev)
		if err != nil {
			x.is(err, fuel.ErrPinned, "Pin of %s", name)
		} else if err := s.Pin(x.ctx, x.dev); err != nil {
			x.Errorf("the second Pin of %s: %v", name, err)
		}
		if in := s.Region(); in.Pinned != (err == nil) {
			x.Errorf("Pin of %s: %v, and the Region is %+v", name, err, in)
		}
		if err == nil && (name == "wrapped bytes within a page" || name == "a mapped file") {
			x.Errorf("Pin of %s succeeded", name)
		}
		there := x.must(s.To(x.ctx, x.dev, nil))
		x.holds(there, want, "the device's copy of %s", name)
		clone := x.must(s.Clone())
		x.ok(s.Fill(x.ctx, []byte{0x5E}))
		x.holds(clone, want, "a Clone of %s that was page-locked", name)
		x.ok(s.CopyFrom(x.ctx, there, nil))
		x.holds(s, want, "%s, back from the device", name)
		x.close(part, s, there, clone)
	}
}

package fueltest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-fuel/fuel"
)

func (x *subject) queue() *fuel.Queue {
	x.Helper()
	q, err := fuel.QueueOf(x.dev)
	x.ok(err)
	return q
}

// queued ends the test where work could not be queued.
func (x *subject) queued(p fuel.Point, err error) fuel.Point {
	x.Helper()
	x.ok(err)
	return p
}

func checkQueue(x *subject) {
	q := x.queue()
	if q.Device() != x.dev {
		x.Errorf("the Queue of %s is of %s", x.dev, q.Device())
	}
	if !q.Done(fuel.Point{}) || q.Wait(x.ctx, fuel.Point{}) != nil {
		x.Errorf("the zero Point has not passed")
	}
	for _, n := range []int{1, 16, 4097, 64 << 10} {
		a, b := x.random(n), x.random(n)
		s, t, u := x.from(a), x.from(b), x.must(fuel.AllocUninit(x.dev, fuel.U8, n, nil))
		// In order: u has the old bytes of t, t those of s, s a pattern.
		points := []fuel.Point{
			x.queued(q.Zero(u)),
			x.queued(q.Copy(u, t)),
			x.queued(q.Copy(t, s)),
			x.queued(q.Fill(s, []byte{9})),
		}
		x.ok(q.Wait(x.ctx, points[3]))
		for i, p := range points {
			if !q.Done(p) {
				x.Errorf("work %d has not passed, and a later one has", i)
			}
			x.ok(q.Wait(x.ctx, p))
		}
		x.holds(u, b, "first of a chain of %d bytes", n)
		x.holds(t, a, "second of a chain of %d bytes", n)
		x.holds(s, bytes.Repeat([]byte{9}, n), "third of a chain of %d bytes", n)
		x.close(s, t, u)
	}

	// Several values for a device are one Queue, also for several goroutines.
	const parts = 16
	s := x.must(fuel.Alloc(x.dev, fuel.U8, 5*parts, nil))
	model := make([]byte, 5*parts)
	points := make([]fuel.Point, parts)
	each(parts, func(i int) {
		q, err := fuel.QueueOf(x.dev)
		x.check(err)
		v, err := s.View(5*i, 5)
		x.check(err)
		points[i], err = q.Fill(v, []byte{byte(i + 1)})
		x.check(err)
		x.check(v.Close())
		repeat(model[5*i:5*i+5], []byte{byte(i + 1)})
	})
	for _, p := range points {
		x.ok(q.Wait(x.ctx, p))
	}
	x.holds(s, model, "after work from several goroutines")
	x.close(s)
}

func checkQueueAndStorages(x *subject) {
	q := x.queue()
	const n = 5001
	for range 8 {
		a, b, c := x.random(n), x.random(n), x.random(n)
		s, t := x.from(a), x.from(b)
		earlier := x.must(t.Clone())
		x.queued(q.Copy(t, s))
		later := x.must(t.Clone())

		// Storage methods come after what was queued.
		x.holds(t, a, "after Queue.Copy, without a wait")
		x.queued(q.Copy(t, s))
		_, err := s.WriteAt(c, 0) // what was queued reads the old bytes
		x.ok(err)
		x.holds(t, a, "after a write to the source of queued work")
		x.queued(q.Zero(t))
		_, err = t.WriteAt(c[:7], 3)
		x.ok(err)
		model := make([]byte, n)
		copy(model[3:], c[:7])
		x.holds(t, model, "after a write to the destination of queued work")

		x.holds(earlier, b, "Clone made before work was queued")
		x.holds(later, a, "Clone made after work was queued")

		// Work goes on when the handles are closed.
		u := x.must(fuel.AllocUninit(x.dev, fuel.U8, n, nil))
		x.queued(q.Copy(u, later))
		view := x.must(u.View(0, n))
		x.close(later, u)
		p := x.queued(q.Zero(s))
		x.close(s)
		gone := x.from(c)
		x.queued(q.Copy(gone, earlier))
		x.close(gone)
		x.ok(q.Wait(x.ctx, p))
		x.holds(view, a, "what was queued before its handles were closed")
		x.ok(view.UsedUntil(p))
		x.ok(view.UsedUntil(fuel.Point{}))
		x.close(view, t, earlier)
	}

	// Views and ranges.
	model := x.random(n)
	s := x.from(model)
	v, w := x.must(s.View(1, 500)), x.must(s.View(1001, 500))
	c := x.must(s.Clone())
	p := x.queued(q.Copy(v, w))
	x.ok(q.Wait(x.ctx, p))
	want := slices.Clone(model)
	copy(want[1:501], model[1001:1501])
	x.holds(s, want, "Queue.Copy between Views of shared memory")
	x.holds(c, model, "Clone after Queue.Copy between Views")
	p = x.queued(q.Fill(w, []byte{1, 2, 3, 4}))
	x.ok(q.Wait(x.ctx, p))
	repeat(want[1001:1501], []byte{1, 2, 3, 4})
	x.holds(s, want, "Queue.Fill of a View")
	x.close(s, v, w, c)
}

func checkQueueErrors(x *subject) {
	q := x.queue()
	model := x.random(12)
	s, short := x.from(model), x.from(make([]byte, 4))
	f := x.must(s.Reinterpret(fuel.F32))
	_, err := q.Copy(s, short)
	x.is(err, fuel.ErrMismatch, "Queue.Copy of another length")
	_, err = q.Copy(s, f)
	x.is(err, fuel.ErrMismatch, "Queue.Copy of another dtype")
	_, err = q.Fill(s, []byte{1, 2, 3})
	x.is(err, fuel.ErrMismatch, "Queue.Fill with a pattern of 3")
	_, err = q.Fill(s, make([]byte, 8))
	x.is(err, fuel.ErrMismatch, "Queue.Fill of 12 bytes with a pattern of 8")
	x.holds(s, model, "after refused work")

	canceled, cancel := context.WithCancel(x.ctx)
	cancel()
	p := x.queued(q.Zero(s))
	if err := q.Wait(canceled, p); err != nil { // nil where the work was done
		x.is(err, context.Canceled, "Wait with a canceled context")
	}
	x.ok(q.Wait(x.ctx, p))
	x.holds(s, make([]byte, 12), "work whose wait was given up")

	for _, dev := range x.places() {
		if dev == x.dev {
			continue
		}
		other := x.must(fuel.FromBytes(dev, fuel.U8, model))
		_, err = q.Copy(other, s)
		x.is(err, fuel.ErrMismatch, "Queue.Copy to %s", dev)
		_, err = q.Copy(s, other)
		x.is(err, fuel.ErrMismatch, "Queue.Copy from %s", dev)
		_, err = q.Zero(other)
		x.is(err, fuel.ErrMismatch, "Queue.Zero on %s", dev)
		x.is(other.UsedUntil(p), fuel.ErrMismatch, "UsedUntil a Point of another device")
		theirs, err := fuel.QueueOf(dev)
		x.ok(err)
		for name, f := range map[string]func(){
			"Done": func() { theirs.Done(p) },
			"Wait": func() { _ = theirs.Wait(x.ctx, p) },
		} {
			if !panics(f) {
				x.Errorf("%s of a Point of another Queue does not panic", name)
			}
		}
		x.close(other)
	}
	x.close(s, short, f)
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// external returns work outside fuel that the device can wait for, and what
// ends it; that may be called again.
func (x *subject) external() (e fuel.External, finish func()) {
	x.Helper()
	if x.dev.Kind == fuel.CPU {
		c := make(chan struct{})
		return fuel.External{Done: c}, sync.OnceFunc(func() { close(c) })
	}
	f := fakeOf(x.dev.Kind)
	if f == nil {
		x.Skipf("there is no work outside fuel for %s that this suite could start", x.dev)
	}
	h, signal := f.Event()
	return fuel.External{Handle: h}, signal
}

func checkExternal(x *subject) {
	q := x.queue()
	e, finish := x.external()
	model := x.random(100)
	s, t := x.from(model), x.must(fuel.Alloc(x.dev, fuel.U8, 100, nil))
	used := x.from(model)
	before := x.queued(q.Fill(t, []byte{1}))
	x.ok(q.Wait(x.ctx, before))
	p := x.queued(q.WaitExternal(e))
	after := x.queued(q.Copy(t, s))
	if q.Done(p) || q.Done(after) {
		x.Errorf("work has passed that external work is to come before")
	}
	brief, cancel := context.WithTimeout(x.ctx, time.Millisecond)
	rescue := time.AfterFunc(patience, finish) // from a Wait that does not look at its context
	err := q.Wait(brief, after)
	rescue.Stop()
	cancel()
	x.is(err, context.DeadlineExceeded, "Wait for work that cannot begin")

	// Memory that external work uses stays.
	x.ok(used.UsedUntil(p))
	x.close(used, s) // s is in use by the copy
	if x.dev.Kind == fuel.CPU {
		// Not the queue's business, so it does not wait.
		mine := x.from(model)
		x.holds(mine, model, "a Storage that no queued work uses")
		x.close(mine)
	}
	if q.Done(p) {
		x.Errorf("closing Storages let work pass")
	}
	finish()
	x.ok(q.Wait(x.ctx, after))
	if !q.Done(p) {
		x.Errorf("work has passed, and external work before it has not")
	}
	x.holds(t, model, "a copy after external work")
	x.close(t)
}

func checkVisit(x *subject) {
	const n = 200
	model := x.random(n)
	s := x.from(model)
	c := x.must(s.Clone())
	v := x.must(s.View(40, 100))
	for name, h := range map[string]*fuel.Storage{"Storage": s, "View": v, "Clone": c} {
		if size, err := fuel.Visit(h, sizes{}); size != h.LenBytes() || err != nil {
			x.Errorf("Visit of a %s of %d bytes: %d, %v", name, h.LenBytes(), size, err)
		}
	}
	before := x.stats(x.dev).PrivateCopies
	at := func(h *fuel.Storage) place {
		x.Helper()
		p, err := fuel.Visit(h, places{})
		x.ok(err)
		if p.kind != x.dev.Kind {
			x.Errorf("Visit on %s came to the case of %s", x.dev, p.kind)
		}
		return p
	}
	if x.stats(x.dev).PrivateCopies != before || at(s) != at(c) {
		x.Errorf("Visit made a private copy")
	}
	if d := at(v).address - at(s).address; x.dev.Kind != fuel.CPU && d != 40 {
		x.Errorf("a View of byte 40 on is %d bytes behind its Storage", d)
	}
	id, version := s.ID(), s.Version()
	there, err := fuel.VisitMutable(v, places{})
	x.ok(err)
	if x.dev.Kind != fuel.CPU && (at(v) != there || at(s) == at(c)) {
		x.Errorf("VisitMutable left the memory shared")
	}
	if got := x.stats(x.dev).PrivateCopies - before; got != 1 {
		x.Errorf("VisitMutable of shared memory made %d private copies", got)
	}
	if s.ID() == id || s.Version() <= version {
		x.Errorf("VisitMutable is no mutation")
	}
	x.holds(s, model, "after VisitMutable")
	x.holds(c, model, "Clone after VisitMutable")

	// Errors come back as they are.
	mine := errors.New("mine")
	if _, err := fuel.Dispatch(s, fuel.Cases[int]{
		CPU:    func(fuel.CPUMemory) (int, error) { return 0, mine },
		CUDA:   func(fuel.CUDAMemory) (int, error) { return 0, mine },
		Vulkan: func(fuel.VulkanMemory) (int, error) { return 0, mine },
		Metal:  func(fuel.MetalMemory) (int, error) { return 0, mine },
	}); err != mine {
		x.Errorf("Dispatch turned an error into %v", err)
	}
	if _, err := fuel.Dispatch(s, fuel.Cases[int]{}); !errors.Is(err, fuel.ErrUnsupportedKind) {
		x.Errorf("Dispatch without a case: %v", err)
	}
	x.close(s, c, v)
}

// A place is where memory is.
type place struct {
	kind    fuel.Kind
	buffer  uint64
	address uint64
}

// places is a Visitor that tells the place.
type places struct{}

func (places) VisitCPU(fuel.CPUMemory) (place, error) { return place{kind: fuel.CPU}, nil }

func (places) VisitCUDA(m fuel.CUDAMemory) (place, error) {
	return place{kind: fuel.CUDA, address: m.Pointer}, nil
}

func (places) VisitVulkan(m fuel.VulkanMemory) (place, error) {
	return place{fuel.Vulkan, m.Buffer, m.Offset}, nil
}

func (places) VisitMetal(m fuel.MetalMemory) (place, error) {
	return place{fuel.Metal, uint64(m.Buffer), m.Offset}, nil
}

func checkHostAccess(x *subject) {
	if x.dev.Kind == fuel.CPU {
		checkOnHost(x)
		return
	}
	s := x.must(fuel.Alloc(x.dev, fuel.U8, 10, nil))
	nothing := func([]byte) error { x.Error("the function was called"); return nil }
	_, err := s.Bytes()
	x.is(err, fuel.ErrNotHost, "Bytes")
	_, err = s.MutableBytes()
	x.is(err, fuel.ErrNotHost, "MutableBytes")
	_, err = fuel.Slice[uint8](s)
	x.is(err, fuel.ErrNotHost, "Slice")
	_, err = fuel.MutableSlice[uint8](s)
	x.is(err, fuel.ErrNotHost, "MutableSlice")
	_, err = fuel.Convert(x.Context(), s, fuel.F32, nil)
	x.is(err, fuel.ErrNotHost, "Convert")
	x.is(s.Use(nothing), fuel.ErrNotHost, "Use")
	x.is(s.Mutate(nothing), fuel.ErrNotHost, "Mutate")
	if s.Region().Memory != fuel.MemoryDevice {
		x.Errorf("memory on %s is %s", x.dev, s.Region().Memory)
	}
	x.close(s)
}

func checkOnHost(x *subject) {
	model := x.random(64)
	s := x.from(model)
	c := x.must(s.Clone())
	b, err := s.Bytes()
	x.ok(err)
	x.same(b, model, "Bytes")
	x.ok(s.Use(func(b []byte) error { x.same(b, model, "Use"); return nil }))
	m, err := s.MutableBytes()
	x.ok(err)
	m[3]++
	x.holds(c, model, "Clone after a write through MutableBytes")
	want := slices.Clone(model)
	want[3]++
	x.holds(s, want, "after a write through MutableBytes")
	mine := errors.New("mine")
	if err := s.Mutate(func(b []byte) error { b[4]++; return mine }); err != mine {
		x.Errorf("Mutate turned an error into %v", err)
	}
	want[4]++
	x.holds(s, want, "after Mutate")
	f := x.must(s.Reinterpret(fuel.F64))
	if v, err := fuel.Slice[float64](f); len(v) != 8 || err != nil {
		x.Errorf("Slice of 8 f64: %d, %v", len(v), err)
	}
	_, err = fuel.Slice[float32](f)
	x.is(err, fuel.ErrMismatch, "Slice of another type")
	odd := x.must(s.View(1, 8))
	g := x.must(odd.Reinterpret(fuel.F64))
	_, err = fuel.Slice[float64](g)
	x.is(err, fuel.ErrMisaligned, "Slice of a misaligned View")
	x.close(s, c, f, odd, g)
}

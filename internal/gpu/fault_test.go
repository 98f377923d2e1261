package gpu_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// A slowPort takes its time to give memory back, as a driver that waits for all
// work first.
type slowPort struct {
	*softPort
	gate chan struct{}
}

func (p slowPort) Release(b gpu.Block) {
	<-p.gate
	p.softPort.Release(b)
}

// within fails where f does not return.
func within(t testing.TB, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatalf("%s does not return", what)
	}
}

func TestFreeNeverWaitsForTheDriver(t *testing.T) {
	lim := bytewise
	lim.Heap = 128 << 20
	p := slowPort{newSoftPort(t, memories[0], lim), make(chan struct{})}
	d := gpu.New(p, lim, gpu.Config{})
	d.SetCache(-1, 0)
	a, b := mustAlloc(t, d, 50<<20), mustAlloc(t, d, 50<<20)
	within(t, "Free", func() { d.Free(a, 0) })
	within(t, "Staging", func() { d.Staging(b, 0, nil, true) })
	// What is on its way back is waited for, where it is needed.
	time.AfterFunc(5*time.Millisecond, func() { close(p.gate) })
	p.mu.Lock()
	full := errors.New("the driver is full")
	p.refuse = func(n int, _ gpu.Use) error { // p.mu is held
		if len(p.blocks) > 1 {
			return errors.Join(backend.ErrNoMemory, full)
		}
		return nil
	}
	p.mu.Unlock()
	a = mustAlloc(t, d, 50<<20)
	d.Free(a, 0)
	d.Free(b, 0)
	ok(t, d.Close())
	if c := d.Cache(); c.Bytes != 0 || c.Padding != 0 {
		t.Errorf("a closed device has %+v", c)
	}
}

// Alloc waits until there is enough, and no longer.
func TestAllocNeverWaitsForMoreThanItNeeds(t *testing.T) {
	lim := bytewise
	lim.Heap = 128 << 20
	p := newSoftPort(t, memories[0], lim)
	p.delay = 10 * time.Millisecond
	d := gpu.New(p, lim, gpu.Config{})
	a, b := mustAlloc(t, d, 40<<20), mustAlloc(t, d, 40<<20)
	_, err := d.Fill(a, 0, 4096, []byte{1})
	ok(t, err)
	gate := make(chan struct{})
	_, err = d.WaitExternal(backend.External{Done: gate})
	ok(t, err)
	_, err = d.Fill(b, 0, 4096, []byte{1}) // behind the gate
	ok(t, err)
	d.Free(b, 0) // in either order
	d.Free(a, 0)
	within(t, "Alloc", func() { d.Free(mustAlloc(t, d, 60<<20), 0) })
	close(gate)
	ok(t, d.Close())
}

// Slabs go when they have been empty for as long as was said, each of them.
func TestIdleMemoryNeverStaysForTwiceTheTime(t *testing.T) {
	p := newSoftPort(t, memories[0], bytewise)
	d := gpu.New(p, bytewise, gpu.Config{})
	const idle = 600 * time.Millisecond
	d.SetCache(1<<40, idle)
	a, b := mustAlloc(t, d, 60<<20), mustAlloc(t, d, 60<<20)
	d.Free(a, 0)
	time.Sleep(idle / 10)
	d.Free(b, 0)
	began := time.Now()
	for d.Cached() > 0 && time.Since(began) < 10*idle {
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(began); took < idle*9/10 || took > idle*3/2 {
		t.Errorf("it stayed for %v, and %v was asked for", took, idle)
	}
	ok(t, d.Close())
}

// Whoever gets his memory back from Close may use the device, which says that it
// is closed.
func TestCloseNeverCallsBackUnderItsLock(t *testing.T) {
	p := newSoftPort(t, memories[0], bytewise)
	d := gpu.New(importingPort{p}, bytewise, gpu.Config{})
	mem, gone, release := pages(t, 1)
	_, err := d.Import(mem, false, func() { d.Memory(); release() })
	ok(t, err)
	within(t, "Close", func() { ok(t, d.Close()) })
	if gone.Load() != 1 {
		t.Errorf("let go %d times", gone.Load())
	}
}

// A slab may be back with the driver before that has refused the next one.
func TestMemoryThatHasLeftIsNeverMissed(t *testing.T) {
	sp := newSoftPort(t, memories[0], bytewise)
	p := slowPort{sp, make(chan struct{})}
	d := gpu.New(p, bytewise, gpu.Config{})
	d.SetCache(-1, -1)
	d.Free(mustAlloc(t, d, 64<<20), 0)
	full := true
	sp.refuse = func(int, gpu.Use) error { // sp.mu is held
		if !full {
			return nil
		}
		full = false
		close(p.gate)
		for len(sp.blocks) > 0 {
			sp.mu.Unlock()
			time.Sleep(time.Millisecond)
			sp.mu.Lock()
		}
		return backend.ErrNoMemory
	}
	d.Free(mustAlloc(t, d, 64<<20), 0)
	ok(t, d.Close())
}

// A hangingPort never ends.
type hangingPort struct {
	importingPort
	gate chan struct{}
}

func (p hangingPort) Close() error {
	<-p.gate
	return p.importingPort.Close()
}

func TestUnpinNeverWaitsForClose(t *testing.T) {
	p := hangingPort{importingPort{newSoftPort(t, memories[0], bytewise)}, make(chan struct{})}
	d := gpu.New(p, bytewise, gpu.Config{})
	mem, gone, release := pages(t, 1)
	x, err := d.Pin(mem)
	ok(t, err)
	closed := make(chan error)
	go func() { closed <- d.Close() }()
	for x.Held() {
		time.Sleep(time.Millisecond)
	}
	within(t, "Unpin", func() { x.Unpin(release) })
	close(p.gate)
	ok(t, <-closed)
	arrives(t, gone, 1)
}

// Page-locked memory is none of the driver's allocations, where it does not count
// them.
func TestPinsNeverTakeTheDevicesAllocations(t *testing.T) {
	d := gpu.New(importingPort{newSoftPort(t, memories[0], bytewise)}, bytewise, gpu.Config{})
	const n = 4200
	mem, gone, release := pages(t, n)
	unit := len(mem) / n
	var list []backend.Pin
	for i := range n {
		x, err := d.Pin(mem[i*unit:][:unit])
		ok(t, err)
		list = append(list, x)
	}
	d.Free(mustAlloc(t, d, 1<<20), 0)
	for _, x := range list {
		x.Unpin(release)
	}
	arrives(t, gone, n)
	ok(t, d.Close())
}

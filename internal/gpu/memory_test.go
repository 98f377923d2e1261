package gpu_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

func (p *softPort) held() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.blocks)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// gated is a device with work on a Buffer that waits for gate.
func gated(t *testing.T, lim gpu.Limits, n int) (p *softPort, d *gpu.Device, b backend.Buffer, at backend.Point, gate chan struct{}) {
	p = newSoftPort(t, memories[0], lim)
	d = gpu.New(p, lim, gpu.Config{})
	b, err := d.Alloc(n, false)
	ok(t, err)
	gate = make(chan struct{})
	_, err = d.WaitExternal(backend.External{Done: gate})
	ok(t, err)
	at, err = d.Fill(b, 0, n, []byte{1})
	ok(t, err)
	return p, d, b, at, gate
}

func TestFreedMemoryIsNeverUsedAgainBeforeItsWork(t *testing.T) {
	_, d, b, at, gate := gated(t, bytewise, 1<<20)
	place := d.Handles(b)
	d.Free(b, 0) // the device knows better
	c, err := d.Alloc(1<<20, false)
	ok(t, err)
	if d.Handles(c) == place {
		t.Error("memory was handed out while work is on the way there")
	}
	if c := d.Cache(); c.Bytes != 0 || c.Padding != 0 {
		t.Errorf("work is on its way, and kept is %+v", c)
	}
	close(gate)
	ok(t, d.Wait(t.Context(), at))
	e, err := d.Alloc(1<<20, false)
	ok(t, err)
	if d.Handles(e) != place {
		t.Error("memory was not used again when its work had passed")
	}
	ok(t, d.Close())
	if d.Handles(e) != (backend.Handles{}) {
		t.Error("a closed device has handles")
	}
}

// Alloc on a device that is full but for work on its way waits for that.
func TestAllocNeverRefusesWhatWorkWillFree(t *testing.T) {
	lim := wordwise
	_, d, b, _, gate := gated(t, lim, 30<<20)
	other, err := d.Alloc(30<<20, false)
	ok(t, err)
	if _, err := d.Alloc(30<<20, false); !errors.Is(err, backend.ErrNoMemory) {
		t.Fatalf("nothing is freed, and a full device answers %v", err)
	}
	d.Free(b, 0)
	done := make(chan error)
	go func() {
		c, err := d.Alloc(30<<20, false)
		if err == nil {
			d.Free(c, 0)
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("before the work passed: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	close(gate)
	ok(t, <-done)
	d.Free(other, 0)
	ok(t, d.Close())
}

func TestIdleMemoryIsNeverKept(t *testing.T) {
	p := newSoftPort(t, memories[0], bytewise)
	d := gpu.New(p, bytewise, gpu.Config{})
	b, err := d.Alloc(100, false)
	ok(t, err)
	d.Free(b, 0) // for half a minute
	if c := d.Cache(); c.Bytes != 64<<20 || c.Largest != 64<<20 || d.Cached() != c.Bytes || p.held() != 1 {
		t.Errorf("%d blocks, and kept is %+v", p.held(), c)
	}
	d.SetCache(0, 5*time.Millisecond)
	eventually(t, "empty memory goes", func() bool { return p.held() == 0 })
	ok(t, d.Close())
}

// Nobody calls the device again after Free.
func TestIdleMemoryIsNeverKeptForWorkThatHasPassed(t *testing.T) {
	p, d, b, _, gate := gated(t, bytewise, 4096)
	d.SetCache(0, 5*time.Millisecond)
	d.Free(b, 0)
	time.Sleep(12 * time.Millisecond)
	if p.held() != 1 {
		t.Error("memory went before its work")
	}
	close(gate)
	eventually(t, "empty memory goes", func() bool { return p.held() == 0 })
	ok(t, d.Close())
}

func TestCacheNeverKeepsMoreThanItsLimit(t *testing.T) {
	p := newSoftPort(t, memories[0], wordwise)
	d := gpu.New(p, wordwise, gpu.Config{})
	fill := func() (list []backend.Buffer) {
		for range 5 { // of 8 MiB slabs, more than half of one: each its own
			b, err := d.Alloc(8<<20-300, false)
			ok(t, err)
			list = append(list, b)
		}
		return list
	}
	const one = int64(8<<20 - 256)
	for _, k := range []struct {
		most int64
		keep int64
	}{{-1, 0}, {one - 1, 0}, {one, one}, {3*one + 5, 3 * one}, {1 << 40, 5 * one}} {
		d.SetCache(k.most, -1)
		list := fill()
		if c := d.Cache(); c.Padding != 5*(one-(8<<20-300)) || c.Bytes != 0 {
			t.Errorf("in use: %+v", c)
		}
		for _, b := range list {
			d.Free(b, 0)
		}
		if c := d.Cache(); c.Bytes != k.keep || c.Largest != min(k.keep, one) || c.Padding != 0 {
			t.Errorf("at most %d bytes: %+v, want %d", k.most, c, k.keep)
		}
		eventually(t, "memory beyond the limit goes", func() bool { return int64(p.held())*one == k.keep })
	}
	if freed := d.Trim(2 * one); freed != 3*one || d.Cached() != 2*one {
		t.Errorf("Trim gave back %d bytes and left %d", freed, d.Cached())
	}
	if freed := d.Trim(-1); freed != 2*one || p.held() != 0 {
		t.Errorf("Trim gave back %d bytes and left %d blocks", freed, p.held())
	}
	ok(t, d.Close())
	if d.Trim(0) != 0 {
		t.Error("a closed device gave memory back")
	}
}

func TestFreeMemoryIsNeverCountedTwice(t *testing.T) {
	p := newSoftPort(t, memories[0], wordwise)
	d := gpu.New(p, wordwise, gpu.Config{})
	b, err := d.Alloc(1<<20, false)
	ok(t, err)
	if m := d.Memory(); m.Total != 64<<20 || m.Free != 63<<20 {
		t.Errorf("%+v", m)
	}
	d.Free(b, 0)
	if m := d.Memory(); d.Cached() == 0 || m.Free+d.Cached() != m.Total {
		t.Errorf("%+v and %d kept", m, d.Cached())
	}
	ok(t, d.Close())
	if m := d.Memory(); m.Total != backend.Unknown {
		t.Errorf("closed: %+v", m)
	}
}

func TestClosedDeviceNeverAnswersAnythingElse(t *testing.T) {
	p := newSoftPort(t, memories[3], bytewise)
	d := gpu.New(p, bytewise, gpu.Config{})
	b, err := d.Alloc(64, true)
	ok(t, err)
	ok(t, d.Close())
	buf := make([]byte, 64)
	for i, f := range []func() error{
		func() error { _, err := d.Alloc(1, false); return err },
		func() error { _, err := d.Fill(b, 0, 64, buf[:1]); return err },
		func() error { _, err := d.Copy(b, 0, b, 1, 5); return err },
		func() error { _, _, err := d.Upload(b, 0, buf); return err },
		func() error { _, err := d.Download(buf, b, 0); return err },
		func() error { return d.Wait(context.Background(), 0) },
		func() error { _, err := d.WaitExternal(backend.External{}); return err },
		d.Close,
	} {
		if err := f(); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	d.Free(b, 3)
	d.SetCache(0, time.Millisecond)
	if !d.Done(99) || d.Cached() != 0 {
		t.Error("a closed device has work, or memory")
	}
}

// Close while others wait: they get their work's outcome, or that it is closed.
func TestCloseNeverStrandsAWaiter(t *testing.T) {
	_, d, b, at, gate := gated(t, bytewise, 4096)
	c := make(chan error, 30)
	for range 20 {
		go func() { c <- d.Wait(t.Context(), at) }()
	}
	time.Sleep(time.Millisecond)
	for range 5 {
		go func() { c <- d.Close() }()
		free := b
		go func() { d.Free(free, at); c <- nil }()
		b, _ = d.Alloc(64, false)
	}
	time.AfterFunc(5*time.Millisecond, func() { close(gate) })
	closed := 0
	for range cap(c) {
		select {
		case err := <-c:
			if errors.Is(err, backend.ErrClosed) {
				closed++
			} else if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("somebody waits for ever")
		}
	}
	if closed < 4 {
		t.Errorf("%d of 5 calls of Close were told that it is closed", closed)
	}
}

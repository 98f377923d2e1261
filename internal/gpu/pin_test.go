package gpu_test

import (
	"bytes"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// A stubbornPort does not let go of host memory at once.
type stubbornPort struct {
	importingPort
	later *[]func()
}

func (p stubbornPort) LetGo(b gpu.Block, later func()) bool {
	p.Release(b)
	*p.later = append(*p.later, later)
	return false
}

// What the driver does not let go of nobody gets, until it does.
func TestHostMemoryStaysWhereTheDriverKeepsIt(t *testing.T) {
	var later []func()
	d := gpu.New(stubbornPort{importingPort{newSoftPort(t, memories[0], bytewise)}, &later}, bytewise, gpu.Config{})
	mem, gone, release := pages(t, 3)
	unit := os.Getpagesize()
	first, err := d.Pin(mem[:unit])
	ok(t, err)
	second, err := d.Pin(mem[unit : 2*unit])
	ok(t, err)
	b, err := d.Import(mem[2*unit:], false, release)
	ok(t, err)
	first.Unpin(release) // before Close
	d.Free(b, 0)
	if len(later) != 2 || gone.Load() != 0 || first.Held() || !second.Held() {
		t.Errorf("let go %d times, %d to come, held %v, %v", gone.Load(), len(later), first.Held(), second.Held())
	}
	for _, f := range later {
		f()
	}
	arrives(t, gone, 2)
	ok(t, d.Close())
	if second.Held() || len(later) != 3 {
		t.Errorf("closed, and held %v, %d to come", second.Held(), len(later))
	}
	second.Unpin(release) // after Close
	time.Sleep(5 * time.Millisecond)
	if gone.Load() != 2 {
		t.Error("let go of what the driver has")
	}
	later[2]()
	arrives(t, gone, 3)
	if _, err := d.Pin(mem); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("Pin by a closed device: %v", err)
	}
}

// arrives waits until n pieces of memory have been let go of.
func arrives(t *testing.T, gone *atomic.Int32, n int32) {
	t.Helper()
	eventually(t, "memory is let go of", func() bool { return gone.Load() >= n })
	if gone.Load() != n {
		t.Errorf("let go %d times, want %d", gone.Load(), n)
	}
}

// A transfer is direct where all of it is in one pin, and the device copies it as
// it is; else it is staged, and right as well.
func TestOnlyWhatIsPinnedGoesDirectly(t *testing.T) {
	unit := os.Getpagesize()
	lim := bytewise
	lim.CopyUnit = 4
	for _, c := range []struct {
		name   string
		lim    gpu.Limits
		conf   gpu.Config
		off, n int // of host memory; pinned are pages 1, and 3 to 4
		at     int // of device memory
		direct bool
	}{
		{name: "one page", lim: bytewise, off: unit, n: unit, direct: true},
		{name: "part of a page", lim: bytewise, off: unit + 5, n: 7, at: 3, direct: true},
		{name: "two pages", lim: bytewise, off: 3 * unit, n: 2 * unit, direct: true},
		{name: "the last byte", lim: bytewise, off: 5*unit - 1, n: 1, direct: true},
		{name: "one byte before", lim: bytewise, off: unit - 1, n: 5},
		{name: "one byte beyond", lim: bytewise, off: 4 * unit, n: unit + 1},
		{name: "between", lim: bytewise, off: 2 * unit, n: unit},
		{name: "two pins", lim: bytewise, off: unit, n: 3 * unit},
		{name: "before all", lim: bytewise, off: 0, n: 8},
		{name: "after all", lim: bytewise, off: 5 * unit, n: 8},
		{name: "whole units", lim: lim, off: unit + 4, n: 64, at: 8, direct: true},
		{name: "no whole units of the device", lim: lim, off: unit + 4, n: 64, at: 9},
		{name: "no whole units of the host", lim: lim, off: unit + 3, n: 64, at: 8},
		{name: "no whole length", lim: lim, off: unit + 4, n: 63, at: 8},
		{name: "staging was asked for", lim: bytewise, conf: gpu.Config{Staged: true}, off: unit, n: unit, direct: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newSoftPort(t, memories[0], c.lim)
			d := gpu.New(importingPort{p}, c.lim, c.conf)
			mem, _, _ := pages(t, 6)
			for i := range mem {
				mem[i] = byte(i*7 + i>>8)
			}
			var pins []backend.Pin
			for _, part := range [][2]int{{3, 5}, {1, 2}} {
				pin, err := d.Pin(mem[part[0]*unit : part[1]*unit])
				ok(t, err)
				pins = append(pins, pin)
			}
			b, err := d.Alloc(3*unit+100, true)
			ok(t, err)
			host := mem[c.off:][:c.n]
			if size, why := d.Staging(b, c.at, host, false); (size == 0) != c.direct || (why == "") != c.direct {
				t.Errorf("Staging says %d, %q", size, why)
			}
			at, staged, err := d.Upload(b, c.at, host)
			ok(t, err)
			if staged == c.direct {
				t.Errorf("upload: staged %v", staged)
			}
			if !staged && !d.Done(at) {
				t.Error("an upload from the caller's own memory returned before it had passed")
			}
			want := bytes.Clone(host)
			clear(host)
			if staged, err = d.Download(host, b, c.at); err != nil || staged == c.direct {
				t.Errorf("download: staged %v, %v", staged, err)
			}
			if !bytes.Equal(host, want) {
				t.Error("the bytes are wrong")
			}
			for i := range mem {
				if mem[i] != byte(i*7+i>>8) {
					t.Fatalf("byte %d of the host's changed", i)
				}
			}
			d.Free(b, 0)
			gone := 0
			for _, pin := range pins {
				pin.Unpin(func() { gone++ })
			}
			if _, staged, err = d.Upload(mustAlloc(t, d, c.n), 0, host); err != nil || !staged || gone != 2 {
				t.Errorf("after Unpin: staged %v, %v; let go %d times", staged, err, gone)
			}
			ok(t, d.Close())
		})
	}
}

func mustAlloc(t testing.TB, d *gpu.Device, n int) backend.Buffer {
	t.Helper()
	b, err := d.Alloc(n, false)
	ok(t, err)
	return b
}

// A wait that fails is no end of the work: the caller's memory is not his before
// that.
func TestFailedWaitNeverLeavesWorkOnPinnedMemory(t *testing.T) {
	for _, down := range []bool{false, true} {
		p := newSoftPort(t, memories[0], bytewise)
		d := gpu.New(importingPort{p}, bytewise, gpu.Config{})
		mem, _, _ := pages(t, 1)
		pin, err := d.Pin(mem)
		ok(t, err)
		b := mustAlloc(t, d, len(mem))
		gate := make(chan struct{})
		_, err = d.WaitExternal(backend.External{Done: gate})
		ok(t, err)
		failures := 0
		p.mu.Lock()
		p.await = func() error { // p.mu is held
			if failures++; failures < 3 {
				return errors.New("not now")
			}
			return nil
		}
		p.mu.Unlock()
		time.AfterFunc(20*time.Millisecond, func() { close(gate) })
		if down {
			_, err = d.Download(mem, b, 0)
		} else {
			_, _, err = d.Upload(b, 0, mem)
		}
		select {
		case <-gate:
		default:
			t.Errorf("download %v: it returned while work is on its way: %v", down, err)
		}
		if err == nil || failures < 3 {
			t.Errorf("download %v: %v after %d failures", down, err, failures)
		}
		pin.Unpin(func() {})
		d.Free(b, 0)
		ok(t, d.Close())
	}
}

// A lockingPort takes its time to page-lock memory.
type lockingPort struct {
	importingPort
	gate chan struct{}
}

func (p lockingPort) Import(mem []byte, fixed bool) (gpu.Block, error) {
	<-p.gate
	return p.importingPort.Import(mem, fixed)
}

func (p lockingPort) LetGo(b gpu.Block, later func()) bool {
	<-p.gate
	return p.importingPort.LetGo(b, later)
}

// Others go on while the driver locks memory, or lets go of it.
func TestPageLockingNeverHoldsUpTransfers(t *testing.T) {
	p := lockingPort{importingPort{newSoftPort(t, memories[0], bytewise)}, make(chan struct{})}
	d := gpu.New(p, bytewise, gpu.Config{})
	mem, gone, release := pages(t, 2)
	unit := os.Getpagesize()
	b := mustAlloc(t, d, 100)
	transfers := func() {
		within(t, "a transfer", func() {
			_, _, err := d.Upload(b, 0, make([]byte, 100))
			ok(t, err)
			_, err = d.Download(make([]byte, 100), b, 0)
			ok(t, err)
			d.Free(mustAlloc(t, d, 100), 0)
		})
	}
	pinned, imported := make(chan backend.Pin), make(chan backend.Buffer)
	go func() {
		x, err := d.Pin(mem[:unit])
		if err != nil {
			t.Error(err)
		}
		pinned <- x
	}()
	go func() {
		b, err := d.Import(mem[unit:], false, release)
		if err != nil {
			t.Error(err)
		}
		imported <- b
	}()
	time.Sleep(5 * time.Millisecond)
	transfers()
	p.gate <- struct{}{}
	p.gate <- struct{}{}
	x, i := <-pinned, <-imported
	go x.Unpin(release)
	go d.Free(i, 0)
	time.Sleep(5 * time.Millisecond)
	transfers()
	p.gate <- struct{}{}
	p.gate <- struct{}{}
	arrives(t, gone, 2)
	d.Free(b, 0)
	ok(t, d.Close())
}

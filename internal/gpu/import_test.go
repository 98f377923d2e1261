package gpu_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/fueltest"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/race"
)

// An importingPort is a softPort that can use host memory.
type importingPort struct{ *softPort }

func (p importingPort) ImportAlign() int { return 4096 }

func (p importingPort) LetGo(b gpu.Block, later func()) bool {
	p.Release(b)
	return true
}

func (p importingPort) Import(mem []byte, fixed bool) (gpu.Block, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(mem))); len(mem) == 0 || at%4096 != 0 || len(mem)%4096 != 0 {
		p.wrong("import of %d bytes at %#x", len(mem), at)
	}
	if p.lost {
		return gpu.Block{}, backend.ErrLost
	}
	if p.refuse != nil {
		if err := p.refuse(len(mem), gpu.Storage); err != nil {
			return gpu.Block{}, err
		}
	}
	p.next++
	b := &softBlock{Block: gpu.Block{ID: p.next, Size: len(mem)}, dev: mem}
	p.blocks[b.ID] = b
	p.most = max(p.most, len(p.blocks))
	if m := p.lim.MaxAllocations; m > 0 && len(p.blocks) > m {
		p.wrong("%d allocations at once, of %d", len(p.blocks), m)
	}
	return b.Block, nil
}

// registerAny makes a device over any port the first of kind Vulkan.
func registerAny(t testing.TB, p gpu.Port, d backend.DeviceInfo, lim gpu.Limits, c gpu.Config) fuel.Device {
	t.Cleanup(backend.Replace(backend.Vulkan, &backend.Driver{
		Kind: backend.Vulkan, Package: "soft",
		Probe: func(context.Context) (backend.Info, error) {
			return backend.Info{Library: "soft", Devices: []backend.DeviceInfo{d}}, nil
		},
		Open: func(context.Context, int) (backend.Device, error) { return gpu.New(p, lim, c), nil },
	}))
	return fuel.Device{Kind: fuel.Vulkan}
}

var bytewise = gpu.Limits{Align: 64, Atom: 1, FillUnit: 1, FillAlign: 1}

func TestConformanceWithImport(t *testing.T) {
	for _, kind := range []softKind{memories[0], memories[3]} { // what is not imported is as without
		if race.Enabled && kind.mapped {
			continue // as without import
		}
		t.Run(kind.name, func(t *testing.T) {
			fueltest.TestDriver(t, func(t *testing.T) fuel.Device {
				p := newSoftPort(t, kind, bytewise)
				return registerAny(t, importingPort{p}, backend.DeviceInfo{Name: kind.name, Memory: p.Memory(), Alignment: 64, HostImport: true, Pinned: true}, bytewise, gpu.Config{})
			})
		})
	}
}

// pages is host memory of whole pages, and the number of times that it was let go.
func pages(t testing.TB, n int) (mem []byte, gone *atomic.Int32, release func()) {
	t.Helper()
	mem, err := cpu.Reserve(n * os.Getpagesize())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cpu.Release(mem) })
	gone = new(atomic.Int32)
	return mem, gone, func() { gone.Add(1) }
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Host memory is let go of once: after Free and the work that uses it, without
// another call.
func TestImportedMemoryIsKeptUntilItsWorkHasPassed(t *testing.T) {
	p := newSoftPort(t, memories[0], bytewise)
	d := gpu.New(importingPort{p}, bytewise, gpu.Config{})
	mem, gone, release := pages(t, 2)
	copy(mem, bytes.Repeat([]byte{3}, len(mem)))
	b, err := d.Import(mem, false, release)
	ok(t, err)
	to, err := d.Alloc(len(mem), true)
	ok(t, err)
	gate := make(chan struct{})
	_, err = d.WaitExternal(backend.External{Done: gate})
	ok(t, err)
	at, err := d.Copy(to, 0, b, 0, len(mem))
	ok(t, err)
	d.Free(b, 0) // the device knows better
	time.Sleep(5 * time.Millisecond)
	if gone.Load() != 0 {
		t.Fatal("let go while work uses it")
	}
	close(gate)
	ok(t, d.Wait(t.Context(), at))
	arrives(t, gone, 1)
	got := make([]byte, len(mem))
	_, err = d.Download(got, to, 0)
	ok(t, err)
	if gone.Load() != 1 || !bytes.Equal(got, mem) {
		t.Errorf("let go %d times, or other bytes", gone.Load())
	}
	d.Free(to, 0)
	ok(t, d.Close())
	if gone.Load() != 1 {
		t.Errorf("let go %d times", gone.Load())
	}
}

// A device that is closed lets go of all of it, and nothing does so again.
func TestClosedDeviceNeverKeepsHostMemory(t *testing.T) {
	p := newSoftPort(t, memories[3], bytewise)
	d := gpu.New(importingPort{p}, bytewise, gpu.Config{})
	mem, gone, release := pages(t, 1)
	kept, err := d.Import(mem, false, release)
	ok(t, err)
	freed, err := d.Import(mem, false, release)
	ok(t, err)
	to, err := d.Alloc(len(mem), false)
	ok(t, err)
	gate := make(chan struct{})
	_, err = d.WaitExternal(backend.External{Done: gate})
	ok(t, err)
	_, err = d.Copy(to, 0, freed, 0, len(mem))
	ok(t, err)
	d.Free(freed, 0)
	time.AfterFunc(5*time.Millisecond, func() { close(gate) })
	ok(t, d.Close())
	d.Free(kept, 0)
	d.Free(to, 0)
	arrives(t, gone, 2) // once each
	if _, err := d.Import(mem, false, release); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("import by a closed device: %v", err)
	}
}

// Imports are driver allocations, and count against what the driver allows.
func TestImportsNeverExceedTheDriversAllocations(t *testing.T) {
	lim := bytewise
	lim.MaxAllocations = 8
	p := newSoftPort(t, memories[0], lim)
	d := gpu.New(importingPort{p}, lim, gpu.Config{})
	mem, gone, release := pages(t, 1)
	var list []backend.Buffer
	for {
		b, err := d.Import(mem, false, release)
		if errors.Is(err, backend.ErrNoMemory) {
			break
		}
		ok(t, err)
		list = append(list, b)
	}
	if len(list) != 6 { // less a quarter for others
		t.Errorf("%d imports of 8 allocations", len(list))
	}
	for _, b := range list {
		d.Free(b, 0)
	}
	if int(gone.Load()) != len(list) {
		t.Errorf("%d of %d let go", gone.Load(), len(list))
	}
	b, err := d.Import(mem, false, release)
	ok(t, err)
	d.Free(b, 0)
	ok(t, d.Close())
}

// A plan is true also where the queue is busy: then the host does not write what it
// could.
func TestPlanOfABusyQueueIsTrue(t *testing.T) {
	p := newSoftPort(t, memories[3], bytewise)
	dev := register(t, p, gpu.Config{})
	fueltest.LeakCheck(t)
	const n = 100_000
	src, err := fuel.FromBytes(fuel.Device{}, fuel.U8, make([]byte, n))
	ok(t, err)
	dst, err := fuel.FromBytes(dev, fuel.U8, make([]byte, n))
	ok(t, err)
	for _, busy := range []bool{false, true} {
		gate := make(chan struct{})
		if busy {
			q, err := fuel.QueueOf(dev)
			ok(t, err)
			_, err = q.WaitExternal(fuel.External{Done: gate})
			ok(t, err)
		}
		plan, err := fuel.PlanCopy(dst, src)
		ok(t, err)
		time.AfterFunc(5*time.Millisecond, func() { close(gate) })
		var r fuel.CopyReport
		ok(t, dst.CopyFrom(t.Context(), src, &fuel.CopyOptions{Report: &r}))
		if want := map[bool]int{true: n}[busy]; plan.Staged != want || r.Staged != want {
			t.Errorf("busy %v: planned as %+v, went as %+v", busy, plan, r)
		}
	}
	ok(t, errors.Join(src.Close(), dst.Close()))
}

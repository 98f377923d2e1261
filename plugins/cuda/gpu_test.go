package cuda

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/fueltest"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/dl"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/require"
)

// realDevices makes this machine's own driver the one of the test, and returns
// its devices and its library. Without any the test is skipped.
func realDevices(t testing.TB, c gpu.Config) ([]fuel.DeviceInfo, *dl.Library) {
	t.Helper()
	d := newDriver(libraries(), c)
	t.Cleanup(backend.Replace(backend.CUDA, d.backend()))
	for _, s := range fuel.Probe(context.Background()) {
		if s.Kind == fuel.CUDA && s.State == fuel.Available {
			return s.Devices, d.lib.Library
		} else if s.Kind == fuel.CUDA {
			require.Skip(t, "cuda", s.Reason)
		}
	}
	return nil, nil
}

func TestGPUConformance(t *testing.T) {
	realDevices(t, gpu.Config{}) // or all of it is skipped
	for name, c := range map[string]gpu.Config{"direct": {}, "staged": {Staged: true}} {
		t.Run(name, func(t *testing.T) {
			devices, _ := realDevices(t, c)
			for _, d := range devices {
				t.Run(d.Name, func(t *testing.T) {
					fueltest.TestDriver(t, func(*testing.T) fuel.Device { return d.Device })
				})
			}
		})
	}
}

func TestGPURunsKernelsOfUsers(t *testing.T) {
	devices, lib := realDevices(t, gpu.Config{})
	for _, d := range devices {
		checkKernels(t, lib, d.Device, d.Unified)
	}
}

// Report 7 of VENDOR-APIS.md (purego#485) on hardware.
func TestGPUManyShortLockedGoroutines(t *testing.T) {
	devices, _ := realDevices(t, gpu.Config{})
	checkLocked(t, devices, 10_000)
}

// checkLocked uses devices in n goroutines that end while they are locked to
// their threads, or not.
func checkLocked(t *testing.T, devices []fuel.DeviceInfo, n int) {
	var wg sync.WaitGroup
	limit := make(chan struct{}, 64)
	for i := range n {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			runtime.LockOSThread()
			if i%4 != 0 {
				defer runtime.UnlockOSThread()
			}
			b := []byte{byte(i), byte(i >> 8), 1}
			s, err := fuel.FromBytes(devices[i%len(devices)].Device, fuel.U8, b)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			got := make([]byte, 3)
			if _, err := s.ReadAt(got, 0); err != nil || !bytes.Equal(got, b) {
				t.Errorf("%v, want %v: %v", got, b, err)
			}
		})
	}
	wg.Wait()
}

// A bare user calls the driver as a C program would, in the context of dev.
func newBare(b *testing.B, lib *dl.Library, dev fuel.Device) *user {
	s, err := fuel.Alloc(dev, fuel.U8, 1, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	u := &user{t: b, lib: lib}
	_, err = fuel.Dispatch(s, fuel.Cases[int]{CUDA: func(m fuel.CUDAMemory) (int, error) {
		u.context, u.stream = m.Context, m.Stream
		return 0, nil
	}})
	if err != nil {
		b.Fatal(err)
	}
	return u
}

// bench runs f over and over, with the context of the device.
func (u *user) bench(b *testing.B, name string, size int, f func()) {
	b.Run(fmt.Sprintf("%s/size=%d", name, size), func(b *testing.B) {
		b.SetBytes(int64(size))
		u.inside(func() {
			for b.Loop() {
				f()
			}
		})
	})
}

// BenchmarkGPUTransfer compares with what cudaMemcpy does, which is the
// driver's synchronous copy, from ordinary and from page-locked memory.
func BenchmarkGPUTransfer(b *testing.B) {
	devices, lib := realDevices(b, gpu.Config{})
	u := newBare(b, lib, devices[0].Device)
	up, down := u.proc("cuMemcpyHtoD_v2"), u.proc("cuMemcpyDtoH_v2")
	for _, size := range []int{64 << 10, 1 << 20, 16 << 20, 256 << 20} {
		host := make([]byte, size)
		cpu.Fill(host, []byte{1, 2, 3, 4})
		s, err := fuel.FromBytes(devices[0].Device, fuel.U8, host)
		if err != nil {
			b.Fatal(err)
		}
		one := make([]byte, 1)
		u.bench(b, "op=upload/impl=fuel", size, func() {
			_, err := s.WriteAt(host, 0)
			if err == nil {
				_, err = s.ReadAt(one, 0) // until it is there
			}
			if err != nil {
				b.Error(err)
			}
		})
		u.bench(b, "op=download/impl=fuel", size, func() {
			if _, err := s.ReadAt(host, 0); err != nil {
				b.Error(err)
			}
		})
		locked, err := fuel.Alloc(fuel.Device{}, fuel.U8, size, &fuel.Options{Pinned: devices[0].Device, PinnedOnly: true})
		if err != nil {
			b.Fatal(err)
		}
		for name, way := range map[string][2]*fuel.Storage{"upload": {s, locked}, "download": {locked, s}} {
			u.bench(b, "op="+name+"/impl=fuel-pinned", size, func() {
				if err := way[0].CopyFrom(context.Background(), way[1], nil); err != nil {
					b.Error(err)
				}
			})
		}
		locked.Close()
		dev, pinned := new(uintptr), new(unsafe.Pointer)
		u.inside(func() {
			u.ok(u.proc("cuMemAlloc_v2").Call(uintptr(unsafe.Pointer(dev)), uintptr(size)))
			u.ok(u.proc("cuMemHostAlloc").Call(uintptr(unsafe.Pointer(pinned)), uintptr(size), 0))
		})
		u.bench(b, "op=upload/impl=pageable", size, func() { u.ok(up.Call(*dev, uintptr(unsafe.Pointer(&host[0])), uintptr(size))) })
		u.bench(b, "op=download/impl=pageable", size, func() { u.ok(down.Call(uintptr(unsafe.Pointer(&host[0])), *dev, uintptr(size))) })
		u.bench(b, "op=upload/impl=pinned", size, func() { u.ok(up.Call(*dev, uintptr(*pinned), uintptr(size))) })
		u.bench(b, "op=download/impl=pinned", size, func() { u.ok(down.Call(uintptr(*pinned), *dev, uintptr(size))) })
		u.inside(func() {
			u.ok(u.proc("cuMemFree_v2").Call(*dev))
			u.ok(u.proc("cuMemFreeHost").Call(uintptr(*pinned)))
		})
		s.Close()
	}
}

// BenchmarkGPUAlloc compares with the driver's own, stream-ordered and not.
func BenchmarkGPUAlloc(b *testing.B) {
	devices, lib := realDevices(b, gpu.Config{})
	u := newBare(b, lib, devices[0].Device)
	alloc, free := u.proc("cuMemAlloc_v2"), u.proc("cuMemFree_v2")
	async, errAsync := lib.Lookup("cuMemAllocAsync")
	for _, size := range []int{256, 64 << 10, 16 << 20} {
		u.bench(b, "impl=fuel", size, func() {
			s, err := fuel.AllocUninit(devices[0].Device, fuel.U8, size, nil)
			if err != nil {
				b.Error(err)
				return
			}
			s.Close()
		})
		dev := new(uintptr)
		u.bench(b, "impl=cuMemAlloc", size, func() {
			u.ok(alloc.Call(uintptr(unsafe.Pointer(dev)), uintptr(size)))
			u.ok(free.Call(*dev))
		})
		if errAsync == nil {
			freeAsync := u.proc("cuMemFreeAsync")
			u.bench(b, "impl=cuMemAllocAsync", size, func() {
				u.ok(async.Call(uintptr(unsafe.Pointer(dev)), uintptr(size), u.stream))
				u.ok(freeAsync.Call(*dev, u.stream))
			})
		}
	}
}

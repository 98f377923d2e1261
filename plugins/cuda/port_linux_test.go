//go:build !fuel_static && !android && (amd64 || arm64)

package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/race"
)

// Reports 36 (libfabric#6160) and R5: cuInit starts programs and takes its time.
func TestRegisteringNeverCallsTheDriver(t *testing.T) {
	f := newFake(t, "")
	f.use(0)
	if n := f.count("cuInit"); n != 0 {
		t.Errorf("cuInit was called %d times before somebody asked", n)
	}
	if r := row(t); r.State != fuel.Available || f.count("cuInit") != 1 {
		t.Errorf("%+v, %d calls of cuInit", r, f.count("cuInit"))
	}
	row(t)
	if n := f.count("cuInit"); n != 1 {
		t.Errorf("cuInit was called %d times", n)
	}
	if n := f.count("cuDevicePrimaryCtxRetain"); n != 0 {
		t.Errorf("a probe made %d contexts", n)
	}
}

func TestDevicesAreDescribed(t *testing.T) {
	f := newFake(t, "total 123000000")
	f.use(0)
	r := row(t)
	if r.State != fuel.Available || len(r.Devices) != 2 || r.Reason != "" || !strings.HasPrefix(r.DriverVersion, "CUDA 12.4") || r.Library != f.dl.Path() {
		t.Fatalf("%+v", r)
	}
	d := r.Devices[1]
	if d.Name != "Stand-in 1" || d.UUID != "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f" || d.Memory.Total != 123000000 || d.MaxAlloc != 123000000 || d.Alignment != 256 || d.Unified || !d.Pinned || !d.HostImport || d.Peer {
		t.Errorf("%+v", d)
	}
}

// Report 31 (llama.cpp#17536): the attribute tells, whatever the sizes look like.
func TestOnlyTheAttributeMakesADeviceUnified(t *testing.T) {
	for script, want := range map[string]bool{
		"attr 18 0": false, "attr 18 1": true, "attr 18 1;attr 89 0": false, "attr 18 1;attr 83 0": false,
		"attr 18 0;total 25000000000": false,
	} {
		f := newFake(t, script)
		dev := f.use(0)
		if r := row(t); r.Devices[0].Unified != want {
			t.Errorf("%s: unified is %v", script, !want)
		}
		s := from(t, dev, []byte("bytes"))
		_, err := fuel.Dispatch(s, fuel.Cases[int]{CUDA: func(m fuel.CUDAMemory) (int, error) {
			if managed := f.call("fakecuda_is", uintptr(m.Pointer)) == 1; managed != want {
				t.Errorf("%s: managed memory is %v", script, managed)
			}
			return 0, nil
		}})
		if err != nil {
			t.Error(err)
		}
	}
}

// rename returns the flags that build a stand-in without some functions.
func rename(names ...string) (flags []string) {
	for _, n := range names {
		flags = append(flags, fmt.Sprintf("-D%s=gone_%s", n, n))
	}
	return flags
}

// Report 20 (ollama#5493): what is optional may be missing, and the rest works.
// Report 16 (yzma#106): a missing function is never called.
func TestMissingFunctions(t *testing.T) {
	t.Run("optional", func(t *testing.T) {
		f := newFake(t, "attr 18 1", rename("cuGetErrorName", "cuDeviceGetUuid_v2", "cuMemAllocManaged")...)
		dev := f.use(0)
		if r := row(t); r.State != fuel.Available || r.Devices[0].UUID != "" || r.Devices[0].Unified {
			t.Fatalf("%+v", r)
		}
		if got := content(t, from(t, dev, []byte("bytes"))); string(got) != "bytes" {
			t.Errorf("%q", got)
		}
	})
	t.Run("older name", func(t *testing.T) {
		f := newFake(t, "", "-DcuDevicePrimaryCtxRelease_v2=cuDevicePrimaryCtxRelease")
		dev := f.use(0)
		if got := content(t, from(t, dev, []byte("bytes"))); string(got) != "bytes" {
			t.Errorf("%q", got)
		}
	})
	t.Run("required", func(t *testing.T) {
		f := newFake(t, "version 3020", rename("cuCtxSetCurrent", "cuMemsetD32Async")...)
		f.use(0)
		r := row(t)
		for _, want := range []string{"cuCtxSetCurrent, cuMemsetD32Async", f.dl.Path(), "CUDA 3.2", "update the driver"} {
			if r.State != fuel.Unavailable || !strings.Contains(r.Reason, want) {
				t.Errorf("%q does not say %q", r.Reason, want)
			}
		}
		if n := f.count("cuInit"); n != 0 {
			t.Errorf("cuInit was called %d times", n)
		}
	})
}

// Report 22 (numba#9732): a toolkit's stub says so, and the search goes on.
func TestStubNeverHidesTheLibrary(t *testing.T) {
	stub, real := newFake(t, "always cuInit 34"), newFake(t, "")
	stub.use(0)
	if r := row(t); r.State != fuel.Unavailable || !strings.Contains(r.Reason, "stub") || !strings.Contains(r.Reason, stub.dl.Path()) || !strings.Contains(r.Reason, "CUDA_ERROR_STUB_LIBRARY (34)") {
		t.Errorf("%+v", r)
	}
	real.drv = newDriver([]string{"/missing/libcuda.so.1", stub.dl.Path(), real.dl.Path()}, gpu.Config{})
	real.use(0)
	if r := row(t); r.State != fuel.Available || r.Library != real.dl.Path() {
		t.Errorf("%+v", r)
	}
}

// Report 15 (onnxruntime_go#140), rule R9.
func TestHandlersOfTheDriverNeverStay(t *testing.T) {
	f := newFake(t, "signals 1")
	f.use(0)
	r := row(t)
	if r.State != fuel.Available || !strings.Contains(r.Reason, "SIGINT: Go's handler put back") {
		t.Errorf("%+v", r)
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGINT)
	defer signal.Stop(c)
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Error("SIGINT did not reach Go")
	}
	before := f.call("fakecuda_urgent")
	if err := syscall.Kill(os.Getpid(), syscall.SIGURG); err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	if now := f.call("fakecuda_urgent"); now != before {
		t.Errorf("%d SIGURG did not reach Go", now-before)
	}
}

// Report 18 (gorgonia#254): no result is passed over.
func TestNoFailureIsSilent(t *testing.T) {
	for _, name := range []string{"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDevicePrimaryCtxRetain", "cuStreamCreate"} {
		f := newFake(t, "always "+name+" 1")
		dev := f.use(0)
		_, err := fuel.Alloc(dev, fuel.U8, 1, nil)
		saysCall(t, err, name, fuel.ErrUnavailable)
	}
	for _, name := range []string{
		"cuCtxGetCurrent", "cuCtxSetCurrent", "cuEventCreate", "cuEventRecord", "cuEventSynchronize",
		"cuMemAlloc_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD32Async",
	} {
		f := newFake(t, "late 1000000")
		dev := f.use(0)
		if _, err := fuel.MemStats(dev); err != nil {
			t.Fatal(err)
		}
		f.script("always " + name + " 1")
		err := tour(dev)
		saysCall(t, err, name, nil)
		if errors.Is(err, fuel.ErrDeviceLost) {
			t.Errorf("%s: a passing failure lost the device: %v", name, err)
		}
		f.script("clear")
		if err := tour(dev); err != nil {
			t.Errorf("%s: after it: %v", name, err)
		}
	}
}

func saysCall(t *testing.T, err error, name string, target error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, "_v2")+": CUDA_ERROR_INVALID_VALUE (1)") {
		t.Errorf("%s failed, and the error is %v", name, err)
	}
	if target != nil && !errors.Is(err, target) {
		t.Errorf("%s: %v is no %v", name, err, target)
	}
}

// tour uses every way that bytes go, and returns the first error or what is
// wrong with them.
func tour(dev fuel.Device) (err error) {
	ctx := context.Background()
	b := random(newRand(1), 100<<10+7)
	s, err := fuel.FromBytes(dev, fuel.U8, b)
	if err != nil {
		return err
	}
	defer s.Close()
	c, err := s.Clone()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := s.FillRange(ctx, 3, 99<<10, []byte{1, 2, 3, 4}[:1]); err != nil {
		return err
	}
	got := make([]byte, len(b))
	if _, err := c.ReadAt(got, 0); err != nil {
		return err
	}
	if !bytes.Equal(got, b) {
		return errors.New("the clone changed")
	}
	if _, err := s.ReadAt(got, 0); err != nil {
		return err
	}
	copy(b[3:], bytes.Repeat([]byte{1}, 99<<10))
	if !bytes.Equal(got, b) {
		return errors.New("not what was written")
	}
	return nil
}

// Report 26 (cudarc#194).
func TestNoBytesNeverReachTheDriver(t *testing.T) {
	f := newFake(t, "")
	dev := f.use(0)
	row(t)
	s := from(t, dev, nil)
	if err := s.Zero(t.Context()); err != nil {
		t.Error(err)
	}
	if got := content(t, s); len(got) != 0 {
		t.Error(got)
	}
	for _, name := range []string{"cuMemAlloc_v2", "cuMemsetD32Async", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemHostAlloc"} {
		if n := f.count(name); n != 0 {
			t.Errorf("%d calls of %s", n, name)
		}
	}
}

// Report 40 of USER-REPORTS.md (pytorch#100818): a private copy is the device's
// own, and its pointer is never the host's.
func TestPrivateCopyNeverGoesThroughTheHost(t *testing.T) {
	f := newFake(t, "")
	dev := f.use(0)
	b := random(newRand(2), 1<<20)
	s := from(t, dev, b)
	c, err := s.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	down := f.count("cuMemcpyDtoHAsync_v2")
	copies := f.count("cuMemcpyDtoDAsync_v2")
	if _, err := s.WriteAt([]byte{1}, 5); err != nil {
		t.Fatal(err)
	}
	if f.count("cuMemcpyDtoHAsync_v2") != down || f.count("cuMemcpyDtoDAsync_v2") == copies {
		t.Error("the private copy was not made on the device")
	}
	if !bytes.Equal(content(t, c), b) {
		t.Error("the clone changed")
	}
}

// Reports 29 (WSL#8447) and, of USER-REPORTS.md, 41 and 68: page-locked memory is
// halved, then given up, which is told, and everything works.
func TestRefusedPinnedMemoryIsToldAndNoError(t *testing.T) {
	for script, want := range map[string]struct {
		pageable bool
		calls    int
	}{
		"":                          {false, 2}, // up and down
		"pinned 10000000":           {false, 5}, // 8 MiB; then 8, 4, 2 and 1
		"pinned 1000000":            {true, 8},  // 8, 4, 2, 1 and ordinary memory, twice
		"always cuMemHostAlloc 2":   {true, 8},  //
		"always cuMemHostAlloc 304": {true, 8},  // what the system refuses
		"always cuMemHostAlloc 801": {true, 8},  //
	} {
		f := newFake(t, script)
		dev := f.use(0)
		b := random(newRand(3), 20<<20)
		s := from(t, dev, b)
		c, err := s.Clone()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.WriteAt([]byte{^b[0]}, 0); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(content(t, c), b) {
			t.Errorf("%q: the bytes are wrong", script)
		}
		c.Close()
		stats, err := fuel.MemStats(dev)
		if err != nil || stats.PageableStaging != want.pageable {
			t.Errorf("%q: pageable is %v, %v", script, stats.PageableStaging, err)
		}
		if n := f.count("cuMemHostAlloc"); n != want.calls {
			t.Errorf("%q: %d calls of cuMemHostAlloc, want %d", script, n, want.calls)
		}
	}
}

// Report 28 (openvdb#2255): nothing asks for stream-ordered pools, whatever the
// attribute says.
func TestPoolsAreNeverNeeded(t *testing.T) {
	for _, c := range fields(new(calls)) {
		if strings.Contains(c.symbol, "Pool") || strings.HasPrefix(c.symbol, "cuMemAllocAsync") || strings.HasPrefix(c.symbol, "cuMemFreeAsync") {
			t.Errorf("%s", c.symbol)
		}
	}
}

// Report 30 (ollama#12283): where the memory is the host's, the host says what is
// free.
func TestFreeMemoryOfTheHostIsWhatCouldBeFreed(t *testing.T) {
	for _, c := range []struct {
		script      string
		free        int64
		least, most int64
	}{
		{"attr 18 1;total 1000000000", 600e6, 600e6, 600e6 + firstSlab},
		{"attr 18 1;total 1000000000", 3e9, 1e9, 1e9}, // never more than there is
		{"total 1000000000", 5, 1e9 - 256, 1e9},       // it has its own
		{"attr 18 1;total 1000000000", -1, 1e9 - 256, 1e9},
	} {
		f := newFake(t, c.script)
		f.drv.budget = func() cpu.Budget { return cpu.Budget{Total: 2e9, Free: c.free} }
		dev := f.use(0)
		from(t, dev, []byte("bytes"))
		if got := fuel.WouldFit(dev, 1); got.Available < c.least || got.Available > c.most {
			t.Errorf("%s, and the host has %d: %+v", c.script, c.free, got)
		}
	}
}

const firstSlab = 64 << 20 // of internal/gpu

// Reports 32 and 33 (open-gpu-kernel-modules#1257, llama.cpp#21910): devices
// reach each other directly only where that was asked for, and what arrives was
// compared; else through the host, and the report says why.
func TestPeerCopyIsAskedForAndChecked(t *testing.T) {
	for _, c := range []struct {
		script  string
		ask     bool
		path    fuel.CopyPath
		refused string
	}{
		{"peer 1", false, fuel.PathBounce, ""},
		{"peer 0", true, fuel.PathBounce, "cannot reach each other"},
		{"peer 1", true, fuel.PathPeer, ""},
		{"peer 2", true, fuel.PathBounce, "other bytes arrive"},
		{"peer 3", true, fuel.PathBounce, "other bytes arrive"},
		{"peer 1;attr 18 1", true, fuel.PathPeer, ""},
		{"peer 1;fail cuCtxEnablePeerAccess 1 217", true, fuel.PathBounce, "PEER_ACCESS_UNSUPPORTED (217)"},
	} {
		f := newFake(t, c.script)
		dev := f.use(0)
		if got := row(t).Devices[0].Peer; got != !strings.HasPrefix(c.script, "peer 0") {
			t.Errorf("%s: DeviceInfo.Peer is %v", c.script, got)
		}
		b := random(newRand(4), 9<<20+3)
		s := from(t, dev, b)
		if err := s.FillRange(t.Context(), 5, 4, []byte{9}); err != nil { // which may still be queued
			t.Fatal(err)
		}
		copy(b[5:], bytes.Repeat([]byte{9}, 4))
		down := f.count("cuMemcpyDtoHAsync_v2")
		for turn := range 2 {
			var report fuel.CopyReport
			c1, err := s.To(t.Context(), fuel.Device{Kind: fuel.CUDA, Index: 1}, &fuel.CopyOptions{Peer: c.ask, Report: &report})
			if err != nil {
				t.Fatalf("%s: %v", c.script, err)
			}
			direct := report.Path == fuel.PathPeer
			if c.path != report.Path && turn == 0 || !strings.Contains(report.Note, c.refused) && turn == 0 || direct != (report.Staged == 0) {
				t.Errorf("%s: %+v", c.script, report)
			}
			if c.path == fuel.PathPeer && turn == 1 && f.count("cuMemcpyDtoHAsync_v2") != down {
				t.Errorf("%s: through the host", c.script)
			}
			down = f.count("cuMemcpyDtoHAsync_v2")
			if !bytes.Equal(content(t, c1), b) {
				t.Errorf("%s: wrong bytes", c.script)
			}
			down = f.count("cuMemcpyDtoHAsync_v2")
			c1.Close()
		}
		if used := f.count("cuCtxEnablePeerAccess") > 0; used != (c.ask && !strings.HasPrefix(c.script, "peer 0")) {
			t.Errorf("%s: access enabled: %v", c.script, used)
		}
	}
}

// Two devices in both directions at once, with other work on both.
func TestPeerCopiesBothWaysAtOnce(t *testing.T) {
	f := newFake(t, "peer 1;late 3")
	f.use(0)
	// Somebody else has enabled one way already.
	a, b := newUser(t, f.dl, fuel.Device{Kind: fuel.CUDA}), newUser(t, f.dl, fuel.Device{Kind: fuel.CUDA, Index: 1})
	a.inside(func() { a.ok(a.proc("cuCtxEnablePeerAccess").Call(b.context, 0)) })
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			rng := newRand(uint64(g))
			dev := [2]fuel.Device{{Kind: fuel.CUDA}, {Kind: fuel.CUDA, Index: 1}}
			for range 10 {
				b := random(rng, 1+rng.IntN(200000))
				s, err := fuel.FromBytes(dev[g%2], fuel.U8, b)
				if err != nil {
					t.Error(err)
					return
				}
				var report fuel.CopyReport
				o, err := s.To(context.Background(), dev[1-g%2], &fuel.CopyOptions{Peer: true, Report: &report})
				if err != nil || report.Path != fuel.PathPeer {
					t.Errorf("%+v, %v", report, err)
					return
				}
				s.Close()
				got := make([]byte, len(b))
				if _, err := o.ReadAt(got, 0); err != nil || !bytes.Equal(got, b) {
					t.Errorf("wrong bytes, %v", err)
				}
				o.Close()
			}
		})
	}
	wg.Wait()
}

// What somebody else's work writes on the source is waited for.
func TestPeerCopyNeverOvertakesWorkOnTheSource(t *testing.T) {
	f := newFake(t, "peer 1;late 1000000")
	dev := f.use(0)
	u := newUser(t, f.dl, dev)
	b := random(newRand(9), 5000)
	s := from(t, dev, b)
	u.launch(s, 3, true)
	u.known(s)
	o, err := s.To(t.Context(), fuel.Device{Kind: fuel.CUDA, Index: 1}, &fuel.CopyOptions{Peer: true})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if !bytes.Equal(content(t, o), plus(b, 3)) {
		t.Error("the copy was made before the kernel ran")
	}
}

// A lost device is lost alone.
func TestLostPeerNeverLosesTheOther(t *testing.T) {
	f := newFake(t, "peer 1")
	f.use(0)
	dev := [2]fuel.Device{{Kind: fuel.CUDA}, {Kind: fuel.CUDA, Index: 1}}
	s, o := from(t, dev[0], make([]byte, 1000)), from(t, dev[1], make([]byte, 1000))
	content(t, s)
	f.script("sticky cuMemcpyDtoHAsync_v2 1 719")
	if _, err := s.ReadAt(make([]byte, 10), 0); !errors.Is(err, fuel.ErrDeviceLost) {
		t.Fatal(err)
	}
	if err := o.CopyFrom(t.Context(), s, &fuel.CopyOptions{Peer: true}); err == nil {
		t.Error("copied from a lost device")
	}
	if _, err := o.WriteAt([]byte{1}, 0); err != nil {
		t.Errorf("the other device: %v", err)
	}
	if err := tour(dev[1]); err != nil {
		t.Error(err)
	}
}

// Report 34 (occa#390): at the end of a process the driver may go first.
func TestFreeAfterTheDriverIsGoneIsNoError(t *testing.T) {
	f := newFake(t, "")
	if _, err := f.drv.probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := f.drv.open(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(100, true)
	if err == nil {
		_, _, err = d.Upload(b, 1, []byte("bytes"))
	}
	if err != nil {
		t.Fatal(err)
	}
	f.script("every 1 4") // CUDA_ERROR_DEINITIALIZED
	d.Free(b, 0)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// Report 35 (cuml#7906), rule R26: an error that stays loses the device at once,
// Close works, and a probe brings the device back.
func TestStickyErrorIsALostDevice(t *testing.T) {
	for _, name := range []string{"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD32Async", "cuEventRecord", "cuEventSynchronize", "cuMemAlloc_v2", "cuStreamSynchronize"} {
		f := newFake(t, "late 1000000")
		dev := f.use(0)
		kept := from(t, dev, random(newRand(5), 1000))
		if name == "cuStreamSynchronize" { // which is called after a failure only
			f.script("fail cuEventRecord 1 1")
		}
		f.script("sticky " + name + " 1 700")
		err := tour(dev)
		if name == "cuMemAlloc_v2" { // there is memory enough
			_, err = fuel.Alloc(dev, fuel.U8, 300<<20, nil)
		}
		if !errors.Is(err, fuel.ErrDeviceLost) || !strings.Contains(err.Error(), "CUDA_ERROR_ILLEGAL_ADDRESS (700)") {
			t.Errorf("%s: %v", name, err)
		}
		before := f.count("cuCtxGetCurrent")
		if _, err := kept.ReadAt(make([]byte, 10), 0); !errors.Is(err, fuel.ErrDeviceLost) {
			t.Errorf("%s: then %v", name, err)
		}
		if err := tour(dev); !errors.Is(err, fuel.ErrDeviceLost) {
			t.Errorf("%s: then %v", name, err)
		}
		if f.count("cuCtxGetCurrent") != before {
			t.Errorf("%s: the driver was asked again", name)
		}
		if err := kept.Close(); err != nil {
			t.Error(err)
		}
		if r := row(t); r.State != fuel.Available {
			t.Errorf("%s: %+v", name, r)
		}
		if err := tour(dev); err != nil {
			t.Errorf("%s: after Reprobe: %v", name, err)
		}
	}
}

// Reports 17 (ucx#9581), 19 (cudarc#108) and 59b (cuda-python#2311): whatever is
// current on the thread, each call is for its own device, and the caller's
// context is current afterwards.
func TestCallsNeverUseOrKeepTheCurrentContext(t *testing.T) {
	f := newFake(t, "")
	f.use(0)
	dev := [2]fuel.Device{{Kind: fuel.CUDA}, {Kind: fuel.CUDA, Index: 1}}
	var contexts [2]uintptr
	for i := range dev {
		s := from(t, dev[i], []byte{1})
		if _, err := fuel.Dispatch(s, fuel.Cases[int]{CUDA: func(m fuel.CUDAMemory) (int, error) {
			contexts[i] = m.Context
			return 0, nil
		}}); err != nil {
			t.Fatal(err)
		}
	}
	get, err := f.dl.Lookup("cuCtxGetCurrent")
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, mine := range []uintptr{contexts[1], contexts[0], 0} {
		f.call("cuCtxSetCurrent", mine)
		for i := range dev {
			if err := tour(dev[i]); err != nil {
				t.Errorf("with context %#x: %v", mine, err)
			}
			var now uintptr
			if get.Call(uintptr(unsafe.Pointer(&now))); now != mine {
				t.Errorf("the context of %v stayed", dev[i])
			}
		}
	}
}

// The same from 64 goroutines that change threads all the time.
func TestGoroutinesOnTwoDevicesNeverMixThem(t *testing.T) {
	f := newFake(t, "late 3")
	f.use(0)
	stop := make(chan struct{})
	var storm, wg sync.WaitGroup
	for range 4 {
		storm.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
			}
		})
	}
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	for g := range 64 {
		wg.Go(func() {
			rng := newRand(uint64(g))
			dev := [2]fuel.Device{{Kind: fuel.CUDA}, {Kind: fuel.CUDA, Index: 1}}
			for range rounds {
				b := random(rng, 1+rng.IntN(20000))
				s, err := fuel.FromBytes(dev[g%2], fuel.U8, b)
				if err != nil {
					t.Error(err)
					return
				}
				o, err := s.To(context.Background(), dev[1-g%2], nil)
				if err != nil {
					t.Error(err)
					return
				}
				runtime.Gosched()
				got := make([]byte, len(b))
				if _, err := o.ReadAt(got, 0); err != nil || !bytes.Equal(got, b) {
					t.Errorf("goroutine %d: wrong bytes, %v", g, err)
				}
				s.Close()
				o.Close()
			}
		})
	}
	wg.Wait()
	close(stop)
	storm.Wait()
}

// Report 7 of VENDOR-APIS.md (purego#485).
func TestManyShortLockedGoroutines(t *testing.T) {
	f := newFake(t, "late 0")
	f.use(0)
	n := 2000
	if testing.Short() {
		n = 200
	}
	checkLocked(t, row(t).Devices, n)
}

// A wait that fails leaves a transfer on its way: what it uses is not used again.
func TestFailedWaitNeverFreesStaging(t *testing.T) {
	f := newFake(t, "late 1000000")
	dev := f.use(0)
	b := random(newRand(6), 30<<20)
	s := from(t, dev, b)
	f.script("always cuEventSynchronize 1")
	if _, err := s.WriteAt(b, 0); err == nil {
		t.Fatal("no failure")
	}
	f.script("clear;late 1000000")
	if _, err := s.WriteAt(b[1:], 1); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(content(t, s)[1:], b[1:]) {
		t.Error("wrong bytes")
	}
}

// Of a batch that fails nothing stays queued.
func TestFailedBatchNeverRunsLater(t *testing.T) {
	for _, name := range []string{"cuMemsetD32Async", "cuEventRecord", "cuMemcpyHtoDAsync_v2"} {
		f := newFake(t, "late 1000000")
		dev := f.use(0)
		s := from(t, dev, make([]byte, 1001))
		f.script("fail " + name + " 1 1")
		if err := s.FillRange(t.Context(), 1, 999, []byte{1}); err == nil { // an edge, words, an edge
			t.Fatalf("%s: no failure", name)
		}
		f.script("clear;late 1000000")
		if _, err := s.WriteAt(bytes.Repeat([]byte{7}, 1001), 0); err != nil {
			t.Fatal(err)
		}
		if got := content(t, s); !bytes.Equal(got, bytes.Repeat([]byte{7}, 1001)) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// And the memory that it was for can go.
func TestFailedBatchNeverKeepsMemory(t *testing.T) {
	for _, name := range []string{"cuMemsetD32Async", "cuEventRecord", "cuMemcpyHtoDAsync_v2"} {
		f := newFake(t, "late 1000000")
		dev := f.use(0)
		s := from(t, dev, make([]byte, 1001))
		content(t, s)
		f.script("fail " + name + " 1 1")
		if err := s.FillRange(t.Context(), 1, 999, []byte{1}); err == nil {
			t.Fatalf("%s: no failure", name)
		}
		s.Close()
		if _, err := fuel.Trim(dev, 0); err != nil { // frees it, with no work queued
			t.Error(err)
		}
		if n := f.count("cuMemFree_v2"); n != 1 {
			t.Errorf("%s: %d blocks freed", name, n)
		}
	}
}

// A free that the driver refuses is tried again.
func TestRefusedFreeNeverLeaks(t *testing.T) {
	for _, script := range []string{"fail cuMemFree_v2 1 1", "fail cuCtxSetCurrent 1 1", "fail cuCtxGetCurrent 1 1"} {
		f := newFake(t, "")
		dev := f.use(0)
		s := from(t, dev, make([]byte, 1001))
		content(t, s)
		s.Close()
		before := f.live()
		f.script(script)
		if _, err := fuel.Trim(dev, 0); err != nil {
			t.Error(err)
		}
		if f.live() != before {
			t.Errorf("%s: nothing was refused", script)
		}
		from(t, dev, make([]byte, 1)).Close()
		if n := f.count("cuMemFree_v2"); n < 1 || f.live() != before {
			t.Errorf("%s: %d calls of cuMemFree, and %d things instead of %d", script, n, f.live(), before)
		}
	}
}

// The primary context is broken as long as another library has it, too.
func TestLostDeviceComesBackWhenOthersLetGo(t *testing.T) {
	f := newFake(t, "")
	dev := f.use(0)
	from(t, dev, []byte("bytes")).Close()
	other := new(uintptr)
	retain, err := f.dl.Lookup("cuDevicePrimaryCtxRetain")
	if err != nil {
		t.Fatal(err)
	}
	retain.Call(uintptr(unsafe.Pointer(other)), 16)
	f.script("sticky cuMemcpyHtoDAsync_v2 1 700")
	if err := tour(dev); !errors.Is(err, fuel.ErrDeviceLost) {
		t.Fatal(err)
	}
	row(t)
	release := time.AfterFunc(150*time.Millisecond, func() { f.call("cuDevicePrimaryCtxRelease_v2", 16) })
	defer release.Stop()
	if err := tour(dev); err != nil {
		t.Error(err)
	}
}

// A model of some Storages and what must be in them; nil: not known, since a
// write failed.
type model struct {
	dev  fuel.Device
	rng  *rand.Rand
	all  []*fuel.Storage
	want [][]byte
	errs int
}

func (m *model) add(s *fuel.Storage, b []byte) {
	m.all, m.want = append(m.all, s), append(m.want, b)
}

// step does something, and returns what is wrong with the bytes.
func (m *model) step() error {
	ctx := context.Background()
	rng := m.rng
	failed := func(err error) bool {
		if err != nil {
			m.errs++
		}
		return err != nil
	}
	if len(m.all) < 3 {
		b := random(rng, 1+rng.IntN(30000))
		s, err := fuel.FromBytes(m.dev, fuel.U8, b)
		if !failed(err) {
			m.add(s, b)
		}
		return nil
	}
	i := rng.IntN(len(m.all))
	s, b := m.all[i], m.want[i]
	off := rng.IntN(s.LenBytes())
	n := 1 + rng.IntN(s.LenBytes()-off)
	switch rng.IntN(8) {
	case 7:
		return m.pinned(s, i, off, n, failed)
	case 0:
		c, err := s.Clone()
		if !failed(err) {
			m.add(c, bytes.Clone(b))
		}
	case 1:
		v := byte(rng.Uint32())
		if failed(s.FillRange(ctx, off, n, []byte{v})) {
			m.want[i] = nil
		} else if b != nil {
			copy(b[off:], bytes.Repeat([]byte{v}, n))
		}
	case 2:
		w := random(rng, n)
		if _, err := s.WriteAt(w, int64(off)); failed(err) {
			m.want[i] = nil
		} else if b != nil {
			copy(b[off:], w)
		}
	case 3:
		got := make([]byte, n)
		if _, err := s.ReadAt(got, int64(off)); !failed(err) && b != nil && !bytes.Equal(got, b[off:off+n]) {
			return fmt.Errorf("%d bytes at %d are wrong", n, off)
		}
	case 4:
		j := rng.IntN(len(m.all))
		n := min(n, m.all[j].LenBytes())
		if failed(s.CopyRange(ctx, off, m.all[j], 0, n, nil)) {
			m.want[i] = nil
		} else if m.want[j] == nil {
			m.want[i] = nil
		} else if b != nil {
			copy(b[off:], bytes.Clone(m.want[j][:n]))
		}
	case 5:
		z, err := fuel.Alloc(m.dev, fuel.U8, n, nil)
		if !failed(err) {
			m.add(z, make([]byte, n))
		}
	case 6:
		s.Close()
		last := len(m.all) - 1
		m.all[i], m.want[i] = m.all[last], m.want[last]
		m.all, m.want = m.all[:last], m.want[:last]
	}
	return nil
}

// pinned reads n bytes of Storage i to page-locked memory and writes others from
// there; some of that memory the device imports as well.
func (m *model) pinned(s *fuel.Storage, i, off, n int, failed func(error) bool) error {
	ctx := context.Background()
	p, err := fuel.Alloc(fuel.Device{}, fuel.U8, n, &fuel.Options{Pinned: m.dev})
	if err != nil {
		return err // the host has memory, and the driver's refusal is none
	}
	defer p.Close()
	got := make([]byte, n)
	if !failed(p.CopyRange(ctx, 0, s, off, n, nil)) && m.want[i] != nil {
		if _, err := p.ReadAt(got, 0); err != nil || !bytes.Equal(got, m.want[i][off:off+n]) {
			return fmt.Errorf("%d bytes at %d are wrong in page-locked memory, %v", n, off, err)
		}
	}
	b := random(m.rng, n)
	if _, err := p.WriteAt(b, 0); err != nil {
		return err
	}
	if failed(s.CopyRange(ctx, off, p, 0, n, nil)) {
		m.want[i] = nil
	} else if m.want[i] != nil {
		copy(m.want[i][off:], b)
	}
	if m.rng.IntN(3) == 0 {
		t, err := p.To(ctx, m.dev, &fuel.CopyOptions{Import: true})
		if !failed(err) {
			m.add(t, b)
		}
	}
	return p.Fill(ctx, []byte{0xD1}) // at once: nobody reads it any more
}

// check looks at all of them, and closes them.
func (m *model) check(t *testing.T, what string) {
	t.Helper()
	for i, s := range m.all {
		got := make([]byte, s.LenBytes())
		if _, err := s.ReadAt(got, 0); err != nil {
			t.Errorf("%s: %v", what, err)
		} else if m.want[i] != nil && !bytes.Equal(got, m.want[i]) {
			t.Errorf("%s: a Storage of %d bytes is wrong", what, len(got))
		}
		s.Close()
	}
	m.all, m.want = nil, nil
}

// Every k-th call of the driver fails: nothing leaks, and no bytes are wrong that
// should be right.
func TestEveryKthFailureNeitherLeaksNorCorrupts(t *testing.T) {
	steps, most := 300, 40
	if testing.Short() || race.Enabled {
		steps, most = 60, 12
	}
	before, err := fuel.MemStats(fuel.Device{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // when every device is closed
		if now, err := fuel.MemStats(fuel.Device{}); err != nil || now.InUse != before.InUse {
			t.Errorf("%d bytes of the host are in use, and %d were before, %v", now.InUse, before.InUse, err)
		}
	})
	for _, script := range []string{"total 200000000", "total 200000000;attr 18 1"} {
		for k := 1; k <= most; k++ {
			for _, code := range []int{2, 1} {
				what := fmt.Sprintf("%s, every call number %d fails with %d", script, k, code)
				f := newFake(t, script+";late 5")
				dev := f.use(0)
				m := &model{dev: dev, rng: newRand(uint64(k))}
				for range 5 {
					if err := m.step(); err != nil {
						t.Fatal(err)
					}
				}
				f.script(fmt.Sprintf("every %d %d", k, code))
				for range steps {
					if err := m.step(); err != nil {
						t.Errorf("%s: %v", what, err)
					}
				}
				if m.errs == 0 && k <= 4 {
					t.Errorf("%s, and nobody heard of it", what)
				}
				f.script("every 0 0")
				m.check(t, what)
				if stats, err := fuel.MemStats(dev); err != nil || stats.InUse != 0 {
					t.Errorf("%s: %d bytes are in use, %v", what, stats.InUse, err)
				}
			}
		}
	}
}

// The same from the first call on, when the device may not open at all.
func TestEveryKthFailureAtTheStart(t *testing.T) {
	for k := 1; k <= 30; k++ {
		f := newFake(t, fmt.Sprintf("every %d 1", k))
		dev := f.use(0)
		row(t)
		first := tour(dev)
		f.script("every 0 0")
		row(t)
		if err := tour(dev); err != nil {
			t.Errorf("every %d: %v, and then %v", k, first, err)
		}
	}
}

// What is kept for reuse counts once.
func TestKeptMemoryNeverCountsTwice(t *testing.T) {
	f := newFake(t, "total 1000000000")
	dev := f.use(0)
	from(t, dev, make([]byte, 100<<20)).Close()
	stats, err := fuel.MemStats(dev)
	if err != nil || stats.Cached < 100<<20 {
		t.Fatalf("%+v, %v", stats, err)
	}
	if got := fuel.WouldFit(dev, 1); got.Available < 1e9-256 || got.Available > 1e9 {
		t.Errorf("%+v of 1000000000", got)
	}
}

// More of the driver's memory than there is is asked for at no time, and what is
// refused has its numbers.
func TestOutOfMemoryTellsTheNumbers(t *testing.T) {
	f := newFake(t, "total 100000000")
	dev := f.use(0)
	s := from(t, dev, make([]byte, 60e6))
	_, err := fuel.Alloc(dev, fuel.U8, 60e6, nil)
	var oom *fuel.OutOfMemoryError
	if !errors.As(err, &oom) {
		t.Fatalf("%v", err)
	}
	t.Log(err)
	if _, err := fuel.Alloc(dev, fuel.U8, 101e6, nil); !errors.Is(err, fuel.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	s.Close()
	if s, err := fuel.Alloc(dev, fuel.U8, 60e6, nil); err != nil {
		t.Errorf("after a Close: %v", err)
	} else {
		s.Close()
	}
}

func TestUserKernelNeverChangesAClone(t *testing.T) {
	for _, script := range []string{"late 5", "late 5;attr 18 1", "late 0"} {
		t.Run(script, func(t *testing.T) {
			f := newFake(t, script)
			dev := f.use(1)
			checkKernels(t, f.dl, dev, row(t).Devices[1].Unified)
		})
	}
}

// Work outside fuel is waited for, however long it takes, and only by those who
// must.
func TestExternalWorkIsWaitedFor(t *testing.T) {
	for _, script := range []string{"", "attr 18 1"} {
		t.Run(script, func(t *testing.T) {
			f := newFake(t, script)
			dev := f.use(0)
			u := newUser(t, f.dl, dev)
			b := random(newRand(8), 1000)
			s := from(t, dev, b)
			f.call("fakecuda_gate", 1)
			u.inside(func() { u.ok(f.call("fakecuda_hold", u.stream)) })
			u.launch(s, 9, true)
			u.known(s)
			read := make(chan []byte)
			go func() {
				got := make([]byte, len(b))
				if _, err := s.ReadAt(got, 0); err != nil {
					t.Error(err)
				}
				read <- got
			}()
			select {
			case got := <-read:
				t.Errorf("read before the work was done: %v", bytes.Equal(got, b))
			case <-time.After(50 * time.Millisecond):
			}
			q, err := fuel.QueueOf(dev)
			if err != nil {
				t.Fatal(err)
			}
			p, err := q.WaitExternal(fuel.External{Handle: uint64(u.event)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer stop()
			if err := q.Wait(ctx, p); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a wait that ends early: %v", err)
			}
			if q.Done(p) {
				t.Error("done")
			}
			f.call("fakecuda_gate", 0)
			if got := <-read; !bytes.Equal(got, plus(b, 9)) {
				t.Error("wrong bytes after it")
			}
			if err := q.Wait(t.Context(), p); err != nil {
				t.Error(err)
			}
			if _, err := q.WaitExternal(fuel.External{}); err == nil {
				t.Error("no event is waited for")
			}
		})
	}
}

// A driver that is newer than this package names its own results.
func TestUnknownResultHasTheDriversName(t *testing.T) {
	f := newFake(t, "always cuMemAlloc_v2 12345")
	_, err := fuel.Alloc(f.use(0), fuel.U8, 1, nil)
	if err == nil || !strings.Contains(err.Error(), "cuMemAlloc: CUDA_ERROR_OF_TOMORROW (12345)") {
		t.Errorf("%v", err)
	}
}

//go:build !fuel_static && !android && (amd64 || arm64)

package cuda

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/race"
)

var host fuel.Device

// pinned returns n bytes of host memory that is page-locked for dev.
func pinned(t testing.TB, dev fuel.Device, b []byte) *fuel.Storage {
	t.Helper()
	s, err := fuel.Alloc(host, fuel.U8, len(b), &fuel.Options{Pinned: dev, PinnedOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return s
}

// addr is where a Storage of the host is.
func addr(t testing.TB, s *fuel.Storage) uintptr {
	t.Helper()
	b, err := s.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))
}

// inUse is how many bytes the host has allocated, those included that a driver
// has not let go of.
func inUse(t testing.TB) int64 {
	t.Helper()
	s, err := fuel.MemStats(host)
	if err != nil {
		t.Fatal(err)
	}
	return s.Allocated
}

// becomes waits for what another goroutine does.
func becomes(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Error(what)
			return
		}
	}
}

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v is no %v", err, want)
	}
}

// Report 41 of USER-REPORTS.md: and what is page-locked never goes through
// staging, in either direction.
func TestPinnedMemoryIsNeverStaged(t *testing.T) {
	f := newFake(t, "late 40")
	dev := f.use(0)
	b := random(newRand(1), 9<<20+5)
	s := pinned(t, dev, b)
	if f.call("fakecuda_is", addr(t, s)).Int32() != 3 {
		t.Error("the driver does not know of it")
	}
	there, err := fuel.AllocUninit(dev, fuel.U8, len(b), nil)
	is(t, err, nil)
	for _, way := range []struct {
		dst, src *fuel.Storage
		name     string
	}{{there, s, "cuMemcpyHtoDAsync_v2"}, {s, there, "cuMemcpyDtoHAsync_v2"}} {
		before := f.count(way.name)
		plan, err := fuel.PlanCopy(way.dst, way.src)
		is(t, err, nil)
		var r fuel.CopyReport
		is(t, way.dst.CopyFrom(t.Context(), way.src, &fuel.CopyOptions{Report: &r}), nil)
		if plan.Staged != 0 || r.Staged != 0 || r.Bytes != len(b) || f.count(way.name) != before+1 || !strings.Contains(plan.Reason, "page-locked for cuda:0") {
			t.Errorf("planned %+v, went %+v, by %d calls of %s", plan, r, f.count(way.name)-before, way.name)
		}
		if way.src == s {
			is(t, s.Zero(t.Context()), nil)
		}
	}
	if !bytes.Equal(content(t, s), b) {
		t.Error("the bytes are wrong")
	}
	// Ordinary memory between, and a slice of page-locked memory.
	raw, err := s.Bytes()
	is(t, err, nil)
	n := f.count("cuMemHostAlloc")
	_, err = there.WriteAt(raw[77:1<<20], 3)
	is(t, err, nil)
	if f.count("cuMemHostAlloc") != n {
		t.Error("a slice of page-locked memory was staged")
	}
	if !bytes.Equal(content(t, there)[3:3+len(raw[77:1<<20])], raw[77:1<<20]) || f.count("cuMemHostAlloc") != n+1 {
		t.Errorf("%d calls of cuMemHostAlloc", f.count("cuMemHostAlloc")-n)
	}
	for _, s := range []*fuel.Storage{s, there} {
		is(t, s.Close(), nil)
	}
	if f.count("cuMemHostRegister_v2") != 1 || f.count("cuMemHostUnregister") != 1 {
		t.Error("it was registered more than once, or not let go of")
	}
}

// Report 68 (llama.cpp#1230): what the driver refuses is ordinary memory, and
// says why; PinnedOnly makes it an error.
func TestRefusedPinnedMemoryIsOrdinaryAndSaysWhy(t *testing.T) {
	for script, want := range map[string]string{
		"always cuMemHostRegister_v2 2":         "CUDA_ERROR_OUT_OF_MEMORY",
		"always cuMemHostRegister_v2 304":       "CUDA_ERROR_OPERATING_SYSTEM",
		"always cuMemHostRegister_v2 801":       "CUDA_ERROR_NOT_SUPPORTED",
		"always cuMemHostGetDevicePointer_v2 1": "cuMemHostGetDevicePointer",
		"pinned 5000":                           "CUDA_ERROR_OUT_OF_MEMORY",
		"attr 99 0":                             "cuda:0 does not page-lock host memory",
		"always cuDevicePrimaryCtxRetain 2":     "CUDA_ERROR_OUT_OF_MEMORY",
		"devices 0":                             "no device",
		"missing":                               "cuda:0 does not page-lock host memory",
	} {
		t.Run(script, func(t *testing.T) {
			var flags []string
			if script == "missing" {
				flags, script = rename("cuMemHostUnregister"), ""
			}
			f := newFake(t, script, flags...)
			dev := f.use(0)
			before := inUse(t)
			s, err := fuel.Alloc(host, fuel.U8, 10000, &fuel.Options{Pinned: dev})
			if err != nil {
				t.Fatal(err)
			}
			if in := s.Region(); in.Pinned || !strings.Contains(in.PinnedRefused, want) {
				t.Errorf("%+v", in)
			}
			b := random(newRand(2), 10000)
			_, err = s.WriteAt(b, 0)
			is(t, err, nil)
			if there, err := s.To(t.Context(), dev, nil); err == nil {
				if !bytes.Equal(content(t, there), b) {
					t.Error("the bytes are wrong")
				}
				there.Close()
			}
			is(t, s.Pin(t.Context(), dev), fuel.ErrPinned)
			is(t, s.Close(), nil)
			s, err = fuel.Alloc(host, fuel.U8, 10000, &fuel.Options{Pinned: dev, PinnedOnly: true})
			is(t, err, fuel.ErrPinned)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, %v", s, err)
			}
			if n := inUse(t); n != before {
				t.Errorf("%d bytes are in use", n-before)
			}
			if f.count("cuMemHostRegister_v2") > 0 && f.count("cuMemHostGetDevicePointer_v2") != f.count("cuMemHostUnregister") {
				t.Error("it is still registered")
			}
		})
	}
}

// Report 45 of USER-REPORTS.md (stark-backend#388): the bytes are the host's, and
// outlive the device.
func TestClosedDeviceNeverTakesPinnedMemory(t *testing.T) {
	f := newFake(t, "")
	before := inUse(t)
	b := random(newRand(3), 5000)
	var s, imported, clone *fuel.Storage
	t.Run("open", func(t *testing.T) {
		f.t = t
		dev := f.use(0)
		s = pinned(t, dev, b)
		var err error
		imported, err = s.To(t.Context(), dev, &fuel.CopyOptions{Import: true})
		is(t, err, nil)
		clone, err = s.Clone()
		is(t, err, nil)
	})
	if in := clone.Region(); in.Pinned || !strings.Contains(in.PinnedRefused, "cuda:0 was closed") {
		t.Errorf("%+v", in)
	}
	if !bytes.Equal(content(t, s), b) {
		t.Error("the bytes are wrong")
	}
	_, err := imported.ReadAt(make([]byte, 1), 0)
	is(t, err, fuel.ErrDeviceLost)
	_, err = s.WriteAt([]byte{1}, 9)
	is(t, err, nil)
	if !bytes.Equal(content(t, clone), b) {
		t.Error("the clone changed")
	}
	// It can be page-locked again.
	t.Run("again", func(t *testing.T) {
		f.t = t
		dev := f.use(0)
		is(t, clone.Pin(t.Context(), dev), nil)
		if in := clone.Region(); !in.Pinned || in.PinnedRefused != "" {
			t.Errorf("%+v", in)
		}
		for _, s := range []*fuel.Storage{s, clone, imported} {
			is(t, s.Close(), nil)
		}
	})
	becomes(t, "the memory is not given back", func() bool { return inUse(t) == before })
}

// A lost device keeps its hands on what it has page-locked until it is closed;
// the bytes are there for as long as anybody wants them.
func TestLostDeviceNeverTakesPinnedMemory(t *testing.T) {
	f := newFake(t, "")
	before := inUse(t)
	dev := f.use(0)
	b := random(newRand(4), 5000)
	s := pinned(t, dev, b)
	f.script("sticky cuMemcpyHtoDAsync_v2 1 700")
	is(t, tour(dev), fuel.ErrDeviceLost)
	if !bytes.Equal(content(t, s), b) {
		t.Error("the bytes are wrong")
	}
	_, err := s.To(t.Context(), dev, nil)
	is(t, err, fuel.ErrDeviceLost)
	is(t, s.Close(), nil)
	row(t) // closes the lost device
	becomes(t, "the memory is not given back", func() bool { return inUse(t) == before })
	s = pinned(t, dev, b)
	is(t, tour(dev), nil)
	is(t, s.Close(), nil)
}

// Where the driver does not let go of memory, nobody else gets it.
func TestRefusedUnregisterNeverFreesMemory(t *testing.T) {
	for _, script := range []string{"fail cuMemHostUnregister 1 1", "fail cuCtxSetCurrent 1 1", "fail cuCtxGetCurrent 1 1"} {
		f := newFake(t, "")
		dev := f.use(0)
		before := inUse(t)
		b := random(newRand(5), 5000)
		s := pinned(t, dev, b)
		f.script(script)
		is(t, s.Close(), nil)
		if inUse(t) == before {
			t.Errorf("%s: it was freed while the driver had it", script)
		}
		pinned(t, dev, b).Close() // tries again
		becomes(t, script+": the memory is not given back", func() bool { return inUse(t) == before })
	}
}

// The driver refuses to register memory twice (712), so this package does it
// once, whoever wants it.
func TestMemoryIsNeverRegisteredTwice(t *testing.T) {
	f := newFake(t, "")
	dev := f.use(0)
	b := random(newRand(6), 3<<20)
	s := pinned(t, dev, b)
	var imports []*fuel.Storage
	for _, part := range [][2]int{{0, len(b)}, {0, 100}, {5000, 2 << 20}} {
		v, err := s.View(part[0], part[1])
		is(t, err, nil)
		var r fuel.CopyReport
		there, err := v.To(t.Context(), dev, &fuel.CopyOptions{Import: true, Report: &r})
		is(t, err, nil)
		if r.Path != fuel.PathImport {
			t.Errorf("%+v", r)
		}
		imports = append(imports, there)
		is(t, v.Close(), nil)
	}
	if n := f.count("cuMemHostRegister_v2"); n != 1 {
		t.Errorf("registered %d times", n)
	}
	is(t, s.Close(), nil)
	for i, part := range [][2]int{{0, len(b)}, {0, 100}, {5000, 2 << 20}} {
		if n := f.count("cuMemHostUnregister"); n != 0 {
			t.Errorf("unregistered %d times before its last user", n)
		}
		if !bytes.Equal(content(t, imports[i]), b[part[0]:][:part[1]]) {
			t.Errorf("import %d: the bytes are wrong", i)
		}
		is(t, imports[i].Close(), nil)
	}
	if n := f.count("cuMemHostUnregister"); n != 1 {
		t.Errorf("unregistered %d times", n)
	}

	if race.Enabled {
		return // the rest is imported from the pool, which is the Go heap then
	}
	// What overlaps is refused by the driver, and copied; so is another device.
	large, err := fuel.FromBytes(host, fuel.U8, b)
	is(t, err, nil)
	half, err := large.View(0, 1<<20+1)
	is(t, err, nil)
	first, err := half.To(t.Context(), dev, &fuel.CopyOptions{Import: true})
	is(t, err, nil)
	for _, to := range []fuel.Device{dev, {Kind: fuel.CUDA, Index: 1}} {
		var r fuel.CopyReport
		second, err := large.To(t.Context(), to, &fuel.CopyOptions{Import: true, Report: &r})
		is(t, err, nil)
		if r.Path != fuel.PathUpload || !strings.Contains(r.Note, "HOST_MEMORY_ALREADY_REGISTERED") || !bytes.Equal(content(t, second), b) {
			t.Errorf("%+v", r)
		}
		is(t, second.Close(), nil)
	}
	for _, s := range []*fuel.Storage{large, half, first} {
		is(t, s.Close(), nil)
	}
}

// A user's work finds imported memory at the device's address, which is not the
// host's on every system.
func TestImportedMemoryIsWhereTheDeviceSeesIt(t *testing.T) {
	f := newFake(t, "")
	dev := f.use(0)
	s := pinned(t, dev, make([]byte, 20000))
	v, err := s.View(9000, 5000)
	is(t, err, nil)
	there, err := v.To(t.Context(), dev, &fuel.CopyOptions{Import: true})
	is(t, err, nil)
	_, err = fuel.Dispatch(there, fuel.Cases[int]{CUDA: func(m fuel.CUDAMemory) (int, error) {
		h := addr(t, v)
		if p := uintptr(m.Pointer); p == h || f.call("fakecuda_is", p).Int32() != 3 || p%4096 != h%4096 || m.Bytes != 5000 {
			t.Errorf("%#x of %d bytes, and the host has it at %#x", p, m.Bytes, h)
		}
		return 0, nil
	}})
	is(t, err, nil)
	for _, s := range []*fuel.Storage{s, v, there} {
		is(t, s.Close(), nil)
	}
}

// A mapped file is registered to be read only, and copied where the driver
// cannot (llama.cpp#6206).
func TestMappedFileIsRegisteredReadOnlyOrCopied(t *testing.T) {
	b := random(newRand(8), 100<<10)
	name := filepath.Join(t.TempDir(), "f")
	is(t, os.WriteFile(name, b, 0o600), nil)
	for script, path := range map[string]fuel.CopyPath{"": fuel.PathImport, "attr 113 0": fuel.PathUpload} {
		f := newFake(t, script)
		dev := f.use(0)
		file, err := os.Open(name)
		is(t, err, nil)
		s, err := fuel.Map(file, fuel.U8, 0, len(b))
		is(t, err, nil)
		file.Close()
		is(t, s.Pin(t.Context(), dev), fuel.ErrPinned)
		var r fuel.CopyReport
		there, err := s.To(t.Context(), dev, &fuel.CopyOptions{Import: true, ImportMapped: true, Report: &r})
		is(t, err, nil)
		if r.Path != path || (r.Note == "") != (path == fuel.PathImport) {
			t.Errorf("%q: %+v", script, r)
		}
		is(t, s.Close(), nil)
		if !bytes.Equal(content(t, there), b) {
			t.Errorf("%q: the bytes are wrong", script)
		}
		is(t, there.Close(), nil)
	}
}

// Imported memory goes to another device as the host's does.
func TestPeerCopyFromImportedMemory(t *testing.T) {
	f := newFake(t, "peer 1")
	dev := f.use(0)
	b := random(newRand(9), 30000)
	s := pinned(t, dev, b)
	there, err := s.To(t.Context(), dev, &fuel.CopyOptions{Import: true})
	is(t, err, nil)
	other, err := there.To(t.Context(), fuel.Device{Kind: fuel.CUDA, Index: 1}, &fuel.CopyOptions{Peer: true})
	is(t, err, nil)
	if !bytes.Equal(content(t, other), b) {
		t.Error("the bytes are wrong")
	}
	for _, s := range []*fuel.Storage{s, there, other} {
		is(t, s.Close(), nil)
	}
}

// External memory of the user's own: page-locked where it is, and his again.
func TestPinOfWrappedMemoryGivesItBack(t *testing.T) {
	f := newFake(t, "late 10")
	dev := f.use(0)
	mem, err := cpu.Reserve(64 << 10)
	is(t, err, nil)
	b := random(newRand(10), len(mem))
	copy(mem, b)
	released := 0
	s, err := fuel.Wrap(fuel.U8, mem, func() {
		released++
		if f.count("cuMemHostUnregister") != 1 {
			t.Error("it was given back before the driver had let go of it")
		}
		is(t, cpu.Release(mem), nil)
	})
	is(t, err, nil)
	is(t, s.Pin(t.Context(), dev), nil)
	is(t, s.Pin(t.Context(), dev), nil)
	err = s.Pin(t.Context(), fuel.Device{Kind: fuel.CUDA, Index: 1})
	if is(t, err, fuel.ErrPinned); !strings.Contains(fmt.Sprint(err), "page-locked for cuda:0") {
		t.Error(err)
	}
	var r fuel.CopyReport
	there, err := s.To(t.Context(), dev, &fuel.CopyOptions{Report: &r})
	is(t, err, nil)
	if r.Staged != 0 || !bytes.Equal(content(t, there), b) {
		t.Errorf("%+v", r)
	}
	is(t, s.Close(), nil)
	is(t, there.Close(), nil)
	if released != 1 {
		t.Errorf("released %d times", released)
	}
}

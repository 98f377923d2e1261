//go:build !fuel_static && !android && (amd64 || arm64)

package cuda

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/dl"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/require"
)

// compiler returns a C compiler for the processor that the test runs on, which
// may be an emulated one.
func compiler(t testing.TB) string {
	t.Helper()
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if cross, err := exec.LookPath(machine + "-linux-gnu-gcc"); err == nil {
		return cross
	}
	gcc := require.Command(t, "gcc")
	out, err := exec.Command(gcc, "-dumpmachine").Output()
	if err != nil || !strings.HasPrefix(string(out), machine+"-") {
		require.Skip(t, "gcc", fmt.Sprintf("gcc is for %q, the test for %s: %v", out, machine, err))
	}
	return gcc
}

var built = map[string][]byte{} // by flags

// buildFake compiles the stand-in and returns the path of a copy of its own: so
// each has its own state.
func buildFake(t testing.TB, flags ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fuel-cuda")
	if err != nil {
		t.Fatal(err)
	}
	// It stays loaded, so the file goes with the test.
	t.Cleanup(func() { os.RemoveAll(dir) })
	lib := filepath.Join(dir, "libcuda.so.1")
	key := fmt.Sprint(flags)
	if built[key] == nil {
		args := append([]string{"-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-pthread", "-o", lib, "testdata/fakecuda.c"}, flags...)
		if out, err := exec.Command(compiler(t), args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if built[key], err = os.ReadFile(lib); err != nil {
			t.Fatal(err)
		}
		return lib
	}
	if err := os.WriteFile(lib, built[key], 0o700); err != nil {
		t.Fatal(err)
	}
	return lib
}

// A fake is a stand-in for libcuda, and the driver over it.
type fake struct {
	t   testing.TB
	dl  *dl.Library
	drv *driver
}

// newFake makes one with a script; see testdata/fakecuda.c. flags are the
// compiler's.
func newFake(t testing.TB, script string, flags ...string) *fake {
	t.Helper()
	path := buildFake(t, flags...)
	lib, err := dl.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t, lib, newDriver([]string{path}, gpu.Config{})}
	f.script(script)
	return f
}

func (f *fake) call(name string, args ...uintptr) dl.Result {
	f.t.Helper()
	p, err := f.dl.Lookup(name)
	if err != nil {
		f.t.Fatal(err)
	}
	return p.Call(args...)
}

func (f *fake) script(s string) {
	f.t.Helper()
	p, err := f.dl.Lookup("fakecuda_script")
	if err != nil {
		f.t.Fatal(err)
	}
	p.Call(uintptr(unsafe.Pointer(text(s))))
}

// count tells how often a function was called.
func (f *fake) count(name string) int {
	f.t.Helper()
	p, err := f.dl.Lookup("fakecuda_count")
	if err != nil {
		f.t.Fatal(err)
	}
	return int(p.Call(uintptr(unsafe.Pointer(text(name)))))
}

// live counts what the driver was not given back.
func (f *fake) live() int { return int(f.call("fakecuda_live")) }

// use makes the stand-in the CUDA driver until the test ends, when nothing of it
// may be left, and returns a device.
func (f *fake) use(index int) fuel.Device {
	f.t.Helper()
	restore := backend.Replace(backend.CUDA, f.drv.backend())
	f.t.Cleanup(func() {
		f.script("clear")
		restore()
		if n := f.live(); n != 0 {
			f.t.Errorf("%d things of the driver were not given back", n)
		}
	})
	return fuel.Device{Kind: fuel.CUDA, Index: index}
}

// row is what Probe says of CUDA.
func row(t testing.TB) fuel.BackendStatus {
	t.Helper()
	for _, s := range fuel.Reprobe(t.Context()) {
		if s.Kind == fuel.CUDA {
			return s
		}
	}
	t.Fatal("no row")
	return fuel.BackendStatus{}
}

//go:build !fuel_static && (amd64 || arm64)

package dl

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"
)

func TestCallsReachWindows(t *testing.T) {
	lib, err := Open("fuel-missing.dll", "kernel32.dll")
	if err != nil {
		t.Fatal(err)
	}
	if lib.Name() != "kernel32.dll" || !strings.EqualFold(filepath.Dir(lib.Path()), systemDirectory(t)) {
		t.Errorf("%q at %q", lib.Name(), lib.Path())
	}
	id, err := lib.Lookup("GetCurrentProcessId")
	if err != nil {
		t.Fatal(err)
	}
	if r := id.Call(); int(r.Int32()) != os.Getpid() {
		t.Errorf("process %d, want %d", r.Int32(), os.Getpid())
	}
	counter, err := lib.Lookup("QueryPerformanceCounter")
	if err != nil {
		t.Fatal(err)
	}
	var ticks int64
	if r := counter.Call(uintptr(unsafe.Pointer(&ticks))); !r.Bool() || ticks == 0 {
		t.Errorf("%#x, %d ticks", r, ticks)
	}
	if n := testing.AllocsPerRun(100, func() { id.Call() }); n > 1 {
		t.Errorf("%v allocations", n)
	}
	if p, err := lib.Lookup("NoSuchFunction"); !errors.Is(err, ErrNoSymbol) || p.Valid() {
		t.Errorf("NoSuchFunction: %v, %v", p, err)
	}
	if err := lib.Close(); err != nil {
		t.Error(err)
	}
	if _, err := lib.Lookup("GetCurrentProcessId"); err != ErrClosed {
		t.Errorf("after Close: %v", err)
	}
}

func systemDirectory(t *testing.T) string {
	t.Helper()
	dir, err := windows.GetSystemDirectory()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Report 83, rule R8: the current directory is never searched, as LoadLibrary
// does.
func TestOpenNeverLooksInTheCurrentDirectory(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(systemDirectory(t), "bcryptprimitives.dll"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "fuel-planted.dll")
	if err := os.WriteFile(path, b, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, name := range []string{"fuel-planted.dll", `.\fuel-planted.dll`, "fuel-planted"} {
		if lib, err := Open(name); err == nil {
			t.Errorf("%s: opened %s", name, lib.Path())
		}
	}
	// It is a library, and found where somebody says where.
	lib, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.EqualFold(lib.Path(), path) {
		t.Errorf("path %q, want %q", lib.Path(), path)
	}
	if err := lib.Close(); err != nil {
		t.Error(err)
	}
	h, err := windows.LoadLibrary("fuel-planted.dll")
	if err != nil {
		t.Fatalf("LoadLibrary does not find it, so this test proves nothing: %v", err)
	}
	windows.FreeLibrary(h)
}

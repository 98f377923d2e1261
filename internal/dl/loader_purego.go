//go:build !fuel_static && ((linux && !android && (amd64 || arm64 || loong64 || ppc64le || riscv64)) || (darwin && !ios && (amd64 || arm64)))

package dl

import (
	"errors"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

const unsupported = ""

var system loader = dlfcn{}

// dlfcn is the loader of POSIX. A failure's text is kept per thread, so each
// method stays on one.
type dlfcn struct{}

func (dlfcn) open(name string) (handle uintptr, path string, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return 0, "", errors.New(strings.TrimPrefix(err.Error(), name+": "))
	}
	return handle, linkedPath(handle), nil
}

func (dlfcn) lookup(handle uintptr, symbol string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlsym(handle, symbol)
}

func (dlfcn) close(handle uintptr) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlclose(handle)
}

// linkedPath returns the path of an open library: dlinfo's RTLD_DI_LINKMAP in
// glibc and musl. Darwin has no dlinfo.
func linkedPath(handle uintptr) string {
	const linkMap = 2
	dlinfo, err := purego.Dlsym(purego.RTLD_DEFAULT, "dlinfo")
	if err != nil {
		return ""
	}
	var m *struct { // of <link.h>
		addr uintptr
		name *byte
	}
	if failed := At(dlinfo).Call(handle, linkMap, uintptr(unsafe.Pointer(&m))); failed.Int32() != 0 || m == nil || m.name == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(m.name), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(m.name, n))
}

// call is for Call, which keeps alive what the arguments point to.
func call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

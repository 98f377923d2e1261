//go:build !fuel_static && (amd64 || arm64)

package dl

import (
	"path/filepath"
	"syscall"

	"golang.org/x/sys/windows"
)

const unsupported = ""

var system loader = loadLibrary{}

type loadLibrary struct{}

// open looks for a file name in System32 only, and for what the library at a
// path needs also beside it.
func (loadLibrary) open(name string) (handle uintptr, path string, err error) {
	flags := uintptr(windows.LOAD_LIBRARY_SEARCH_SYSTEM32)
	if filepath.IsAbs(name) {
		flags |= windows.LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR
	}
	h, err := windows.LoadLibraryEx(name, 0, flags)
	if err != nil {
		return 0, "", err
	}
	return uintptr(h), modulePath(h), nil
}

func (loadLibrary) lookup(handle uintptr, symbol string) (uintptr, error) {
	return windows.GetProcAddress(windows.Handle(handle), symbol)
}

func (loadLibrary) close(handle uintptr) error {
	return windows.FreeLibrary(windows.Handle(handle))
}

// modulePath returns the path of a loaded module, or nothing.
func modulePath(h windows.Handle) string {
	for size := uint32(windows.MAX_PATH); size <= 1<<15; size *= 2 {
		b := make([]uint16, size)
		n, err := windows.GetModuleFileName(h, &b[0], size)
		if err != nil || n == 0 {
			return ""
		}
		if n < size {
			return windows.UTF16ToString(b[:n])
		}
	}
	return ""
}

// call is for Call, which keeps alive what the arguments point to.
func call(fn uintptr, args ...uintptr) uintptr {
	r, _, _ := syscall.SyscallN(fn, args...)
	return r
}

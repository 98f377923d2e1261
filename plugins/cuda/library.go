package cuda

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"github.com/go-fuel/fuel/internal/dl"
)

// libraries are the names of the driver's library, in the order in which they
// are tried.
func libraries() []string { return librariesOf(runtime.GOOS, runtime.GOARCH) }

func librariesOf(goos, arch string) []string {
	switch goos {
	case "windows":
		return []string{"nvcuda.dll"}
	case "linux":
		// Never libcuda.so: toolkits have a stub of that name, which only fails
		// (numba#9732). The paths are for where the loader does not look by
		// itself, and for where it finds a stub first.
		list := []string{
			"libcuda.so.1",
			"/usr/lib/wsl/lib/libcuda.so.1",                  // WSL (WSL#8587)
			"/run/opengl-driver/lib/libcuda.so.1",            // NixOS (nixpkgs#349617)
			"/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",  // Jetson (frigate#6458)
			"/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1", // Jetson, JetPack 6
			"/usr/lib64/libcuda.so.1",                        // Fedora, SUSE
		}
		if debian := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]; debian != "" {
			list = append(list, "/usr/lib/"+debian+"-linux-gnu/libcuda.so.1") // Debian, Ubuntu
		}
		return list
	}
	return nil
}

// calls are functions of cuda.h, by their names there without cu and without
// the suffix of a version.
//
// The tag has the name that the library exports and what its parameters are:
// 32, 64 and size for numbers, ptr for addresses and for handles, which are
// addresses, too. TestFunctionsAreThoseOfTheDriver compares it with what NVIDIA
// declares. Names without a suffix of a function that has one are those of CUDA 3
// and take 32-bit sizes. "or" is another name of the same function in older
// drivers; an optional function may be missing.
//
// https://docs.nvidia.com/cuda/cuda-driver-api/ describes them all. CUDA 4 has
// them, but for what is said beside.
type calls struct {
	Init             dl.Proc `c:"cuInit 32"`
	DriverGetVersion dl.Proc `c:"cuDriverGetVersion ptr"`
	GetErrorName     dl.Proc `c:"cuGetErrorName 32 ptr" optional:"6.0"`

	DeviceGetCount     dl.Proc `c:"cuDeviceGetCount ptr"`
	DeviceGet          dl.Proc `c:"cuDeviceGet ptr 32"`
	DeviceGetName      dl.Proc `c:"cuDeviceGetName ptr 32 32"`
	DeviceGetUUID      dl.Proc `c:"cuDeviceGetUuid_v2 ptr 32" or:"cuDeviceGetUuid" optional:"9.2; 11.4 tells parts of a GPU (MIG) apart"`
	DeviceTotalMem     dl.Proc `c:"cuDeviceTotalMem_v2 ptr 32"`
	DeviceGetAttribute dl.Proc `c:"cuDeviceGetAttribute ptr 32 32"`

	DevicePrimaryCtxRetain  dl.Proc `c:"cuDevicePrimaryCtxRetain ptr 32"` // 7.0
	DevicePrimaryCtxRelease dl.Proc `c:"cuDevicePrimaryCtxRelease_v2 32" or:"cuDevicePrimaryCtxRelease"`
	CtxGetCurrent           dl.Proc `c:"cuCtxGetCurrent ptr"`
	CtxSetCurrent           dl.Proc `c:"cuCtxSetCurrent ptr"`

	StreamCreate      dl.Proc `c:"cuStreamCreate ptr 32"`
	StreamDestroy     dl.Proc `c:"cuStreamDestroy_v2 ptr"`
	StreamSynchronize dl.Proc `c:"cuStreamSynchronize ptr"`
	StreamWaitEvent   dl.Proc `c:"cuStreamWaitEvent ptr ptr 32"`

	EventCreate      dl.Proc `c:"cuEventCreate ptr 32"`
	EventDestroy     dl.Proc `c:"cuEventDestroy_v2 ptr"`
	EventRecord      dl.Proc `c:"cuEventRecord ptr ptr"`
	EventQuery       dl.Proc `c:"cuEventQuery ptr"`
	EventSynchronize dl.Proc `c:"cuEventSynchronize ptr"`

	MemAlloc        dl.Proc `c:"cuMemAlloc_v2 ptr size"`
	MemAllocManaged dl.Proc `c:"cuMemAllocManaged ptr size 32" optional:"6.0"`
	MemFree         dl.Proc `c:"cuMemFree_v2 64"`
	MemGetInfo      dl.Proc `c:"cuMemGetInfo_v2 ptr ptr"`
	MemHostAlloc    dl.Proc `c:"cuMemHostAlloc ptr size 32"`
	MemFreeHost     dl.Proc `c:"cuMemFreeHost ptr"`

	// Without these three host memory stays ordinary.
	MemHostRegister         dl.Proc `c:"cuMemHostRegister_v2 ptr size 32" or:"cuMemHostRegister" optional:"4.0"`
	MemHostUnregister       dl.Proc `c:"cuMemHostUnregister ptr" optional:"4.0"`
	MemHostGetDevicePointer dl.Proc `c:"cuMemHostGetDevicePointer_v2 ptr ptr 32" optional:"3.2"`

	MemcpyHtoD dl.Proc `c:"cuMemcpyHtoDAsync_v2 64 ptr size ptr"`
	MemcpyDtoH dl.Proc `c:"cuMemcpyDtoHAsync_v2 ptr 64 size ptr"`
	MemcpyDtoD dl.Proc `c:"cuMemcpyDtoDAsync_v2 64 64 size ptr"`
	MemsetD32  dl.Proc `c:"cuMemsetD32Async 64 32 size ptr"`

	// Without these three devices do not reach each other.
	DeviceCanAccessPeer dl.Proc `c:"cuDeviceCanAccessPeer ptr 32 32" optional:"4.0"`
	CtxEnablePeerAccess dl.Proc `c:"cuCtxEnablePeerAccess ptr 32" optional:"4.0"`
	MemcpyPeer          dl.Proc `c:"cuMemcpyPeerAsync 64 ptr 64 ptr size ptr" optional:"4.0"`
}

// A library is the driver's, initialized. It stays open for as long as the
// program runs.
type library struct {
	*dl.Library
	calls
	version int32    // of CUDA: 1000 times the major number, 10 times the minor one
	note    []string // what cuInit did to the program's signals
}

func (l *library) versionText() string {
	return fmt.Sprintf("CUDA %d.%d", l.version/1000, l.version%1000/10)
}

var (
	errNoLibrary = errors.New("there is no NVIDIA driver library")
	errNoDevices = errors.New("the driver shows no device")
)

// A loader opens the driver's library, and each file only once.
type loader struct {
	names  []string
	opened map[string]*dl.Library
}

func newLoader(names []string) *loader {
	return &loader{names: names, opened: map[string]*dl.Library{}}
}

// load returns the first library that has what is needed and is not a stub. The
// others' failures are in the error, the most telling one first.
func (o *loader) load() (*library, error) {
	if err := dl.Supported(); err != nil {
		return nil, err
	}
	var broken, failed []error
	var absent []string
	for _, name := range o.names {
		if _, err := os.Stat(name); filepath.IsAbs(name) && errors.Is(err, fs.ErrNotExist) {
			absent = append(absent, filepath.Dir(name))
			continue
		}
		l := o.opened[name]
		if l == nil {
			var err error
			if l, err = dl.Open(name); err != nil {
				failed = append(failed, err)
				continue
			}
			o.opened[name] = l
		}
		lib, err := initialize(l)
		switch {
		case err == nil:
			return lib, nil
		case errors.Is(err, stubLibrary) || errors.Is(err, dl.ErrNoSymbol):
			broken = append(broken, err) // another may be the right one
		default:
			return nil, err
		}
	}
	if broken != nil {
		return nil, errors.Join(broken...)
	}
	err := errNoLibrary
	if failed != nil {
		err = fmt.Errorf("%w: %w", err, errors.Join(failed...))
	}
	if absent != nil {
		err = fmt.Errorf("%w; and there is none in %s", err, strings.Join(absent, ", "))
	}
	return nil, err
}

// initialize looks the functions up and calls cuInit, which may start
// nvidia-modprobe and takes its time.
func initialize(l *dl.Library) (*library, error) {
	lib := &library{Library: l}
	err := lookUp(&lib.calls, l)
	if lib.DriverGetVersion.Valid() {
		// It works before cuInit, and what it cannot tell stays 0.
		lib.DriverGetVersion.Call(uintptr(unsafe.Pointer(&lib.version)))
	}
	if err != nil {
		return nil, fmt.Errorf("%s (%s): %w", l.Path(), lib.versionText(), err)
	}
	var r dl.Result
	changed := dl.Guarded(func() { r = lib.Init.Call(0) })
	lib.note = append(l.Changed(), changed...)
	if err := lib.failed("cuInit", r); err != nil {
		return nil, fmt.Errorf("%s (%s): %w", l.Path(), lib.versionText(), err)
	}
	return lib, nil
}

// lookUp sets the fields of c. It names what is missing.
func lookUp(c *calls, l *dl.Library) error {
	var missing []string
	for _, f := range fields(c) {
		p, err := l.Lookup(f.symbol)
		if err != nil && f.older != "" {
			p, err = l.Lookup(f.older)
		}
		if err != nil && !f.optional {
			missing = append(missing, f.symbol)
		}
		*f.proc = p
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%w: it has no %s", dl.ErrNoSymbol, strings.Join(missing, ", "))
}

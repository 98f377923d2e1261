package cuda

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"runtime"
	"strings"

	"github.com/go-fuel/fuel/internal/dl"
)

// explain adds to a failure what a person can do about it.
func explain(err error) error {
	if hints := hostMachine().hints(err); len(hints) > 0 {
		return fmt.Errorf("%w; %s", err, strings.Join(hints, "; "))
	}
	return err
}

// A machine is what the hints are read from.
type machine struct {
	goos    string
	getenv  func(string) (string, bool)
	files   fs.FS // from the root of the file system
	tryOpen func(name string) error
}

func hostMachine() machine {
	return machine{goos: runtime.GOOS, getenv: os.LookupEnv, files: os.DirFS("/"), tryOpen: tryOpen}
}

// tryOpen looks whether this user may use a device file.
func tryOpen(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// hints says what may be behind err.
func (m machine) hints(err error) []string {
	var r *callError
	switch {
	case errors.Is(err, dl.ErrUnsupported):
		return nil // it says all
	case errors.Is(err, errNoLibrary):
		return m.noLibrary()
	case errors.Is(err, stubLibrary):
		return []string{"this is the CUDA toolkit's stub, which only fails: take its folder out of LD_LIBRARY_PATH, and install the NVIDIA driver where there is none"}
	case errors.Is(err, dl.ErrNoSymbol):
		return []string{"the NVIDIA driver is too old, or this is another library: update the driver"}
	case errors.Is(err, errNoDevices), errors.Is(err, noDevice):
		return m.noDevice()
	case errors.Is(err, systemMismatch):
		hint := "the driver's library and its kernel module are of different versions: restart the machine after an update"
		if v := m.kernelModule(); v != "" {
			hint += " (the kernel has " + v + ")"
		}
		return append([]string{hint}, m.container("and update the driver of the host")...)
	case errors.Is(err, compatNotSupported):
		return []string{"a forward-compatible library (package cuda-compat) was found, and this GPU does not support that: take it out of LD_LIBRARY_PATH, or update the driver"}
	case errors.Is(err, systemNotReady):
		return []string{"the system is not ready: GPUs with NVSwitch need the service nvidia-fabricmanager, of the driver's version"}
	case errors.Is(err, mpsConnectionFailed):
		return []string{"CUDA's multi-process service does not answer: start nvidia-cuda-mps-control, or unset CUDA_MPS_PIPE_DIRECTORY"}
	case errors.Is(err, deviceUnavailable):
		return []string{"another process has the device for itself, or nobody may use it: see nvidia-smi -q -d COMPUTE"}
	case errors.Is(err, outOfMemory):
		return []string{"others use the device's memory: see nvidia-smi"}
	case (errors.Is(err, unknown) || errors.Is(err, operatingSystem)) && m.goos == "linux" && !m.wsl():
		return append([]string{"the kernel modules nvidia and nvidia-uvm must be loaded, as root: nvidia-modprobe -u; after suspending, reload nvidia-uvm"}, m.deviceFiles()...)
	case errors.As(err, &r):
		return m.deviceFiles()
	}
	return nil
}

// wsl reports whether this is Linux on Windows.
func (m machine) wsl() bool { return m.exists("dev/dxg") }

func (m machine) exists(name string) bool {
	_, err := fs.Stat(m.files, name)
	return err == nil
}

func (m machine) noLibrary() []string {
	switch {
	case m.goos == "windows":
		return []string{"NVIDIA's driver brings nvcuda.dll: install it"}
	case m.goos != "linux":
		return []string{"there is CUDA for Linux and Windows only"}
	case m.wsl():
		return []string{"install or update NVIDIA's driver in Windows, not in Linux: it brings /usr/lib/wsl/lib/libcuda.so.1"}
	}
	if m.kernelModule() == "" && !m.hasGPU() {
		return []string{"this machine has no NVIDIA GPU"}
	}
	if hints := m.container("and its library"); hints != nil {
		return hints
	}
	return []string{"install the NVIDIA driver (on Debian package libcuda1, on Ubuntu libnvidia-compute-…); the CUDA toolkit is not needed"}
}

// hasGPU reports whether a device on the PCI bus is NVIDIA's. Jetsons have none
// there.
func (m machine) hasGPU() bool {
	vendors, err := fs.Glob(m.files, "sys/bus/pci/devices/*/vendor")
	if err != nil || len(vendors) == 0 {
		return true // not known
	}
	for _, v := range vendors {
		if b, err := fs.ReadFile(m.files, v); err == nil && strings.TrimSpace(string(b)) == "0x10de" {
			return true
		}
	}
	return m.exists("sys/module/nvgpu")
}

// noDevice says why a driver may have no device.
func (m machine) noDevice() (hints []string) {
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"} {
		v, set := m.getenv(name)
		if set && (name[0] == 'C' || v == "" || v == "void" || v == "none") {
			hints = append(hints, fmt.Sprintf("%s=%q may hide devices", name, v))
		}
	}
	return append(append(hints, m.deviceFiles()...), m.container("")...)
}

// deviceFiles tells which file of a GPU is missing or closed to this user.
func (m machine) deviceFiles() (hints []string) {
	if m.goos != "linux" || m.wsl() {
		return nil
	}
	nodes, err := fs.Glob(m.files, "dev/nvidia[0-9]*")
	if err != nil || len(nodes) == 0 && !m.exists("dev/nvhost-gpu") {
		return []string{"there is no /dev/nvidia0: the kernel module is not loaded, or this is a container without the GPU"}
	}
	for _, n := range append(nodes, "dev/nvidiactl", "dev/nvidia-uvm") {
		if err := m.tryOpen("/" + n); errors.Is(err, fs.ErrPermission) {
			hints = append(hints, fmt.Sprintf("this user may not open /%s: give it the group that owns it, most often video, and log in again", n))
		}
	}
	return hints
}

// container says what containers lack by default.
func (m machine) container(more string) []string {
	inside := m.exists(".dockerenv") || m.exists("run/.containerenv")
	devices, given := m.getenv("NVIDIA_VISIBLE_DEVICES")
	if given && devices != "" && devices != "void" {
		c, _ := m.getenv("NVIDIA_DRIVER_CAPABILITIES")
		if c != "" && c != "all" && !strings.Contains(c, "compute") {
			return []string{fmt.Sprintf("NVIDIA_DRIVER_CAPABILITIES is %q: CUDA in a container needs compute in it, or all", c)}
		}
		if inside {
			return []string{"this container asks for GPUs, and NVIDIA's container toolkit did not give them: start it with --gpus all, or --runtime nvidia"}
		}
		return nil
	}
	if !inside {
		return nil
	}
	return []string{strings.TrimSpace("this is a container: give it the GPU (docker run --gpus all) " + more)}
}

var moduleVersion = regexp.MustCompile(`Kernel Module[^\n]*?\s+(\d+(\.\d+)+)`)

// kernelModule is the version of NVIDIA's kernel module, or empty.
func (m machine) kernelModule() string {
	b, err := fs.ReadFile(m.files, path.Join("proc", "driver", "nvidia", "version"))
	if err != nil {
		return ""
	}
	if found := moduleVersion.FindStringSubmatch(string(b)); found != nil {
		return found[1]
	}
	return ""
}

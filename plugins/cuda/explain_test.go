package cuda

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-fuel/fuel/internal/dl"
)

const kernelVersion = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024\nGCC version: gcc\n"

// Item 4 of what the plugin must do: a person learns which of the reasons it is.
func TestReasonsTellWhatToDo(t *testing.T) {
	noLibrary := fmt.Errorf("%w: tried", errNoLibrary)
	code := func(r result) error { return &callError{call: "cuInit", result: r} }
	gpu := []string{"sys/bus/pci/devices/0000:01:00.0/vendor=0x10de\n"}
	loaded := append(gpu, "proc/driver/nvidia/version="+kernelVersion, "dev/nvidia0=")
	for name, c := range map[string]struct {
		err    error
		goos   string
		files  []string
		env    string
		closed bool // no permission on device files
		want   string
	}{
		"no GPU":                {noLibrary, "linux", []string{"sys/bus/pci/devices/0000:01:00.0/vendor=0x8086\n"}, "", false, "has no NVIDIA GPU"},
		"no driver":             {noLibrary, "linux", gpu, "", false, "install the NVIDIA driver (on Debian"},
		"Jetson":                {noLibrary, "linux", nil, "", false, "install the NVIDIA driver"},
		"WSL":                   {noLibrary, "linux", []string{"dev/dxg="}, "", false, "driver in Windows"},
		"Windows":               {noLibrary, "windows", nil, "", false, "nvcuda.dll"},
		"macOS":                 {noLibrary, "darwin", nil, "", false, "Linux and Windows only"},
		"container":             {noLibrary, "linux", append(loaded, ".dockerenv="), "", false, "--gpus all"},
		"container, no runtime": {noLibrary, "linux", append(loaded, ".dockerenv="), "NVIDIA_VISIBLE_DEVICES=all", false, "container toolkit did not give them"},
		"capability":            {noLibrary, "linux", append(loaded, ".dockerenv="), "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=graphics", false, "needs compute in it"},
		"stub":                  {code(stubLibrary), "linux", gpu, "", false, "toolkit's stub"},
		"mismatch":              {code(systemMismatch), "linux", loaded, "", false, "the kernel has 550.54.14"},
		"forward":               {code(compatNotSupported), "linux", loaded, "", false, "cuda-compat"},
		"fabric":                {code(systemNotReady), "linux", loaded, "", false, "nvidia-fabricmanager"},
		"MPS":                   {code(mpsConnectionFailed), "linux", loaded, "", false, "multi-process"},
		"exclusive":             {code(deviceUnavailable), "linux", loaded, "", false, "COMPUTE"},
		"no device":             {code(noDevice), "linux", gpu, "", false, "there is no /dev/nvidia0"},
		"hidden":                {code(noDevice), "linux", loaded, "CUDA_VISIBLE_DEVICES=", false, `CUDA_VISIBLE_DEVICES="" may hide`},
		"hidden by number":      {errNoDevices, "linux", loaded, "CUDA_VISIBLE_DEVICES=7", false, `CUDA_VISIBLE_DEVICES="7" may hide`},
		"void":                  {code(noDevice), "linux", loaded, "NVIDIA_VISIBLE_DEVICES=void", false, `NVIDIA_VISIBLE_DEVICES="void" may hide`},
		"permission":            {code(noDevice), "linux", loaded, "", true, "may not open /dev/nvidia0"},
		"permission, 999":       {code(unknown), "linux", loaded, "", true, "may not open /dev/nvidia-uvm"},
		"permission, 304":       {code(operatingSystem), "linux", loaded, "", true, "nvidia-modprobe"},
		"another":               {code(101), "linux", loaded, "", true, "may not open /dev/nvidiactl"},
		"old":                   {fmt.Errorf("lib: %w: it has no cuX", dl.ErrNoSymbol), "linux", loaded, "", false, "update the driver"},
		"static program":        {dl.ErrUnsupported, "linux", nil, "", false, ""},
		"not a call":            {errors.New("other"), "linux", nil, "", false, ""},
		"WSL, no device":        {code(noDevice), "linux", []string{"dev/dxg="}, "", true, ""},
	} {
		m := machine{goos: c.goos, files: fstest.MapFS{}}
		for _, f := range c.files {
			path, data, _ := strings.Cut(f, "=")
			m.files.(fstest.MapFS)[path] = &fstest.MapFile{Data: []byte(data)}
		}
		m.getenv = func(name string) (string, bool) {
			i := slices.IndexFunc(strings.Fields(c.env), func(s string) bool { return strings.HasPrefix(s, name+"=") })
			if i < 0 {
				return "", false
			}
			return strings.TrimPrefix(strings.Fields(c.env)[i], name+"="), true
		}
		m.tryOpen = func(string) error {
			if c.closed {
				return &fs.PathError{Op: "open", Err: os.ErrPermission}
			}
			return nil
		}
		got := strings.Join(m.hints(c.err), "; ")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q does not say %q", name, got, c.want)
		}
	}
}

// Reports 23 (WSL#8587), 24 (frigate#6458) and 25 (ollama#9357).
func TestLibraryIsLookedForWhereItIs(t *testing.T) {
	names := strings.Join(librariesOf("linux", "arm64"), " ")
	for _, want := range []string{"libcuda.so.1 ", "/usr/lib/wsl/lib/", "/aarch64-linux-gnu/tegra/", "/run/opengl-driver/lib/"} {
		if !strings.Contains(names, want) {
			t.Errorf("%s is not in %s", want, names)
		}
	}
	if first := librariesOf("linux", "amd64")[0]; first != "libcuda.so.1" {
		t.Errorf("%s comes first", first)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		for _, n := range librariesOf("linux", arch) {
			if !strings.HasSuffix(n, "libcuda.so.1") {
				t.Errorf("%s may be a stub", n)
			}
		}
	}
	if w := librariesOf("windows", "amd64"); !slices.Equal(w, []string{"nvcuda.dll"}) { // dl looks in System32 only
		t.Error(w)
	}
	if m := librariesOf("darwin", "arm64"); m != nil {
		t.Error(m)
	}
}

func TestResultsSayTheirNames(t *testing.T) {
	for err, want := range map[error]string{
		&callError{"cuInit", "", 999}:               "cuInit: CUDA_ERROR_UNKNOWN (999)",
		&callError{"cuInit", "", 12346}:             "cuInit: CUresult 12346",
		&callError{"cuInit", "CUDA_ERROR_X", 12345}: "cuInit: CUDA_ERROR_X (12345)",
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}

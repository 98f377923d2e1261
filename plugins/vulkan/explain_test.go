package vulkan

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/dl"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/require"
)

const (
	manifest = "usr/share/vulkan/icd.d/radeon_icd.json"
	render   = "dev/dri/renderD128"
)

func tree(names ...string) fs.FS {
	m := fstest.MapFS{}
	for _, n := range names {
		m[n] = &fstest.MapFile{}
	}
	return m
}

func TestHintsNeverLeaveAPersonAlone(t *testing.T) {
	refuse := func(names ...string) func(string) error {
		return func(name string) error {
			for _, n := range names {
				if name == "/"+n {
					return fmt.Errorf("open %s: %w", name, fs.ErrPermission)
				}
			}
			return nil
		}
	}
	for _, c := range []struct {
		name    string
		m       machine
		env     map[string]string
		library bool     // there is one
		want    []string // parts of the hints, in order
		never   []string
	}{{
		name: "no library", m: machine{goos: "linux", files: tree()},
		want: []string{"libvulkan1", "vulkan-loader", "vulkan-icd-loader"}, never: []string{"container", "manifest"},
	}, {
		name: "no library in a container", m: machine{goos: "linux", files: tree(".dockerenv")},
		want: []string{"libvulkan1", "this is a container", "--device /dev/dri"},
	}, {
		name: "no library on Windows", m: machine{goos: "windows", files: tree()},
		want: []string{"vulkan-1.dll"}, never: []string{"libvulkan1"},
	}, {
		name: "no library on macOS", m: machine{goos: "darwin", files: tree()},
		want: []string{"MoltenVK", "Metal"}, never: []string{"libvulkan1"},
	}, {
		name: "no manifest", library: true, m: machine{goos: "linux", files: tree(render)},
		want: []string{"no driver has a manifest in /etc/vulkan/icd.d", "mesa-vulkan-drivers"}, never: []string{"container", "may not open", "no GPU"},
	}, {
		name: "no GPU", library: true, m: machine{goos: "linux", files: tree(manifest)},
		want: []string{"no GPU in /dev/dri"}, never: []string{"manifest"},
	}, {
		name: "permission", library: true, m: machine{goos: "linux", files: tree(manifest, render, "dev/dri/renderD129"), tryOpen: refuse(render)},
		want: []string{"/dev/dri/renderD128", "group", "render"}, never: []string{"renderD129", "no GPU", "manifest"},
	}, {
		name: "permission, NVIDIA", library: true, m: machine{goos: "linux", files: tree(manifest, "dev/nvidia0", "dev/nvidiactl"), tryOpen: refuse("dev/nvidia0")},
		want: []string{"/dev/nvidia0"}, never: []string{"nvidiactl"},
	}, {
		name: "NVIDIA in a container without graphics", library: true, m: machine{goos: "linux", files: tree(manifest, "dev/nvidia0", ".dockerenv")},
		env:  map[string]string{"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"},
		want: []string{`NVIDIA_DRIVER_CAPABILITIES is "compute,utility"`, "graphics"}, never: []string{"--device"},
	}, {
		name: "NVIDIA in a container, capabilities not set", library: true, m: machine{goos: "linux", files: tree(manifest, "dev/nvidia0")},
		env:  map[string]string{"NVIDIA_VISIBLE_DEVICES": "0"},
		want: []string{`NVIDIA_DRIVER_CAPABILITIES is ""`},
	}, {
		name: "NVIDIA in a container with graphics", library: true, m: machine{goos: "linux", files: tree(manifest, "dev/nvidia0", ".dockerenv")},
		env:   map[string]string{"NVIDIA_VISIBLE_DEVICES": "all", "NVIDIA_DRIVER_CAPABILITIES": "compute,graphics"},
		never: []string{"CAPABILITIES", "container"},
	}, {
		name: "podman", library: true, m: machine{goos: "linux", files: tree(manifest, "run/.containerenv")},
		want: []string{"no GPU", "this is a container"},
	}, {
		name: "VK_DRIVER_FILES", library: true, m: machine{goos: "linux", files: tree(render)},
		env:  map[string]string{"VK_DRIVER_FILES": "/nowhere.json"},
		want: []string{"VK_DRIVER_FILES=/nowhere.json names the only drivers"}, never: []string{"manifest in"},
	}, {
		name: "VK_ICD_FILENAMES", library: true, m: machine{goos: "windows", files: tree()},
		env:  map[string]string{"VK_ICD_FILENAMES": `C:\nowhere.json`},
		want: []string{`VK_ICD_FILENAMES=C:\nowhere.json`, "update the GPU's driver"},
	}} {
		t.Run(c.name, func(t *testing.T) {
			c.m.getenv = func(name string) string { return c.env[name] }
			if c.m.tryOpen == nil {
				c.m.tryOpen = refuse()
			}
			hints := c.m.noDriver
			if !c.library {
				hints = func() []string { return c.m.noLibrary() }
			}
			got := strings.Join(hints(), "; ")
			rest := got
			for _, w := range c.want {
				_, after, found := strings.Cut(rest, w)
				if !found {
					t.Fatalf("no %q in %q", w, got)
				}
				rest = after
			}
			for _, n := range c.never {
				if strings.Contains(got, n) {
					t.Errorf("%q in %q", n, got)
				}
			}
		})
	}
}

// The error itself stays, and a program without libraries is not told to
// install one.
func TestExplainNeverHidesTheError(t *testing.T) {
	for _, err := range []error{errNoDevices, fmt.Errorf("%w: no such file", errNoLibrary), &callError{"vkCreateInstance", incompatible}, errors.New("anything"), dl.ErrUnsupported} {
		got := explain(err)
		if !errors.Is(got, err) || !strings.HasPrefix(got.Error(), err.Error()) {
			t.Errorf("%v became %v", err, got)
		}
		if err == dl.ErrUnsupported && got != err {
			t.Errorf("%v", got)
		}
	}
}

// without is what must be so where there is no Vulkan.
func without(t *testing.T, want ...string) {
	t.Helper()
	for _, s := range fuel.Probe(t.Context()) {
		if s.Kind != fuel.Vulkan {
			continue
		}
		if len(s.Devices) != 0 || s.State == fuel.Available {
			t.Fatalf("%+v", s)
		}
		for _, w := range want {
			if !strings.Contains(s.Reason, w) {
				t.Errorf("no %q in %q", w, s.Reason)
			}
		}
		_, err := fuel.Alloc(fuel.Device{Kind: fuel.Vulkan}, fuel.U8, 1, nil)
		if !errors.Is(err, fuel.ErrUnavailable) || !strings.Contains(err.Error(), want[0]) {
			t.Errorf("Alloc: %v", err)
		}
	}
	s := closed(t, value(fuel.FromBytes(cpu, fuel.U8, count(1000)))(t))
	if !bytes.Equal(contents(t, s), count(1000)) {
		t.Error("the CPU does not work")
	}
}

func TestNothingFailsWithoutTheLibrary(t *testing.T) {
	d := newDriver(options{cpu: true, libraries: []string{"libvulkan-that-is-not-there.so.1"}}, gpu.Config{})
	useUnasked(t, d)
	if noLoader() {
		without(t, dl.ErrUnsupported.Error())
		return
	}
	without(t, "there is no Vulkan library", "libvulkan-that-is-not-there.so.1")
}

// noLoader reports whether this program can open no library at all.
func noLoader() bool {
	_, err := dl.Open("libvulkan-that-is-not-there.so.1")
	return errors.Is(err, dl.ErrUnsupported)
}

func TestNothingFailsWithoutALibraryOfVulkans(t *testing.T) {
	names := map[string]bool{} // libraries that every system has
	for _, n := range []string{"libm.so.6", "libc.so.6", "kernel32.dll", "/usr/lib/libSystem.B.dylib"} {
		if _, err := dl.Open(n); err == nil {
			names[n] = true
		}
	}
	for n := range names {
		useUnasked(t, newDriver(options{cpu: true, libraries: []string{n}}, gpu.Config{}))
		without(t, "vkGetInstanceProcAddr")
	}
	if len(names) == 0 {
		require.Skip(t, "vulkan", "no library can be loaded here")
	}
}

// The command's table and exit status, with drivers that are not there.
func TestCommandNeverFailsWithoutADriver(t *testing.T) {
	use(t, testDriver(gpu.Config{}))
	goTool := require.Command(t, "go")
	exe := filepath.Join(t.TempDir(), "fuel.exe")
	build := exec.Command(goTool, "build", "-o", exe, "../../cmd/fuel")
	build.Env = append(os.Environ(), "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, c := range map[string]struct{ env, want string }{
		"nowhere":   {"VK_DRIVER_FILES=/nonexistent", "VK_DRIVER_FILES=/nonexistent names the only drivers"},
		"processor": {"FUEL_VULKAN_CPU=0", ""},
		"asked":     {"FUEL_VULKAN_CPU=1", "vulkan:0"},
	} {
		cmd := exec.Command(exe, "probe")
		if emulator := os.Getenv("FUEL_TEST_EXEC"); emulator != "" {
			cmd = exec.Command(emulator, exe, "probe")
		}
		cmd.Env = append(os.Environ(), c.env)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if !bytes.Contains(out, []byte(c.want)) || !bytes.Contains(out, []byte("cpu")) {
			t.Errorf("%s: no %q in\n%s", name, c.want, out)
		}
	}
}

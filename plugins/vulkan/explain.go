package vulkan

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/go-fuel/fuel/internal/dl"
)

// explain adds to a failure what a person can do about it.
func explain(err error) error {
	host := machine{goos: runtime.GOOS, getenv: os.Getenv, files: os.DirFS("/"), tryOpen: tryOpen}
	var hints []string
	var r *callError
	switch {
	case errors.Is(err, dl.ErrUnsupported):
		return err // it says all
	case errors.Is(err, errNoLibrary):
		hints = host.noLibrary()
	case errors.Is(err, errNoDevices), errors.As(err, &r) && (r.result == incompatible || r.result == initFailed):
		hints = host.noDriver()
	}
	if len(hints) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.Join(hints, "; "))
}

var errNoLibrary = errors.New("there is no Vulkan library")

// tryOpen looks whether this user may use a device file.
func tryOpen(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// A machine is what the hints are read from.
type machine struct {
	goos    string
	getenv  func(string) string
	files   fs.FS // from the root of the file system
	tryOpen func(name string) error
}

func (m machine) noLibrary() []string {
	switch m.goos {
	case "windows":
		return []string{"the GPU's driver brings vulkan-1.dll: install the vendor's, not the one that Windows found by itself"}
	case "darwin":
		return []string{"install MoltenVK (brew install molten-vk vulkan-loader); fuel's plugin for Metal needs neither"}
	}
	hints := []string{"install the loader: package libvulkan1 on Debian and Ubuntu, vulkan-loader on Fedora and Alpine, vulkan-icd-loader on Arch"}
	return append(hints, m.container()...)
}

// manifestDirs are where the loader looks for its drivers on Linux.
var manifestDirs = []string{"etc/vulkan/icd.d", "usr/local/etc/vulkan/icd.d", "usr/local/share/vulkan/icd.d", "usr/share/vulkan/icd.d"}

// noDriver says why a loader may have no driver, or a driver no device.
func (m machine) noDriver() (hints []string) {
	for _, name := range []string{"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} {
		if v := m.getenv(name); v != "" {
			hints = append(hints, fmt.Sprintf("%s=%s names the only drivers that are looked at", name, v))
		}
	}
	if m.goos != "linux" {
		return append(hints, "install or update the GPU's driver")
	}
	if hints == nil && !m.hasManifest() {
		hints = append(hints, "no driver has a manifest in /"+strings.Join(manifestDirs, " or /")+
			": install the GPU's driver (mesa-vulkan-drivers for AMD, Intel and most boards; NVIDIA's own comes with its driver)")
	}
	return append(append(hints, m.deviceFiles()...), m.container()...)
}

func (m machine) hasManifest() bool {
	for _, dir := range manifestDirs {
		found, err := fs.Glob(m.files, path.Join(dir, "*.json"))
		if err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// deviceFiles tells which GPU this user may not open.
func (m machine) deviceFiles() (hints []string) {
	nodes, err := fs.Glob(m.files, "dev/dri/renderD*")
	nvidia, _ := fs.Glob(m.files, "dev/nvidia[0-9]*") // the pattern is right
	if err == nil && len(nodes)+len(nvidia) == 0 {
		return []string{"there is no GPU in /dev/dri or /dev/nvidia*"}
	}
	for _, n := range append(nodes, nvidia...) {
		if err := m.tryOpen("/" + n); errors.Is(err, fs.ErrPermission) {
			hints = append(hints, fmt.Sprintf("this user may not open /%s: add it to the group that owns it, most often render or video, and log in again", n))
		}
	}
	return hints
}

// container says what containers lack by default.
func (m machine) container() []string {
	inside := false
	for _, f := range []string{".dockerenv", "run/.containerenv"} {
		if _, err := fs.Stat(m.files, f); err == nil {
			inside = true
		}
	}
	if !inside && m.getenv("NVIDIA_VISIBLE_DEVICES") == "" {
		return nil
	}
	if v := m.getenv("NVIDIA_VISIBLE_DEVICES"); v != "" && v != "void" {
		if c := m.getenv("NVIDIA_DRIVER_CAPABILITIES"); c != "all" && !strings.Contains(c, "graphics") {
			return []string{fmt.Sprintf("NVIDIA_DRIVER_CAPABILITIES is %q: Vulkan in a container needs graphics in it, or all", c)}
		}
		return nil
	}
	return []string{"this is a container: give it the GPU (--device /dev/dri, or --gpus all with NVIDIA_DRIVER_CAPABILITIES=all) and the driver's files"}
}

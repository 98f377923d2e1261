package fuel

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-fuel/fuel/internal/backend"
)

// A Kind is one of the closed set of backends. Its zero value is CPU.
//
// Each but CPU needs the plugin that [Kind.Import] names, imported for its
// side effect.
type Kind uint8

// The kinds.
const (
	CPU    = Kind(backend.CPU)    // host memory; always there
	CUDA   = Kind(backend.CUDA)   // NVIDIA, through the driver API
	Vulkan = Kind(backend.Vulkan) // any GPU with a Vulkan 1.1 driver
	Metal  = Kind(backend.Metal)  // Apple
)

// What is fixed for each Kind.
var (
	kindNames = []string{CPU: "cpu", CUDA: "cuda", Vulkan: "vulkan", Metal: "metal"}

	// plugins are import paths.
	plugins = [backend.NumKinds]string{
		CPU:    "github.com/go-fuel/fuel",
		CUDA:   "github.com/go-fuel/fuel/plugins/cuda",
		Vulkan: "github.com/go-fuel/fuel/plugins/vulkan",
		Metal:  "github.com/go-fuel/fuel/plugins/metal",
	}
)

// Kinds lists every Kind, in the order of their values.
func Kinds() []Kind {
	ks := make([]Kind, backend.NumKinds)
	for i := range ks {
		ks[i] = Kind(i)
	}
	return ks
}

func (k Kind) known() bool { return k < Kind(backend.NumKinds) }

// String returns the name in lower case, as Device uses it.
func (k Kind) String() string { return name(k, kindNames, "kind") }

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(text []byte) error { return unname(k, text, kindNames, "kind") }

// Import returns the import path of the package that provides the Kind, or ""
// for a value that is no Kind.
func (k Kind) Import() string {
	if !k.known() {
		return ""
	}
	return plugins[k]
}

// Device returns the Device of that Kind with the given index.
func (k Kind) Device(index int) Device { return Device{k, index} }

// Linked reports whether the program contains a driver for the Kind. It says
// nothing of the machine: see Probe for that.
func (k Kind) Linked() bool {
	if !k.known() {
		return false
	}
	registry.mu.Lock()
	defer registry.mu.Unlock()
	return registry.slots[k].driver != nil
}

// A Device is a Kind and an index among the devices of that Kind, from 0. It
// is comparable. Its zero value is the CPU, of which there is one.
type Device struct {
	Kind  Kind
	Index int
}

// String returns the text form: "cpu", "cuda:0", "vulkan:1".
func (d Device) String() string {
	if d == (Device{}) {
		return d.Kind.String()
	}
	return d.Kind.String() + ":" + strconv.Itoa(d.Index)
}

// ParseDevice reads the text form of a Device. A name without an index means
// index 0. Whether there is such a device is another question: see Probe.
func ParseDevice(s string) (Device, error) {
	kind, number, indexed := strings.Cut(s, ":")
	var d Device
	if err := d.Kind.UnmarshalText([]byte(kind)); err != nil {
		return Device{}, fmt.Errorf("fuel: device %q: the kinds are %s", s, strings.Join(kindNames, ", "))
	}
	if indexed {
		i, err := strconv.Atoi(number)
		if err != nil || strconv.Itoa(i) != number || i < 0 || d.Kind == CPU && i != 0 {
			return Device{}, fmt.Errorf("fuel: device %q: there is no such index", s)
		}
		d.Index = i
	}
	return d, nil
}

// MarshalText implements encoding.TextMarshaler.
func (d Device) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Device) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDevice(string(text))
	return err
}

// DeviceInfo is what a device can do.
type DeviceInfo struct {
	Device Device     `json:"device"`
	Name   string     `json:"name"`
	UUID   string     `json:"uuid,omitempty"` // stable across restarts, where the driver tells one
	Memory MemoryInfo `json:"memory"`

	MaxAlloc  int `json:"maxAlloc"`  // largest Storage in bytes; 0: no limit but memory
	Alignment int `json:"alignment"` // bytes; of every Storage allocated here

	Unified    bool `json:"unified"`    // its memory is the host's
	Pinned     bool `json:"pinned"`     // page-locks host memory: Options.Pinned, Storage.Pin
	Peer       bool `json:"peer"`       // can copy to its peers directly
	HostImport bool `json:"hostImport"` // can use host memory without a copy: CopyOptions.Import
	HostAlign  int  `json:"hostAlign"`  // bytes that address and length of host memory are multiples of for both; 0 where it does neither
}

// MemoryInfo counts bytes of memory. A figure of -1 is unknown, apart from 0.
type MemoryInfo struct {
	Total int64 `json:"total"`
	Free  int64 `json:"free"` // what an allocation could get now, as the system estimates it
}

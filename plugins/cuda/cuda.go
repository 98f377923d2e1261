package cuda

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

func init() {
	fuel.Register(fuel.CUDA, newDriver(libraries(), gpu.Config{}).backend())
}

// A driver is the state behind a backend.Driver.
type driver struct {
	config gpu.Config
	budget func() cpu.Budget // of the host

	mu      sync.Mutex
	loader  *loader
	lib     *library
	devices []*physical // of the last probe
}

// A physical is one device as the driver describes it.
type physical struct {
	lib     *library
	broken  error // why it cannot be used
	budget  func() cpu.Budget
	device  int32 // CUdevice
	name    string
	uuid    string
	total   int  // bytes of memory
	shares  bool // its memory is the host's
	managed bool // and one allocation is for both, at the same time
	peer    bool // it can reach another device

	registers      bool // host memory
	registersFixed bool // also such as cannot be written
}

func newDriver(libraries []string, c gpu.Config) *driver {
	return &driver{config: c, budget: cpu.HostBudget, loader: newLoader(libraries)}
}

func (d *driver) backend() *backend.Driver {
	return &backend.Driver{Kind: backend.CUDA, Package: "github.com/go-fuel/fuel/plugins/cuda", Probe: d.probe, Open: d.open}
}

// probe implements backend.Driver. It makes no context: that takes hundreds of
// megabytes of the device, and only a context can tell how many are free.
func (d *driver) probe(context.Context) (info backend.Info, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lib == nil {
		if d.lib, err = d.loader.load(); err != nil {
			return info, explain(err)
		}
	}
	info.Library = d.lib.Path()
	info.DriverVersion = d.lib.versionText()
	if v := hostMachine().kernelModule(); v != "" {
		info.DriverVersion += ", NVIDIA " + v
	}
	devices, err := d.lib.devices(d.budget)
	if err != nil {
		return info, explain(err)
	}
	info.Note = strings.Join(d.lib.note, "; ")
	d.devices = devices
	for _, p := range devices {
		info.Devices = append(info.Devices, p.info())
	}
	return info, nil
}

// devices lists them in the driver's order, those included that are broken.
func (l *library) devices(budget func() cpu.Budget) (list []*physical, err error) {
	var n int32
	if err := l.failed("cuDeviceGetCount", l.DeviceGetCount.Call(uintptr(unsafe.Pointer(&n)))); err != nil {
		return nil, err
	}
	var broken []error
	for i := range n {
		p, err := l.describe(i)
		if err != nil {
			p = &physical{lib: l, broken: err}
			broken = append(broken, fmt.Errorf("device %d: %w", i, err))
		}
		p.budget = budget
		list = append(list, p)
	}
	if len(broken) == len(list) {
		return nil, cmp.Or(errors.Join(broken...), errNoDevices)
	}
	for _, a := range list {
		a.peer = slices.ContainsFunc(list, func(b *physical) bool { return l.mayReach(a, b) })
	}
	return list, nil
}

const (
	attributeIntegrated        = 18 // CUdevice_attribute
	attributeManaged           = 83
	attributeConcurrentManaged = 89
)

// describe reads what there is to know of a device without a context.
func (l *library) describe(ordinal int32) (*physical, error) {
	p := &physical{lib: l}
	if err := l.failed("cuDeviceGet", l.DeviceGet.Call(uintptr(unsafe.Pointer(&p.device)), uintptr(uint32(ordinal)))); err != nil {
		return nil, err
	}
	name := make([]byte, 256)
	if err := l.failed("cuDeviceGetName", l.DeviceGetName.Call(uintptr(unsafe.Pointer(unsafe.SliceData(name))), uintptr(len(name)), uintptr(uint32(p.device)))); err != nil {
		return nil, err
	}
	before, _, _ := bytes.Cut(name, []byte{0})
	p.name = string(before)
	total := new(uintptr)
	if err := l.failed("cuDeviceTotalMem", l.DeviceTotalMem.Call(uintptr(unsafe.Pointer(total)), uintptr(uint32(p.device)))); err != nil {
		return nil, err
	}
	p.total = gpu.Int(uint64(*total))
	if l.DeviceGetUUID.Valid() {
		id := new([16]byte)
		// Without it the device has no stable name, which is no loss of memory.
		if l.DeviceGetUUID.Call(uintptr(unsafe.Pointer(id)), uintptr(uint32(p.device))).Int32() == 0 {
			p.uuid = fmt.Sprintf("GPU-%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		}
	}
	// What the driver says, and not what the sizes look like (llama.cpp#17536).
	p.shares = l.has(attributeIntegrated, p.device)
	p.managed = p.shares && l.MemAllocManaged.Valid() && l.has(attributeManaged, p.device) && l.has(attributeConcurrentManaged, p.device)
	p.registers = l.MemHostRegister.Valid() && l.MemHostUnregister.Valid() && l.MemHostGetDevicePointer.Valid() && l.has(attributeHostRegister, p.device)
	p.registersFixed = p.registers && l.has(attributeReadOnlyRegister, p.device)
	return p, nil
}

// has reports whether an attribute is there and not 0.
func (l *library) has(attribute, device int32) bool {
	v := new(int32)
	r := l.DeviceGetAttribute.Call(uintptr(unsafe.Pointer(v)), uintptr(attribute), uintptr(uint32(device)))
	return r.Int32() == 0 && *v != 0
}

// hostAlign is the unit of host memory that the device takes, 0 where it takes
// none. Where the driver does not register memory it is because the device does
// not see the host's caches (Tegra before Xavier): page-locked memory would be
// slow for the host there.
func (p *physical) hostAlign() int {
	if !p.registers {
		return 0
	}
	return os.Getpagesize()
}

func (p *physical) info() backend.DeviceInfo {
	return backend.DeviceInfo{
		Broken: p.broken,
		Name:   p.name, UUID: p.uuid,
		Memory:    backend.MemInfo{Total: int64(p.total), Free: backend.Unknown},
		MaxAlloc:  p.total,
		Alignment: alignment,
		Unified:   p.managed,
		Peer:      p.peer,
		// One call does both.
		Pinned:     p.registers,
		HostImport: p.registers,
		HostAlign:  p.hostAlign(),
	}
}

// open implements backend.Driver.
func (d *driver) open(_ context.Context, index int) (backend.Device, error) {
	d.mu.Lock()
	if index >= len(d.devices) {
		d.mu.Unlock()
		return nil, errors.New("no such device any more")
	}
	phys := d.devices[index]
	d.mu.Unlock()
	p, err := openPort(phys)
	if err != nil {
		return nil, explain(fmt.Errorf("%s: %w", phys.name, err))
	}
	return gpu.New(p, p.limits(), d.config), nil
}

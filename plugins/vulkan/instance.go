package vulkan

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/dl"
	"github.com/go-fuel/fuel/internal/gpu"
)

// Versions as Vulkan packs them.
const (
	version11 = 1<<22 | 1<<12
	version12 = 1<<22 | 2<<12
	version13 = 1<<22 | 3<<12
)

func versionText(v uint32) string {
	return fmt.Sprintf("%d.%d.%d", v>>22&0x7F, v>>12&0x3FF, v&0xFFF)
}

// VkStructureType.
const (
	typeApplicationInfo           = 0
	typeInstanceCreateInfo        = 1
	typeDeviceQueueCreateInfo     = 2
	typeDeviceCreateInfo          = 3
	typeSubmitInfo                = 4
	typeMemoryAllocateInfo        = 5
	typeMappedMemoryRange         = 6
	typeFenceCreateInfo           = 8
	typeSemaphoreCreateInfo       = 9
	typeBufferCreateInfo          = 12
	typeCommandPoolCreateInfo     = 39
	typeCommandBufferAllocateInfo = 40
	typeCommandBufferBeginInfo    = 42
	typeMemoryBarrier             = 46
	typeFeatures2                 = 1000059000
	typeProperties2               = 1000059001
	typeMemoryProperties2         = 1000059006
	typeExternalBufferInfo        = 1000071002
	typeExternalBufferProperties  = 1000071003
	typeIDProperties              = 1000071004
	typeExternalMemoryBuffer      = 1000072000
	typeMaintenance3Properties    = 1000168000
	typeImportMemoryHostPointer   = 1000178000
	typeMemoryHostPointer         = 1000178001
	typeExternalMemoryHost        = 1000178002
	typeDriverProperties          = 1000196000
	typeTimelineFeatures          = 1000207000
	typeSemaphoreTypeCreateInfo   = 1000207002
	typeTimelineSubmitInfo        = 1000207003
	typeSemaphoreWaitInfo         = 1000207004
	typeMemoryBudget              = 1000237000
	typeMaintenance4Properties    = 1000413001
)

// VkPhysicalDeviceType.
const (
	typeIntegrated = 1
	typeDiscrete   = 2
	typeVirtual    = 3
	typeCPU        = 4
)

const (
	queueGraphics = 1 << 0
	queueCompute  = 1 << 1

	enumeratePortability = 1 << 0 // VkInstanceCreateFlags
)

// An instance is a VkInstance and what it found.
type instance struct {
	lib    *library
	handle uintptr
	instanceCalls
	version uint32
	devices []*physical
	note    string
}

// A physical is one device as the driver describes it.
type physical struct {
	in         *instance
	handle     uintptr
	name       string
	uuid       string
	driver     string // name and version of the driver, for a person
	kind       uint32 // VkPhysicalDeviceType
	api        uint32 // version of Vulkan
	limits     physicalDeviceLimits
	memory     physicalDeviceMemoryProperties
	family     uint32 // of the queue
	extensions []string

	maxAllocation uint64 // 0: not told
	maxBuffer     uint64 // 0: not told
	importAlign   uint64 // of host memory; 0: cannot
	timeline      bool
	budget        bool
}

// options are what tests ask for.
type options struct {
	layers    []string
	libraries []string // the only names of the Vulkan library
	cpu       bool     // processors are devices, too
}

func (o options) names() []string {
	if o.libraries != nil {
		return o.libraries
	}
	return libraries()
}

// newInstance asks the loader for its drivers and their devices.
func newInstance(lib *library, opt options) (*instance, error) {
	in := &instance{lib: lib, version: version11}
	if r := result(lib.EnumerateInstanceVersion.Call(uintptr(unsafe.Pointer(&in.version))).Int32()); r != success {
		return nil, failed("vkEnumerateInstanceVersion", r)
	}
	if in.version < version11 {
		return nil, fmt.Errorf("the Vulkan loader is of version %s, and 1.1 is needed", versionText(in.version))
	}
	extensions, err := enumerate(func(n *uint32, list *extensionProperties) result {
		return result(lib.EnumerateInstanceExtensionProperties.Call(0, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(list))).Int32())
	})
	if err != nil {
		return nil, fmt.Errorf("vkEnumerateInstanceExtensionProperties: %w", err)
	}
	var flags uint32
	var enable []string
	const portability = "VK_KHR_portability_enumeration" // else MoltenVK hides its devices
	if slices.Contains(extensionNames(extensions), portability) {
		enable, flags = append(enable, portability), enumeratePortability
	}
	var p pinned
	defer p.Unpin()
	info := instanceCreateInfo{
		sType: typeInstanceCreateInfo,
		flags: flags,
		pApplicationInfo: at(&p, applicationInfo{
			sType:            typeApplicationInfo,
			pApplicationName: text(&p, "fuel"),
			pEngineName:      text(&p, "fuel"),
			apiVersion:       min(in.version, version13),
		}),
	}
	info.enabledLayerCount, info.ppEnabledLayerNames = names(&p, opt.layers)
	info.enabledExtensionCount, info.ppEnabledExtensionNames = names(&p, enable)
	var r result
	changed := dl.Guarded(func() { // drivers are loaded and initialized
		r = result(lib.CreateInstance.Call(uintptr(unsafe.Pointer(&info)), 0, uintptr(unsafe.Pointer(&in.handle))).Int32())
	})
	if err := failed("vkCreateInstance", r); err != nil {
		return nil, err
	}
	if err := lookUp(&in.instanceCalls, lib.proc(in.handle)); err != nil {
		return nil, err // without a way to destroy it
	}
	err = in.find(opt)
	in.note = strings.Join(append(lib.Changed(), changed...), "; ")
	if err != nil {
		in.destroy()
		return nil, err
	}
	return in, nil
}

// destroy gives the instance back. It has no devices any more.
func (in *instance) destroy() { in.DestroyInstance.Call(in.handle, 0) }

// names makes the two fields that a list of names is.
func names(p *pinned, list []string) (uint32, uintptr) {
	var pointers []uintptr
	for _, s := range list {
		pointers = append(pointers, text(p, s))
	}
	return uint32(len(list)), listOf(p, pointers)
}

func extensionNames(list []extensionProperties) []string {
	var s []string
	for i := range list {
		s = append(s, cString(list[i].extensionName[:]))
	}
	return s
}

// enumerate calls f for the number of things and then for them, until it gets
// all.
func enumerate[T any](f func(n *uint32, list *T) result) ([]T, error) {
	for {
		n := new(uint32)
		if r := f(n, nil); r != success {
			return nil, failed("its number", r)
		}
		if *n == 0 {
			return nil, nil
		}
		list := make([]T, *n)
		switch r := f(n, unsafe.SliceData(list)); r {
		case success:
			return list[:*n], nil
		case incomplete: // there are more meanwhile
		default:
			return nil, failed("its list", r)
		}
	}
}

// find lists the devices that fuel can use.
func (in *instance) find(opt options) error {
	handles, err := enumerate(func(n *uint32, list *uintptr) result {
		return result(in.EnumeratePhysicalDevices.Call(in.handle, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(list))).Int32())
	})
	if err != nil {
		return fmt.Errorf("vkEnumeratePhysicalDevices: %w", err)
	}
	var left []error
	for _, h := range handles {
		d, err := in.describe(h)
		switch {
		case err != nil:
			left = append(left, err)
		case d.kind == typeCPU && !opt.cpu:
			left = append(left, fmt.Errorf("%s is a processor: set FUEL_VULKAN_CPU=1 to use it all the same", d.name))
		case d.uuid != "" && slices.ContainsFunc(in.devices, func(o *physical) bool { return o.uuid == d.uuid }):
			// Another driver for the same device.
		default:
			in.devices = append(in.devices, d)
		}
	}
	if len(in.devices) > 0 {
		return nil
	}
	if len(handles) == 0 {
		return errNoDevices
	}
	return errors.Join(left...)
}

var errNoDevices = errors.New("no driver has a device")

// describe reads what there is to know of a device, or says why it is of no
// use.
func (in *instance) describe(handle uintptr) (*physical, error) {
	// 1.1's ...Properties2 must not be asked of a device of 1.0.
	props := new(physicalDeviceProperties)
	in.GetPhysicalDeviceProperties.Call(handle, uintptr(unsafe.Pointer(props)))
	d := &physical{in: in, handle: handle, name: cString(props.deviceName[:]), kind: props.deviceType, api: min(props.apiVersion, in.version), limits: props.limits}
	if d.api < version11 {
		return nil, fmt.Errorf("%s has Vulkan %s, and 1.1 is needed", d.name, versionText(props.apiVersion))
	}
	list, err := enumerate(func(n *uint32, list *extensionProperties) result {
		return result(in.EnumerateDeviceExtensionProperties.Call(handle, 0, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(list))).Int32())
	})
	if err != nil {
		return nil, fmt.Errorf("%s: vkEnumerateDeviceExtensionProperties: %w", d.name, err)
	}
	d.extensions = extensionNames(list)

	var p pinned
	defer p.Unpin()
	id := keep(&p, &physicalDeviceIDProperties{sType: typeIDProperties})
	m3 := keep(&p, &physicalDeviceMaintenance3Properties{sType: typeMaintenance3Properties, pNext: address(id)})
	next := address(m3)
	m4 := keep(&p, &physicalDeviceMaintenance4Properties{sType: typeMaintenance4Properties})
	if d.api >= version13 || d.has("VK_KHR_maintenance4") {
		m4.pNext, next = next, address(m4)
	}
	drv := keep(&p, &physicalDeviceDriverProperties{sType: typeDriverProperties})
	if d.api >= version12 || d.has("VK_KHR_driver_properties") {
		drv.pNext, next = next, address(drv)
	}
	host := keep(&p, &physicalDeviceExternalMemoryHostPropertiesEXT{sType: typeExternalMemoryHost})
	if d.has(extHost) {
		host.pNext, next = next, address(host)
	}
	all := &physicalDeviceProperties2{sType: typeProperties2, pNext: next}
	in.GetPhysicalDeviceProperties2.Call(handle, uintptr(unsafe.Pointer(all)))
	if id.deviceUUID != [16]uint8{} {
		d.uuid = hex.EncodeToString(id.deviceUUID[:])
	}
	d.maxAllocation, d.maxBuffer = m3.maxMemoryAllocationSize, m4.maxBufferSize
	d.importAlign = d.importUnit(host.minImportedHostPointerAlignment)
	d.driver = strings.TrimSpace(cString(drv.driverName[:]) + " " + cString(drv.driverInfo[:]))
	if d.driver == "" {
		d.driver = versionText(props.driverVersion)
	}

	line := keep(&p, &physicalDeviceTimelineSemaphoreFeatures{sType: typeTimelineFeatures})
	if d.api >= version12 || d.has(extTimeline) {
		features := &physicalDeviceFeatures2{sType: typeFeatures2, pNext: address(line)}
		in.GetPhysicalDeviceFeatures2.Call(handle, uintptr(unsafe.Pointer(features)))
		d.timeline = line.timelineSemaphore != 0
	}
	d.budget = d.has(extBudget)
	d.memory = d.readMemory(nil)
	if d.memory.memoryTypeCount == 0 {
		return nil, fmt.Errorf("%s has no memory", d.name)
	}
	return d, d.chooseQueue()
}

// Extensions of devices.
const (
	extTimeline    = "VK_KHR_timeline_semaphore"
	extHost        = "VK_EXT_external_memory_host"
	extBudget      = "VK_EXT_memory_budget"
	extPortability = "VK_KHR_portability_subset"
)

func (d *physical) has(extension string) bool { return slices.Contains(d.extensions, extension) }

// readMemory asks for the heaps and types, and for the budget if that is not
// nil.
func (d *physical) readMemory(budget *physicalDeviceMemoryBudgetPropertiesEXT) physicalDeviceMemoryProperties {
	var p pinned
	defer p.Unpin()
	m := &physicalDeviceMemoryProperties2{sType: typeMemoryProperties2}
	if budget != nil {
		m.pNext = address(keep(&p, budget))
	}
	d.in.GetPhysicalDeviceMemoryProperties2.Call(d.handle, uintptr(unsafe.Pointer(m)))
	return m.memoryProperties
}

// chooseQueue finds a family for everything: one with compute, which every
// driver lets transfer as well. Families for transfers alone have limits and
// faults of their own (llama.cpp#25229, iree#24838).
func (d *physical) chooseQueue() error {
	n := new(uint32)
	d.in.GetPhysicalDeviceQueueFamilyProperties.Call(d.handle, uintptr(unsafe.Pointer(n)), 0)
	families := make([]queueFamilyProperties, max(*n, 1))
	d.in.GetPhysicalDeviceQueueFamilyProperties.Call(d.handle, uintptr(unsafe.Pointer(n)), uintptr(unsafe.Pointer(unsafe.SliceData(families))))
	families = families[:*n]
	for _, need := range []uint32{queueGraphics | queueCompute, queueCompute, queueGraphics} {
		for i, f := range families {
			if f.queueCount > 0 && f.queueFlags&need == need {
				d.family = uint32(i)
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no queue for compute", d.name)
}

// layout plans memory for fuel's buffers, which may be in any type: what a
// driver leaves out for them is seen only when one is made, see port.Allocate.
func (d *physical) layout() layout { return plan(&d.memory, ^uint32(0)) }

// maxBlock is the most bytes of one buffer in one allocation.
func (d *physical) maxBlock(l layout) int {
	n := uint64(l.heap)
	for _, limit := range []uint64{d.maxAllocation, d.maxBuffer} {
		if limit > 0 {
			n = min(n, limit)
		}
	}
	return gpu.Int(n)
}

// shared reports whether staging memory is in a heap of Storages.
func (d *physical) shared(l layout) bool {
	heap := func(i uint32) uint32 { return d.memory.memoryTypes[i].heapIndex }
	for _, of := range [][]uint32{l.upload, l.readback} {
		for _, i := range l.storage {
			if len(of) > 0 && heap(i) == heap(of[0]) {
				return true
			}
		}
	}
	return false
}

// align is what every buffer view and descriptor of the device takes.
func (d *physical) align() int {
	n := uint64(64)
	for _, a := range []uint64{d.limits.minTexelBufferOffsetAlignment, d.limits.minUniformBufferOffsetAlignment, d.limits.minStorageBufferOffsetAlignment, d.limits.nonCoherentAtomSize} {
		n = max(n, a)
	}
	return gpu.Int(n)
}

// info is the device as the core knows it.
func (d *physical) info() backend.DeviceInfo {
	l := d.layout()
	return backend.DeviceInfo{
		Name:       d.name,
		UUID:       d.uuid,
		Memory:     d.memoryInfo(l),
		MaxAlloc:   d.maxBlock(l),
		Alignment:  d.align(),
		Unified:    l.unified && d.kind != typeDiscrete, // of which the host may reach all
		Pinned:     d.importAlign > 0,
		HostImport: d.importAlign > 0,
		HostAlign:  gpu.Int(d.importAlign),
	}
}

// memoryInfo sums up the heaps of Storages. What is free only some drivers
// tell, and some count memory there that is not (llama.cpp#29277).
func (d *physical) memoryInfo(l layout) backend.MemInfo {
	m := backend.MemInfo{Total: int64(l.heap), Free: backend.Unknown}
	if !d.budget {
		return m
	}
	budget := &physicalDeviceMemoryBudgetPropertiesEXT{sType: typeMemoryBudget}
	props := d.readMemory(budget)
	m.Free = 0
	for _, i := range l.storage {
		h := props.memoryTypes[i].heapIndex
		m.Free += freeOf(props.memoryHeaps[h].size, budget.heapBudget[h], budget.heapUsage[h])
	}
	return m
}

// freeOf is what is left of a heap's budget.
func freeOf(size, budget, used uint64) int64 {
	if budget = min(budget, size); used < budget {
		return int64(min(budget-used, 1<<63-1))
	}
	return 0
}

package vulkan

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/go-fuel/fuel/internal/gpu"
)

// VkExternalMemoryFeatureFlags.
const (
	featureDedicatedOnly = 1 << 0
	featureImportable    = 1 << 2
)

// importUnit is the unit of host memory that the device can use as its own, in
// bytes, 0 where it cannot. align is what it says of pointers.
func (d *physical) importUnit(align uint64) uint64 {
	if align == 0 || align&(align-1) != 0 {
		return 0
	}
	var p pinned
	defer p.Unpin()
	info := &physicalDeviceExternalBufferInfo{sType: typeExternalBufferInfo, usage: usageOfStorage, handleType: hostAllocation}
	props := keep(&p, &externalBufferProperties{sType: typeExternalBufferProperties})
	d.in.GetPhysicalDeviceExternalBufferProperties.Call(d.handle, uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(props)))
	if props.externalMemoryProperties.externalMemoryFeatures&(featureDedicatedOnly|featureImportable) != featureImportable {
		return 0
	}
	return align
}

// ImportAlign implements gpu.Importer.
func (p *port) ImportAlign() int {
	if !p.GetMemoryHostPointerPropertiesEXT.Valid() {
		return 0
	}
	return gpu.Int(p.phys.importAlign)
}

// Import implements gpu.Importer. Drivers refuse memory of some kinds, above
// all of mapped files (parallel-rdp-standalone#1).
func (p *port) Import(mem []byte, _ bool) (gpu.Block, error) {
	var pin pinned
	defer pin.Unpin()
	at := uintptr(unsafe.Pointer(unsafe.SliceData(mem))) // not the Go heap's
	props := &memoryHostPointerPropertiesEXT{sType: typeMemoryHostPointer}
	if err := p.call("vkGetMemoryHostPointerPropertiesEXT", p.GetMemoryHostPointerPropertiesEXT.Call(p.device, hostAllocation, at, uintptr(unsafe.Pointer(props))).Int32()); err != nil {
		return gpu.Block{}, err
	}
	info := &bufferCreateInfo{
		sType: typeBufferCreateInfo, size: uint64(len(mem)), usage: usageOfStorage,
		pNext: address(keep(&pin, &externalMemoryBufferCreateInfo{sType: typeExternalMemoryBuffer, handleTypes: hostAllocation})),
	}
	buffer := new(uint64)
	if err := p.call("vkCreateBuffer", p.CreateBuffer.Call(p.device, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(buffer))).Int32()); err != nil {
		return gpu.Block{}, err
	}
	memory, err := p.importTo(*buffer, mem, props.memoryTypeBits)
	if err != nil {
		p.DestroyBuffer.Call(p.device, uintptr(*buffer), 0)
		return gpu.Block{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks[*buffer] = &block{memory: memory} // nothing of a heap
	return gpu.Block{ID: *buffer, Size: len(mem)}, nil
}

// LetGo implements gpu.Importer: freeing cannot fail.
func (p *port) LetGo(b gpu.Block, _ func()) bool {
	p.Release(b)
	return true
}

// importTo gives a buffer host memory, which may be of the types of which allowed
// has the bit, and returns its VkDeviceMemory. Memory that is not coherent
// would need a flush of what others wrote.
func (p *port) importTo(buffer uint64, mem []byte, allowed uint32) (uint64, error) {
	need := new(memoryRequirements)
	p.GetBufferMemoryRequirements.Call(p.device, uintptr(buffer), uintptr(unsafe.Pointer(need)))
	if need.size > uint64(len(mem)) {
		return 0, fmt.Errorf("a buffer of %d bytes needs %d", len(mem), need.size)
	}
	var pin pinned
	defer pin.Unpin()
	info := &memoryAllocateInfo{
		sType: typeMemoryAllocateInfo, allocationSize: uint64(len(mem)),
		pNext: address(keep(&pin, &importMemoryHostPointerInfoEXT{
			sType: typeImportMemoryHostPointer, handleType: hostAllocation, pHostPointer: uintptr(unsafe.Pointer(unsafe.SliceData(mem))),
		})),
	}
	memory := new(uint64)
	var all []error
	m := &p.phys.memory
	for i := range min(m.memoryTypeCount, uint32(len(m.memoryTypes))) {
		const direct = hostVisible | hostCoherent
		if allowed&need.memoryTypeBits>>i&1 == 0 || m.memoryTypes[i].propertyFlags&direct != direct || m.memoryTypes[i].propertyFlags&^ordinary != 0 {
			continue
		}
		info.memoryTypeIndex = i
		err := p.call("vkAllocateMemory", p.AllocateMemory.Call(p.device, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(memory))).Int32())
		if err == nil {
			if err = p.call("vkBindBufferMemory", p.BindBufferMemory.Call(p.device, uintptr(buffer), uintptr(*memory), 0).Int32()); err == nil {
				return *memory, nil
			}
			p.FreeMemory.Call(p.device, uintptr(*memory), 0)
			return 0, err // a buffer is bound once
		}
		all = append(all, err)
	}
	if all == nil {
		return 0, fmt.Errorf("%s has no coherent memory type for it (%#x of %#x)", p.phys.name, need.memoryTypeBits, allowed)
	}
	return 0, errors.Join(all...)
}

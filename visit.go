package fuel

import (
	"context"
	"fmt"
	"sync"

	"github.com/go-fuel/fuel/internal/backend"
)

// CPUMemory is a Storage's memory on the host.
type CPUMemory struct {
	Bytes []byte // not to be kept; not to be written to but in VisitMutable
}

// CUDAMemory is a Storage's memory on a CUDA device, as its driver API names
// things. The context is the device's primary one; make it current on a locked
// thread (runtime.LockOSThread), and put back what was.
//
// Work of the caller's own on Stream comes after all of fuel's that was queued
// before, and before what fuel queues later. Work on another stream must wait for
// an event on Stream, and be waited for with Queue.WaitExternal. Where the
// device is unified (DeviceInfo) fuel also reads and writes directly, which no
// stream orders: there work on Stream, too, is made known by Queue.WaitExternal
// of an event behind it. No other work may use Stream while it is captured into a
// graph, so do not capture it.
type CUDAMemory struct {
	Pointer uint64  // CUdeviceptr of the first byte
	Context uintptr // CUcontext
	Stream  uintptr // CUstream that fuel's own work runs on
	Bytes   int
}

// VulkanMemory is a Storage's memory on a Vulkan device.
//
// Buffer is one that others are in, too: bind Bytes bytes from Offset on, never
// VK_WHOLE_SIZE. It may be a uniform, storage, texel or indirect buffer, and be
// copied from and to. Offset is a multiple of what the device asks for each of
// them where the Storage is a whole allocation.
//
// Work of the caller's own on Queue comes after all of fuel's that was queued
// before, and sees what that wrote. What it writes itself fuel's later work sees;
// the host does, and so do fuel's direct reads, after Queue.WaitExternal of a
// timeline semaphore that the work signals.
type VulkanMemory struct {
	Buffer uint64  // VkBuffer
	Offset uint64  // of the first byte in Buffer
	Device uintptr // VkDevice
	Queue  uintptr // VkQueue that fuel's own work runs on
	Family uint32  // its queue family
	Bytes  int

	Instance       uintptr // VkInstance, of version 1.1 or later
	PhysicalDevice uintptr // VkPhysicalDevice

	// Lock must be held while Queue is used: vkQueueSubmit and the like take
	// one caller at a time, and fuel is another. Do not call fuel under it.
	Lock sync.Locker
}

// MetalMemory is a Storage's memory on a Metal device.
//
// Buffer is one that others are in, too: use Bytes bytes from Offset on. Offset is a
// multiple of 256 where the Storage is a whole allocation. The objects are fuel's:
// retain what is kept for longer than the visit.
//
// Work of the caller's own on Queue comes after all of fuel's that was queued
// before, and sees what that wrote: Metal tracks hazards of these buffers. What it
// writes itself fuel's later work and fuel's direct reads see after
// Queue.WaitExternal of an MTLSharedEvent that the work signals.
type MetalMemory struct {
	Buffer uintptr // MTLBuffer
	Offset uint64  // of the first byte in Buffer
	Device uintptr // MTLDevice
	Queue  uintptr // MTLCommandQueue that fuel's own work runs on
	Bytes  int
}

// A Visitor is a match over the closed set of Kinds: one method for each. A
// new Kind makes every Visitor that lacks it a compile error. What a method
// returns, Visit returns.
//
// The memory is kept until the method returns. Work that goes on after that
// must be made known: see Queue.WaitExternal and Storage.UsedUntil.
type Visitor[R any] interface {
	VisitCPU(CPUMemory) (R, error)
	VisitCUDA(CUDAMemory) (R, error)
	VisitVulkan(VulkanMemory) (R, error)
	VisitMetal(MetalMemory) (R, error)
}

// Visit calls the method of v for the Kind of memory that s is in. v must only
// read the bytes. The error of v comes back as it is.
//
// On the CPU v may get mapped memory: see Map about files that are truncated.
func Visit[R any](s *Storage, v Visitor[R]) (R, error) {
	// The usual case in line: it is over before a call and the error that it
	// returns have gone by (BenchmarkVisit).
	r := loadRegion(&s.own.r)
	if pinned := r.tryPin(); !pinned || !s.readyOn(r) {
		var err error
		if r, err = s.pinReady(r, pinned); err != nil {
			var none R
			return none, s.fail("Visit", err)
		}
	}
	defer r.unpin()
	s.own.touchRead(s.off, s.size)
	if r.host() {
		return v.VisitCPU(CPUMemory{Bytes: r.bytes(s.off, s.size)})
	}
	return matchDevice(s, r, v)
}

// readyOn reports whether r, pinned, is what s has, with nothing to wait for
// nor to fail on.
func (s *Storage) readyOn(r *region) bool {
	return loadRegion(&s.own.r) == r && !s.closed.Load() && r.mem.lastUse.Load() == 0 && !r.mem.dev.lost.Load()
}

// pinReady returns the region with a reader counted in, after waiting for
// queued work, where a first try got no further than r, which may be pinned.
func (s *Storage) pinReady(r *region, pinned bool) (*region, error) {
	if pinned {
		r.unpin()
	}
	r, err := s.pin()
	if err != nil {
		return nil, err
	}
	if err = r.mem.dev.usable(); err == nil && s.size > 0 { // the handles of a lost device are dead
		err = r.settle(context.Background())
	}
	if err != nil {
		r.unpin()
		return nil, err
	}
	return r, nil
}

// VisitMutable is Visit for writing: it first makes the memory the owner's
// alone, and counts as a mutation, so Clone waits until v returns.
func VisitMutable[R any](s *Storage, v Visitor[R]) (R, error) {
	var r *region
	var err error
	if s.size == 0 { // no byte to make private
		if r, err = s.pinReady(nil, false); err == nil {
			defer r.unpin()
		}
	} else if r, err = s.startRaw(); err == nil {
		defer s.endWrite(r)
	}
	switch {
	case err != nil:
		var none R
		return none, s.fail("VisitMutable", err)
	case r.host():
		return v.VisitCPU(CPUMemory{Bytes: r.bytes(s.off, s.size)})
	}
	return matchDevice(s, r, v)
}

func matchDevice[R any](s *Storage, r *region, v Visitor[R]) (R, error) {
	var h backend.Handles
	var at uint64
	if s.size > 0 {
		h, at = r.mem.dev.be.Handles(r.mem.buf), uint64(s.off-r.origin)
	}
	switch r.mem.dev.id.Kind {
	case CUDA:
		return v.VisitCUDA(CUDAMemory{Pointer: h.Buffer + h.Offset + at, Context: uintptr(h.Device), Stream: uintptr(h.Queue), Bytes: s.size})
	case Vulkan:
		return v.VisitVulkan(VulkanMemory{Buffer: h.Buffer, Offset: h.Offset + at, Device: uintptr(h.Device), Queue: uintptr(h.Queue), Family: h.Family, Bytes: s.size,
			Instance: uintptr(h.Instance), PhysicalDevice: uintptr(h.Physical), Lock: h.Lock})
	case Metal:
		return v.VisitMetal(MetalMemory{Buffer: uintptr(h.Buffer), Offset: h.Offset + at, Device: uintptr(h.Device), Queue: uintptr(h.Queue), Bytes: s.size})
	}
	panic(fmt.Sprintf("BUG: fuel: memory of %s", r.mem.dev.id))
}

// Cases is a table of functions for Dispatch; *Cases is a Visitor. A case that
// is nil answers ErrUnsupportedKind.
type Cases[R any] struct {
	CPU    func(CPUMemory) (R, error)
	CUDA   func(CUDAMemory) (R, error)
	Vulkan func(VulkanMemory) (R, error)
	Metal  func(MetalMemory) (R, error)
}

// Dispatch is Visit with the case for the Kind of memory that s is in.
func Dispatch[R any](s *Storage, c Cases[R]) (R, error) {
	r, err := Visit(s, &c)
	if err == errNoCase {
		err = s.fail("Dispatch", fmt.Errorf("%w: no case for %s", ErrUnsupportedKind, s.Device().Kind))
	}
	return r, err
}

// errNoCase is what a Cases without the case answers.
var errNoCase = fmt.Errorf("%w: no case for it", ErrUnsupportedKind)

// VisitCPU calls the CPU case.
func (c *Cases[R]) VisitCPU(m CPUMemory) (R, error) { return call(c.CPU, m) }

// VisitCUDA calls the CUDA case.
func (c *Cases[R]) VisitCUDA(m CUDAMemory) (R, error) { return call(c.CUDA, m) }

// VisitVulkan calls the Vulkan case.
func (c *Cases[R]) VisitVulkan(m VulkanMemory) (R, error) { return call(c.Vulkan, m) }

// VisitMetal calls the Metal case.
func (c *Cases[R]) VisitMetal(m MetalMemory) (R, error) { return call(c.Metal, m) }

func call[M, R any](f func(M) (R, error), m M) (R, error) {
	if f == nil {
		var none R
		return none, errNoCase
	}
	return f(m)
}

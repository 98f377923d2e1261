package vulkan

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

const (
	stageTransfer = 0x1000 // VkPipelineStageFlags
	stageHost     = 0x4000
	stageAll      = 0x10000

	accessTransferRead  = 0x800 // VkAccessFlags
	accessTransferWrite = 0x1000
	accessHostRead      = 0x2000
	accessMemoryRead    = 0x8000
	accessMemoryWrite   = 0x10000

	// VkBufferUsageFlags: what somebody's own kernels may want of a buffer.
	usageTransfer  = 1<<0 | 1<<1
	usageOfStorage = usageTransfer | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<8 // texel, uniform, storage and indirect buffers

	resetCommandBuffer = 1 << 1 // VkCommandPoolCreateFlags
	oneTimeSubmit      = 1 << 0 // VkCommandBufferUsageFlags
	timelineSemaphore  = 1      // VkSemaphoreType
	hostAllocation     = 0x80   // VkExternalMemoryHandleTypeFlags
)

// inFlight is the number of batches that may be on their way at once. Only
// somebody who waits for another's semaphore comes near it.
const inFlight = 1024

// A port is a gpu.Port over one VkDevice.
type port struct {
	phys   *physical
	lim    gpu.Limits
	layout layout
	done   func() // gives the instance back
	inject func(call string, r result) result

	device, queue uintptr
	deviceCalls
	queueLock sync.Mutex // vkQueueSubmit is one caller's at a time; users have it too

	mu     sync.Mutex
	lost   atomic.Bool
	ended  sync.Once         // of the work of a lost device
	blocks map[uint64]*block // by VkBuffer
	used   [16]uint64        // bytes of each heap

	pool    uint64
	batches []*batch // the one that was used longest ago first; Submit's
	clock   clock
}

// A block is the driver's memory behind a gpu.Block.
type block struct {
	memory uint64
	heap   uint32
	size   uint64
}

// A batch is a command buffer, and all that is handed over with it: memory that
// stays where it is.
type batch struct {
	pinned
	commands uintptr
	point    backend.Point // of its last use
	fence    uint64        // where there are no timelines

	begin   *commandBufferBeginInfo
	submit  *submitInfo
	values  *timelineSemaphoreSubmitInfo
	waits   *[1]uint64
	stages  *[1]uint32
	until   *[1]uint64
	signals *[1]uint64
	value   *[1]uint64
	handles *[1]uintptr
	barrier *memoryBarrier
	region  *bufferCopy
}

// portOptions are what tests ask for.
type portOptions struct {
	fences bool                               // as if there were no timelines
	inject func(call string, r result) result // may change the result of a call; nil changes none
}

// openPort opens the device; done is called when it is closed, or at once where
// that fails.
func openPort(d *physical, o portOptions, done func()) (_ *port, err error) {
	p := &port{phys: d, layout: d.layout(), done: done, inject: o.inject, blocks: map[uint64]*block{}}
	defer func() {
		if err != nil {
			p.teardown()
		}
	}()
	timeline := d.timeline && !o.fences
	if err := p.create(timeline); err != nil {
		return nil, err
	}
	p.lim = gpu.Limits{
		MaxBlock:       d.maxBlock(p.layout),
		MaxAllocations: gpu.Int(uint64(d.limits.maxMemoryAllocationCount)),
		Heap:           p.layout.heap,
		Shared:         d.shared(p.layout),
		Align:          d.align(),
		Atom:           max(gpu.Int(d.limits.nonCoherentAtomSize), 1),
		FillUnit:       4,
		// NVIDIA's driver moves the start of some fills down to a multiple of
		// 16 (gfx-rs/wgpu#4122).
		FillAlign: 16,
	}
	get := p.GetDeviceQueue
	get.Call(p.device, uintptr(d.family), 0, uintptr(unsafe.Pointer(&p.queue)))
	pool := &commandPoolCreateInfo{sType: typeCommandPoolCreateInfo, flags: resetCommandBuffer, queueFamilyIndex: d.family}
	if err := p.call("vkCreateCommandPool", p.CreateCommandPool.Call(p.device, uintptr(unsafe.Pointer(pool)), 0, uintptr(unsafe.Pointer(&p.pool))).Int32()); err != nil {
		return nil, err
	}
	if timeline {
		p.clock, err = newTimeline(p)
	} else {
		p.clock = &fenced{port: p}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *port) call(name string, r int32) error { return failed(name, p.result(name, r)) }

// result is what a call on the device returned.
func (p *port) result(name string, code int32) result {
	r := result(code)
	if p.inject != nil {
		r = p.inject(name, r)
	}
	if r == deviceLost {
		p.lost.Store(true)
	}
	return r
}

// idle waits for all work. It comes back on a lost device, too.
func (p *port) idle() error {
	p.queueLock.Lock() // waiting for the device is a use of its queue
	defer p.queueLock.Unlock()
	return p.call("vkDeviceWaitIdle", p.DeviceWaitIdle.Call(p.device).Int32())
}

// create makes the VkDevice.
func (p *port) create(timeline bool) error {
	d := p.phys
	var pin pinned
	defer pin.Unpin()
	info := &deviceCreateInfo{
		sType:                typeDeviceCreateInfo,
		queueCreateInfoCount: 1,
		pQueueCreateInfos: at(&pin, deviceQueueCreateInfo{
			sType: typeDeviceQueueCreateInfo, queueFamilyIndex: d.family, queueCount: 1, pQueuePriorities: at(&pin, float32(1)),
		}),
	}
	var enable []string
	for _, e := range []string{extPortability, extHost, extBudget} {
		if d.has(e) { // portability must be enabled where it is listed
			enable = append(enable, e)
		}
	}
	if timeline {
		info.pNext = at(&pin, physicalDeviceTimelineSemaphoreFeatures{sType: typeTimelineFeatures, timelineSemaphore: 1})
		if d.api < version12 {
			enable = append(enable, extTimeline)
		}
	}
	info.enabledExtensionCount, info.ppEnabledExtensionNames = names(&pin, enable)
	if err := p.call("vkCreateDevice", d.in.CreateDevice.Call(d.handle, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(&p.device))).Int32()); err != nil {
		return err
	}
	return lookUp(&p.deviceCalls, func(name string) procedure { return d.in.lib.lookUpWith(d.in.GetDeviceProcAddr, p.device, name) })
}

// batch returns one that nothing uses: the oldest, a new one, or, where there
// are many, the oldest in the end.
func (p *port) batch() (*batch, error) {
	if len(p.batches) > 0 {
		oldest := p.batches[0]
		reached, err := p.Reached()
		if err == nil && oldest.point > reached {
			if len(p.batches) < inFlight {
				return p.newBatch()
			}
			err = p.Await(context.Background(), oldest.point)
		}
		if err != nil {
			return nil, err
		}
		p.batches = p.batches[1:]
		return oldest, nil
	}
	return p.newBatch()
}

func (p *port) newBatch() (*batch, error) {
	b := &batch{}
	info := &commandBufferAllocateInfo{sType: typeCommandBufferAllocateInfo, commandPool: p.pool, commandBufferCount: 1}
	if err := p.call("vkAllocateCommandBuffers", p.AllocateCommandBuffers.Call(p.device, uintptr(unsafe.Pointer(info)), uintptr(unsafe.Pointer(&b.commands))).Int32()); err != nil {
		return nil, err
	}
	pin := &b.pinned
	b.begin = keep(pin, &commandBufferBeginInfo{sType: typeCommandBufferBeginInfo, flags: oneTimeSubmit})
	b.waits, b.stages, b.until = keep(pin, new([1]uint64)), keep(pin, &[1]uint32{stageAll}), keep(pin, new([1]uint64))
	b.signals, b.value, b.handles = keep(pin, new([1]uint64)), keep(pin, new([1]uint64)), keep(pin, &[1]uintptr{b.commands})
	b.values = keep(pin, &timelineSemaphoreSubmitInfo{
		sType: typeTimelineSubmitInfo, pWaitSemaphoreValues: address(b.until), pSignalSemaphoreValues: address(b.value),
	})
	b.submit = keep(pin, &submitInfo{
		sType: typeSubmitInfo, pWaitSemaphores: address(b.waits), pWaitDstStageMask: address(b.stages),
		commandBufferCount: 1, pCommandBuffers: address(b.handles), pSignalSemaphores: address(b.signals),
	})
	b.barrier = keep(pin, &memoryBarrier{sType: typeMemoryBarrier})
	b.region = keep(pin, &bufferCopy{})
	if p.clock.external() {
		b.submit.pNext = address(b.values)
		return b, nil
	}
	fence := &fenceCreateInfo{sType: typeFenceCreateInfo}
	if err := p.call("vkCreateFence", p.CreateFence.Call(p.device, uintptr(unsafe.Pointer(fence)), 0, uintptr(unsafe.Pointer(&b.fence))).Int32()); err != nil {
		b.Unpin() // a Pinner that is collected before panics
		p.FreeCommandBuffers.Call(p.device, uintptr(p.pool), 1, uintptr(unsafe.Pointer(b.handles)))
		return nil, err
	}
	return b, nil
}

// Allocate implements gpu.Port.
func (p *port) Allocate(n int, use gpu.Use) (gpu.Block, error) {
	types := p.layout.storage
	usage := uint32(usageOfStorage)
	switch use {
	case gpu.Upload:
		types, usage = p.layout.upload, usageTransfer
	case gpu.Readback:
		types, usage = p.layout.readback, usageTransfer
	}
	info := &bufferCreateInfo{sType: typeBufferCreateInfo, size: uint64(n), usage: usage}
	buffer := new(uint64)
	if err := p.call("vkCreateBuffer", p.CreateBuffer.Call(p.device, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(buffer))).Int32()); err != nil {
		return gpu.Block{}, err
	}
	need := new(memoryRequirements)
	p.GetBufferMemoryRequirements.Call(p.device, uintptr(*buffer), uintptr(unsafe.Pointer(need)))
	var all []error
	for _, i := range types {
		if need.memoryTypeBits>>i&1 == 0 {
			continue
		}
		b, err := p.back(*buffer, need.size, i)
		if err == nil {
			b.Size = n
			if b.Host != nil {
				b.Host = b.Host[:n:n]
			}
			return b, nil
		}
		all = append(all, err)
		if !errors.Is(err, backend.ErrNoMemory) {
			break
		}
	}
	p.DestroyBuffer.Call(p.device, uintptr(*buffer), 0)
	if all == nil {
		return gpu.Block{}, fmt.Errorf("%s has no memory type for its buffers (%#x)", p.phys.name, need.memoryTypeBits)
	}
	return gpu.Block{}, errors.Join(all...)
}

// back gives a buffer memory of a type.
func (p *port) back(buffer, size uint64, i uint32) (gpu.Block, error) {
	heap := p.phys.memory.memoryTypes[i].heapIndex
	flags := p.phys.memory.memoryTypes[i].propertyFlags
	if err := p.reserve(heap, size); err != nil {
		return gpu.Block{}, err
	}
	info := &memoryAllocateInfo{sType: typeMemoryAllocateInfo, allocationSize: size, memoryTypeIndex: i}
	memory := new(uint64)
	err := p.call("vkAllocateMemory", p.AllocateMemory.Call(p.device, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(memory))).Int32())
	if err != nil {
		p.unreserve(heap, size)
		return gpu.Block{}, fmt.Errorf("%d bytes: %w", size, err)
	}
	err = p.call("vkBindBufferMemory", p.BindBufferMemory.Call(p.device, uintptr(buffer), uintptr(*memory), 0).Int32())
	b := gpu.Block{ID: buffer, Coherent: flags&hostCoherent != 0, Cached: flags&hostCached != 0}
	if err == nil && flags&hostVisible != 0 {
		mapped := new(unsafe.Pointer)
		err = p.call("vkMapMemory", p.MapMemory.Call(p.device, uintptr(*memory), 0, ^uintptr(0), 0, uintptr(unsafe.Pointer(mapped))).Int32())
		if err == nil {
			b.Host = unsafe.Slice((*byte)(*mapped), gpu.Int(size))
		}
	}
	if err != nil {
		p.FreeMemory.Call(p.device, uintptr(*memory), 0)
		p.unreserve(heap, size)
		return gpu.Block{}, fmt.Errorf("%d bytes: %w", size, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks[buffer] = &block{*memory, heap, size}
	return b, nil
}

const wholeSize = ^uint64(0)

// reserve counts memory of a heap before it is asked for: some drivers give
// more than there is, and lavapipe would.
func (p *port) reserve(heap uint32, n uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := p.phys.memory.memoryHeaps[heap].size
	if used := p.used[heap]; used > size || n > size-used {
		return fmt.Errorf("%w: %d bytes, and of the heap's %d there are %d in use", backend.ErrNoMemory, n, size, used)
	}
	p.used[heap] += n
	return nil
}

func (p *port) unreserve(heap uint32, n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used[heap] -= n
}

// Release implements gpu.Port.
func (p *port) Release(b gpu.Block) {
	if p.lost.Load() {
		// Who hears of the loss first may do so while work still runs. That
		// it is lost is known.
		p.ended.Do(func() { _ = p.idle() })
	}
	p.mu.Lock()
	k := p.blocks[b.ID]
	delete(p.blocks, b.ID)
	p.used[k.heap] -= k.size
	p.mu.Unlock()
	p.DestroyBuffer.Call(p.device, uintptr(b.ID), 0)
	p.FreeMemory.Call(p.device, uintptr(k.memory), 0) // which unmaps it
}

// Submit implements gpu.Port.
func (p *port) Submit(at backend.Point, ops []gpu.Op) error {
	b, err := p.batch()
	if err != nil {
		return err
	}
	// Where it fails it can be used at once.
	defer func() { p.batches = append(p.batches, b) }()
	if err := p.record(b, ops); err != nil {
		p.ResetCommandBuffer.Call(b.commands, 0)
		return err
	}
	return p.clock.submit(b, at)
}

// record writes ops to the command buffer of b.
func (p *port) record(b *batch, ops []gpu.Op) error {
	if err := p.call("vkBeginCommandBuffer", p.BeginCommandBuffer.Call(b.commands, uintptr(unsafe.Pointer(b.begin))).Int32()); err != nil {
		return err
	}
	// After all work before, which may be somebody else's.
	p.barrier(b, stageAll, accessMemoryWrite|accessMemoryRead, stageTransfer, accessTransferRead|accessTransferWrite)
	waits := uint32(0)
	for i, op := range ops {
		if i > 0 {
			p.barrier(b, stageTransfer, accessTransferWrite|accessTransferRead, stageTransfer, accessTransferRead|accessTransferWrite)
		}
		switch op.Kind {
		case gpu.OpCopy:
			*b.region = bufferCopy{srcOffset: uint64(op.SrcOff), dstOffset: uint64(op.DstOff), size: uint64(op.N)}
			p.CmdCopyBuffer.Call(b.commands, uintptr(op.Src.ID), uintptr(op.Dst.ID), 1, uintptr(unsafe.Pointer(b.region)))
		case gpu.OpFill:
			p.CmdFillBuffer.Call(b.commands, uintptr(op.Dst.ID), uintptr(op.DstOff), uintptr(op.N), uintptr(op.Word))
		case gpu.OpWait:
			if !p.clock.external() {
				return errors.New("this driver has no timeline semaphores, so nothing can be waited for")
			}
			if op.External.Handle == 0 {
				return errors.New("no semaphore to wait for: External.Handle is 0")
			}
			b.waits[0], b.until[0] = op.External.Handle, op.External.Value
			waits = 1
		}
	}
	// Before all work that comes after, and before the host reads. The host's
	// own writes need no barrier: vkQueueSubmit is one.
	p.barrier(b, stageAll, accessMemoryWrite, stageAll|stageHost, accessMemoryRead|accessMemoryWrite|accessHostRead)
	b.submit.waitSemaphoreCount, b.values.waitSemaphoreValueCount = waits, waits
	return p.call("vkEndCommandBuffer", p.EndCommandBuffer.Call(b.commands).Int32())
}

func (p *port) barrier(b *batch, after, made, before, seen uint32) {
	b.barrier.srcAccessMask, b.barrier.dstAccessMask = made, seen
	p.CmdPipelineBarrier.Call(b.commands, uintptr(after), uintptr(before), 0, 1, uintptr(unsafe.Pointer(b.barrier)), 0, 0, 0, 0)
}

// send hands a batch over.
func (p *port) send(b *batch, fence uint64) error {
	p.queueLock.Lock()
	defer p.queueLock.Unlock()
	return p.call("vkQueueSubmit", p.QueueSubmit.Call(p.queue, 1, uintptr(unsafe.Pointer(b.submit)), uintptr(fence)).Int32())
}

// Reached implements gpu.Port.
func (p *port) Reached() (backend.Point, error) { return p.clock.reached() }

// Await implements gpu.Port.
func (p *port) Await(ctx context.Context, at backend.Point) error { return p.clock.await(ctx, at) }

// Flush implements gpu.Port.
func (p *port) Flush(b gpu.Block, off, n int) error {
	return p.call("vkFlushMappedMemoryRanges", p.FlushMappedMemoryRanges.Call(p.device, 1, uintptr(unsafe.Pointer(p.mapped(b, off, n)))).Int32())
}

// Invalidate implements gpu.Port.
func (p *port) Invalidate(b gpu.Block, off, n int) error {
	return p.call("vkInvalidateMappedMemoryRanges", p.InvalidateMappedMemoryRanges.Call(p.device, 1, uintptr(unsafe.Pointer(p.mapped(b, off, n)))).Int32())
}

// mapped is a range of a block for the driver: one that ends with the block ends
// with its memory, which may be longer.
func (p *port) mapped(b gpu.Block, off, n int) *mappedMemoryRange {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &mappedMemoryRange{sType: typeMappedMemoryRange, memory: p.blocks[b.ID].memory, offset: uint64(off), size: uint64(n)}
	if off+n == b.Size {
		r.size = wholeSize
	}
	return r
}

// Memory implements gpu.Port.
func (p *port) Memory() backend.MemInfo { return p.phys.memoryInfo(p.layout) }

// Handles implements gpu.Port.
func (p *port) Handles(b gpu.Block) backend.Handles {
	return backend.Handles{
		Buffer: b.ID, Device: uint64(p.device), Queue: uint64(p.queue), Family: p.phys.family,
		Instance: uint64(p.phys.in.handle), Physical: uint64(p.phys.handle), Lock: &p.queueLock,
	}
}

// Close implements gpu.Port.
func (p *port) Close() error {
	err := p.idle()
	p.teardown()
	if errors.Is(err, backend.ErrLost) {
		return nil // which the user has heard
	}
	return err
}

// teardown gives back what there is.
func (p *port) teardown() {
	if p.device != 0 && p.DestroyDevice.Valid() {
		if p.clock != nil {
			p.clock.destroy()
		}
		for _, b := range p.batches {
			if b.fence != 0 {
				p.DestroyFence.Call(p.device, uintptr(b.fence), 0)
			}
			b.Unpin()
		}
		if p.pool != 0 {
			p.DestroyCommandPool.Call(p.device, uintptr(p.pool), 0) // with its buffers
		}
		p.DestroyDevice.Call(p.device, 0)
	}
	p.device = 0
	p.done()
}

// A clock tells which work has passed.
type clock interface {
	// submit hands a batch over, to pass as Point at.
	submit(b *batch, at backend.Point) error
	reached() (backend.Point, error)
	await(ctx context.Context, at backend.Point) error
	external() bool // whether work can wait for somebody's semaphore
	destroy()
}

// A timeline is a semaphore that counts Points.
type timeline struct {
	*port
	semaphore uint64
}

func newTimeline(p *port) (*timeline, error) {
	var pin pinned
	defer pin.Unpin()
	t := &timeline{port: p}
	info := &semaphoreCreateInfo{
		sType: typeSemaphoreCreateInfo,
		pNext: at(&pin, semaphoreTypeCreateInfo{sType: typeSemaphoreTypeCreateInfo, semaphoreType: timelineSemaphore}),
	}
	return t, p.call("vkCreateSemaphore", p.CreateSemaphore.Call(p.device, uintptr(unsafe.Pointer(info)), 0, uintptr(unsafe.Pointer(&t.semaphore))).Int32())
}

func (t *timeline) submit(b *batch, at backend.Point) error {
	b.signals[0], b.value[0] = t.semaphore, uint64(at)
	b.submit.signalSemaphoreCount, b.values.signalSemaphoreValueCount = 1, 1
	err := t.send(b, 0)
	if err == nil {
		b.point = at
	}
	return err
}

func (t *timeline) reached() (backend.Point, error) {
	v := new(uint64)
	err := t.call("vkGetSemaphoreCounterValue", t.GetSemaphoreCounterValue.Call(t.device, uintptr(t.semaphore), uintptr(unsafe.Pointer(v))).Int32())
	return backend.Point(*v), err
}

// await waits in the driver, for short times where ctx may end it.
func (t *timeline) await(ctx context.Context, at backend.Point) error {
	slice := time.Second
	if ctx.Done() != nil {
		slice = 5 * time.Millisecond
	}
	var pin pinned
	defer pin.Unpin()
	info := &semaphoreWaitInfo{
		sType: typeSemaphoreWaitInfo, semaphoreCount: 1,
		pSemaphores: listOf(&pin, []uint64{t.semaphore}), pValues: listOf(&pin, []uint64{uint64(at)}),
	}
	for {
		r := t.result("vkWaitSemaphores", t.WaitSemaphores.Call(t.device, uintptr(unsafe.Pointer(info)), uintptr(slice)).Int32())
		if r != timeout {
			return failed("vkWaitSemaphores", r)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (t *timeline) external() bool { return true }

func (t *timeline) destroy() {
	if t.semaphore != 0 {
		t.DestroySemaphore.Call(t.device, uintptr(t.semaphore), 0)
	}
}

// A fenced clock has a fence for each batch: for drivers without timelines.
// Waiters look now and then, since a fence that somebody waits for must not be
// used again.
type fenced struct {
	*port
	mu     sync.Mutex
	flying []*batch // in order
	now    backend.Point
}

func (f *fenced) submit(b *batch, at backend.Point) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.call("vkResetFences", f.ResetFences.Call(f.device, 1, uintptr(unsafe.Pointer(&b.fence))).Int32()); err != nil {
		return err
	}
	if err := f.send(b, b.fence); err != nil {
		return err
	}
	b.point = at
	f.flying = append(f.flying, b)
	return nil
}

func (f *fenced) reached() (backend.Point, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.flying) > 0 {
		b := f.flying[0]
		r := f.result("vkGetFenceStatus", f.GetFenceStatus.Call(f.device, uintptr(b.fence)).Int32())
		if r == notReady {
			break
		}
		if err := failed("vkGetFenceStatus", r); err != nil {
			return f.now, err
		}
		f.now = b.point
		f.flying = f.flying[1:]
	}
	return f.now, nil
}

func (f *fenced) await(ctx context.Context, at backend.Point) error {
	return gpu.Poll(ctx, func() (bool, error) {
		now, err := f.reached()
		return now >= at, err
	})
}

func (f *fenced) external() bool { return false }

func (f *fenced) destroy() {}

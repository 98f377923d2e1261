package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

const (
	alignment = 256 // of what cuMemAlloc returns, in bytes, at least

	nonBlocking  = 1 // CUstream_flags: apart from the default stream, which others use
	blockingSync = 1 // CUevent_flags: a waiter sleeps
	noTiming     = 2
	attachGlobal = 1 // CUmemAttach_flags

	// leastPinned is the least page-locked memory that is asked for, in bytes:
	// where that is refused, staging does with ordinary memory.
	leastPinned = 1 << 20
)

// A port is a gpu.Port over the primary context of a device.
type port struct {
	*library
	phys    *physical
	context uintptr // CUcontext
	stream  uintptr // CUstream
	clock   clock

	pageable atomic.Bool // some staging is not page-locked
	closed   atomic.Bool

	mu   sync.Mutex
	left []gpu.Block // that the driver would not take back

	peers      peers
	registered registrations
}

// openPort opens the device. The primary context of a device that was lost is
// broken until its last user has closed it, which may be going on.
func openPort(d *physical) (p *port, err error) {
	for try := 1; ; try++ {
		if p, err = tryPort(d); !errors.Is(err, backend.ErrLost) || try == 20 {
			return p, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func tryPort(d *physical) (*port, error) {
	p := &port{library: d.lib, phys: d}
	p.clock.port = p
	if err := p.failed("cuDevicePrimaryCtxRetain", p.DevicePrimaryCtxRetain.Call(uintptr(unsafe.Pointer(&p.context)), uintptr(uint32(d.device)))); err != nil {
		return nil, err
	}
	err := p.in(func() error {
		return p.failed("cuStreamCreate", p.StreamCreate.Call(uintptr(unsafe.Pointer(&p.stream)), nonBlocking))
	})
	if err != nil {
		return nil, errors.Join(err, p.release())
	}
	return p, nil
}

func (p *port) limits() gpu.Limits {
	return gpu.Limits{MaxBlock: p.phys.total, Heap: p.phys.total, Shared: p.phys.shares, Align: alignment, Atom: 1, FillUnit: 4, FillAlign: 4}
}

// in runs f on one thread, with the device's context as its current one, and
// puts back which was before.
func (p *port) in(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := new(uintptr)
	if err := p.failed("cuCtxGetCurrent", p.CtxGetCurrent.Call(uintptr(unsafe.Pointer(before)))); err != nil {
		return err
	}
	if *before != p.context {
		if err := p.failed("cuCtxSetCurrent", p.CtxSetCurrent.Call(p.context)); err != nil {
			return err
		}
		defer p.put(*before)
	}
	return f()
}

// put makes a context current again. Where its owner has destroyed it there is
// none.
func (p *port) put(context uintptr) {
	for _, c := range []uintptr{context, context, 0} {
		if p.CtxSetCurrent.Call(c).Int32() == 0 {
			return
		}
	}
}

// A Block's ID is its address, and in the bits that are 0 there what it is.
const (
	deviceMemory = iota
	managedMemory
	pinnedMemory
	pageableMemory
	registeredMemory // the core's, on the host
	memoryMask       = 7
)

func addressOf(b gpu.Block, off int) uintptr { return uintptr(b.ID&^memoryMask) + uintptr(off) }

// onHost reports whether only the host's address of a Block counts.
func onHost(b gpu.Block) bool { return b.ID&memoryMask >= pinnedMemory }

// Allocate implements gpu.Port.
func (p *port) Allocate(n int, use gpu.Use) (b gpu.Block, err error) {
	err = p.in(func() error {
		p.freeLeft()
		switch {
		case use != gpu.Storage:
			b, err = p.staging(n)
		case p.phys.managed:
			b, err = p.unified(n)
		default:
			addr := new(uintptr)
			err = p.failed("cuMemAlloc", p.MemAlloc.Call(uintptr(unsafe.Pointer(addr)), uintptr(n)))
			b = gpu.Block{ID: uint64(*addr) | deviceMemory, Size: n}
		}
		return err
	})
	if err != nil {
		return gpu.Block{}, fmt.Errorf("%d bytes: %w", n, err)
	}
	return b, nil
}

// unified gets memory that host and device use at the same time. Only where
// they have the same memory: elsewhere it moves to and fro, and too much of it
// hangs GPUs.
func (p *port) unified(n int) (gpu.Block, error) {
	addr := new(unsafe.Pointer)
	err := p.failed("cuMemAllocManaged", p.MemAllocManaged.Call(uintptr(unsafe.Pointer(addr)), uintptr(n), attachGlobal))
	if err != nil {
		return gpu.Block{}, err
	}
	return hostBlock(*addr, n, managedMemory), nil
}

func hostBlock(addr unsafe.Pointer, n int, kind uint64) gpu.Block {
	return gpu.Block{
		ID: uint64(uintptr(addr)) | kind, Size: n,
		Host: unsafe.Slice((*byte)(addr), n), Coherent: true, Cached: true,
	}
}

// staging gets page-locked memory. WSL and some limits allow little of it
// (WSL#8447): then it is halved, and in the end ordinary memory, which the
// driver stages once more.
func (p *port) staging(n int) (gpu.Block, error) {
	addr := new(unsafe.Pointer)
	err := p.failed("cuMemHostAlloc", p.MemHostAlloc.Call(uintptr(unsafe.Pointer(addr)), uintptr(n), 0))
	switch {
	case err == nil:
		return hostBlock(*addr, n, pinnedMemory), nil
	case errors.Is(err, backend.ErrLost):
		return gpu.Block{}, err
	case n > leastPinned:
		return gpu.Block{}, fmt.Errorf("%w: %w", backend.ErrNoMemory, err)
	}
	mem, err := cpu.Reserve(n) // not Go's: the driver keeps the address
	if err != nil {
		return gpu.Block{}, fmt.Errorf("%w: %w", backend.ErrNoMemory, err)
	}
	p.pageable.Store(true)
	return hostBlock(unsafe.Pointer(unsafe.SliceData(mem)), n, pageableMemory), nil
}

// Release implements gpu.Port. LetGo is that of registered memory.
func (p *port) Release(b gpu.Block) {
	if p.free(b) != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.left = append(p.left, b)
	}
}

// free gives a Block back. Where the context is gone its memory is, too.
func (p *port) free(b gpu.Block) error {
	if b.ID&memoryMask == pageableMemory {
		return cpu.Release(b.Host)
	}
	err := p.in(func() error {
		if b.ID&memoryMask == pinnedMemory {
			return p.failed("cuMemFreeHost", p.MemFreeHost.Call(addressOf(b, 0)))
		}
		return p.failed("cuMemFree", p.MemFree.Call(addressOf(b, 0)))
	})
	return unlessLost(err)
}

func unlessLost(err error) error {
	if errors.Is(err, backend.ErrLost) {
		return nil
	}
	return err
}

// freeLeft tries once more to give back what the driver would not take.
func (p *port) freeLeft() (err error) {
	p.mu.Lock()
	left := p.left
	p.left = nil
	p.mu.Unlock()
	for _, b := range left {
		if e := p.free(b); e != nil {
			err = e
			p.mu.Lock()
			p.left = append(p.left, b)
			p.mu.Unlock()
		}
	}
	return err
}

// Submit implements gpu.Port.
func (p *port) Submit(at backend.Point, ops []gpu.Op) error {
	return p.in(func() error {
		e, err := p.clock.event()
		if err != nil {
			return err
		}
		for i, op := range ops {
			if err := p.queue(op); err != nil {
				p.clock.unused(e)
				return p.undo(err, i > 0)
			}
		}
		if err := p.failed("cuEventRecord", p.EventRecord.Call(e.handle, p.stream)); err != nil {
			p.clock.unused(e)
			return p.undo(err, true)
		}
		p.clock.add(e, at)
		return nil
	})
}

// undo waits for the part of a batch that is queued already, if there is one:
// of a batch that fails nothing may be on its way. It returns err. Others who
// submit wait meanwhile, also for what the stream waits for.
func (p *port) undo(err error, queued bool) error {
	if !queued || errors.Is(err, backend.ErrLost) {
		return err
	}
	var again error
	for range 2 {
		if again = p.failed("cuStreamSynchronize", p.StreamSynchronize.Call(p.stream)); again == nil {
			return err
		}
	}
	return fmt.Errorf("%w: %w, after %w", backend.ErrLost, again, err)
}

// queue queues one op.
func (p *port) queue(op gpu.Op) error {
	n := uintptr(op.N)
	switch op.Kind {
	case gpu.OpFill:
		return p.failed("cuMemsetD32Async", p.MemsetD32.Call(addressOf(op.Dst, op.DstOff), uintptr(op.Word), n/4, p.stream))
	case gpu.OpWait:
		if op.External.Handle == 0 {
			return errors.New("External.Handle is 0, and no CUevent")
		}
		return p.own(p.failed("cuStreamWaitEvent", p.StreamWaitEvent.Call(p.stream, uintptr(op.External.Handle), 0)))
	}
	dst, src := addressOf(op.Dst, op.DstOff), addressOf(op.Src, op.SrcOff)
	switch {
	case onHost(op.Src) && !onHost(op.Dst):
		return p.failed("cuMemcpyHtoDAsync", p.MemcpyHtoD.Call(dst, src, n, p.stream))
	case op.Kind == gpu.OpPeer:
		return p.own(p.failed("cuMemcpyPeerAsync", p.MemcpyPeer.Call(dst, p.context, src, op.From.(*port).context, n, p.stream)))
	case onHost(op.Src): // and both are: it goes through the device
		at := p.deviceAddress(op.Src)
		if at == 0 {
			return errors.New("the driver does not tell where the device has that memory of the host")
		}
		return p.failed("cuMemcpyDtoHAsync", p.MemcpyDtoH.Call(dst, at+uintptr(op.SrcOff), n, p.stream))
	case onHost(op.Dst):
		return p.failed("cuMemcpyDtoHAsync", p.MemcpyDtoH.Call(dst, src, n, p.stream))
	}
	return p.failed("cuMemcpyDtoDAsync", p.MemcpyDtoD.Call(dst, src, n, p.stream))
}

// Reached implements gpu.Port.
func (p *port) Reached() (backend.Point, error) { return p.clock.reached() }

// Await implements gpu.Port.
func (p *port) Await(ctx context.Context, at backend.Point) error { return p.clock.await(ctx, at) }

// Flush implements gpu.Port: all memory is coherent.
func (p *port) Flush(gpu.Block, int, int) error { return nil }

// Invalidate implements gpu.Port.
func (p *port) Invalidate(gpu.Block, int, int) error { return nil }

// Memory implements gpu.Port. Of memory that is the host's, too, the driver
// counts only what nobody uses, and the host's budget what it could get
// (ollama#12283).
func (p *port) Memory() backend.MemInfo {
	info := backend.MemInfo{Total: int64(p.phys.total), Free: backend.Unknown}
	if p.phys.shares {
		if b := p.phys.budget(); b.Free >= 0 {
			info.Free = min(b.Free, info.Total)
			return info
		}
	}
	sizes := new([2]uintptr)
	err := p.in(func() error {
		return p.failed("cuMemGetInfo", p.MemGetInfo.Call(uintptr(unsafe.Pointer(&sizes[0])), uintptr(unsafe.Pointer(&sizes[1]))))
	})
	if err == nil {
		info.Free = min(int64(sizes[0]), info.Total)
	}
	return info
}

// Pageable reports whether some staging memory is not page-locked.
func (p *port) Pageable() bool { return p.pageable.Load() }

// Handles implements gpu.Port.
func (p *port) Handles(b gpu.Block) backend.Handles {
	at := addressOf(b, 0)
	if b.ID&memoryMask == registeredMemory {
		at = p.deviceAddress(b)
	}
	return backend.Handles{Buffer: uint64(at), Device: uint64(p.context), Queue: uint64(p.stream)}
}

// Close implements gpu.Port.
func (p *port) Close() error {
	p.closed.Store(true)
	var err error
	for range 2 { // a passing failure must not leave the context behind
		err = unlessLost(p.in(func() error {
			return errors.Join(p.freeLeft(), p.clock.destroy(), p.destroyStream())
		}))
		if err == nil {
			break
		}
	}
	return errors.Join(err, p.closeRegistrations(p.release))
}

func (p *port) destroyStream() error {
	if p.stream == 0 {
		return nil
	}
	err := p.failed("cuStreamDestroy", p.StreamDestroy.Call(p.stream))
	if unlessLost(err) == nil {
		p.stream = 0
	}
	return err
}

// release gives the primary context back. With its last user it goes, and what
// was left in it.
func (p *port) release() error {
	var err error
	for range 2 {
		if err = p.failed("cuDevicePrimaryCtxRelease", p.DevicePrimaryCtxRelease.Call(uintptr(uint32(p.phys.device)))); unlessLost(err) == nil {
			return nil
		}
	}
	return err
}

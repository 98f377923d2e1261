package metal

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// MTLResourceOptions. Hazards are tracked, which is the default: a user's own
// work on the queue waits for fuel's where it must.
const (
	storageShared  = 0
	storagePrivate = 2 << 4
)

// inFlight is the number of command buffers that may be on their way at once:
// only somebody who waits for another's event comes near it. Metal's own default is
// 64, and then it blocks.
const inFlight = 512

// A port is a gpu.Port over one MTLDevice.
//
// Metal may run the command buffers of a queue at the same time, so each one waits
// for the event of the one before. Whether one is done its status says: an
// event alone does not tell that the work failed.
type port struct {
	*metal
	dev          description
	queue, event object
	private      bool

	mu     sync.Mutex
	flying []batch // committed, in order
	done   backend.Point
	last   backend.Point
	lost   error
}

// A batch is a command buffer that the port owns.
type batch struct {
	object object
	point  backend.Point
}

// openPort opens a device, which it retains. Memory of Storages is private or
// shared.
func openPort(m *metal, d description, private bool) (*port, error) {
	p := &port{metal: m, dev: d, private: private}
	var err error
	m.pool(func() {
		m.send(d.object, retain)
		p.queue = m.get(d.object, newCommandQueue, inFlight)
		if p.queue == 0 {
			err = nothing(newCommandQueue)
			return
		}
		p.event = m.get(d.object, newSharedEvent)
		if p.event == 0 {
			err = nothing(newSharedEvent)
		}
	})
	if err != nil {
		p.teardown()
		return nil, err
	}
	return p, nil
}

// Allocate implements gpu.Port.
func (p *port) Allocate(n int, use gpu.Use) (b gpu.Block, err error) {
	p.pool(func() { b, err = p.allocate(n, use) })
	return b, err
}

func (p *port) allocate(n int, use gpu.Use) (gpu.Block, error) {
	if n > p.dev.maxBuffer {
		return gpu.Block{}, fmt.Errorf("%w: %d bytes, and a buffer has %d at most", backend.ErrTooLarge, n, p.dev.maxBuffer)
	}
	shared := use != gpu.Storage || !p.private
	options := uintptr(storageShared)
	if !shared {
		options = storagePrivate
	}
	buffer := p.get(p.dev.object, newBuffer, uintptr(n), options)
	if buffer == 0 {
		return gpu.Block{}, fmt.Errorf("%w: %d bytes: %w", backend.ErrNoMemory, n, nothing(newBuffer))
	}
	b := gpu.Block{ID: uint64(buffer), Size: n}
	if shared { // a private one must not be asked (veldrid#23)
		addr := p.send(buffer, contents).Uintptr()
		if addr == 0 {
			p.send(buffer, release)
			return gpu.Block{}, nothing(contents)
		}
		b.Host = unsafe.Slice((*byte)(foreign(addr)), n)
		b.Coherent, b.Cached = true, true
	}
	return b, nil
}

// ImportAlign implements gpu.Importer.
func (p *port) ImportAlign() int {
	return p.dev.hostAlign()
}

// Import implements gpu.Importer. Metal lets go of the memory when the buffer goes.
func (p *port) Import(mem []byte, _ bool) (b gpu.Block, err error) {
	p.pool(func() {
		// No block to call in the end.
		buffer := p.get(p.dev.object, newBufferNoCopy, uintptr(unsafe.Pointer(unsafe.SliceData(mem))), uintptr(len(mem)), storageShared, 0)
		if buffer == 0 {
			err = nothing(newBufferNoCopy)
			return
		}
		b = gpu.Block{ID: uint64(buffer), Size: len(mem), Host: mem, Coherent: true, Cached: true}
	})
	return b, err
}

// LetGo implements gpu.Importer.
func (p *port) LetGo(b gpu.Block, _ func()) bool {
	p.Release(b)
	return true
}

// Release implements gpu.Port.
func (p *port) Release(b gpu.Block) {
	p.pool(func() { p.send(object(b.ID), release) })
}

// Submit implements gpu.Port.
func (p *port) Submit(at backend.Point, ops []gpu.Op) (err error) {
	if err := p.room(); err != nil {
		return err
	}
	p.pool(func() { err = p.record(at, ops) })
	return err
}

// room waits until there may be another command buffer: Metal would wait in a
// call that does not end when the device is lost.
func (p *port) room() error {
	p.mu.Lock()
	n, oldest := len(p.flying), backend.Point(0)
	if n >= inFlight {
		oldest = p.flying[0].point
	}
	p.mu.Unlock()
	return p.Await(context.Background(), oldest)
}

// record makes a command buffer of ops and commits it.
func (p *port) record(at backend.Point, ops []gpu.Op) error {
	c := p.get(p.queue, commandBuffer)
	if c == 0 {
		return nothing(commandBuffer)
	}
	if at > 1 {
		p.send(c, encodeWaitForEvent, uintptr(p.event), uintptr(at-1))
	}
	for _, op := range ops {
		if op.Kind == gpu.OpWait {
			p.send(c, encodeWaitForEvent, uintptr(op.External.Handle), uintptr(op.External.Value))
			continue
		}
		// One encoder for each: what one pass writes the next one sees.
		e := p.get(c, blitCommandEncoder)
		if e == 0 {
			return nothing(blitCommandEncoder)
		}
		switch op.Kind {
		case gpu.OpCopy:
			p.send(e, copyFromBuffer, uintptr(op.Src.ID), uintptr(op.SrcOff), uintptr(op.Dst.ID), uintptr(op.DstOff), uintptr(op.N))
		case gpu.OpFill:
			p.send(e, fillBuffer, uintptr(op.Dst.ID), uintptr(op.DstOff), uintptr(op.N), uintptr(byte(op.Word)))
		}
		p.send(e, endEncoding)
	}
	p.send(c, encodeSignalEvent, uintptr(p.event), uintptr(at))
	p.send(c, retain)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flying = append(p.flying, batch{c, at})
	p.last = at
	p.send(c, commit)
	return nil
}

// Reached implements gpu.Port.
func (p *port) Reached() (at backend.Point, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost != nil || len(p.flying) == 0 {
		return p.done, p.lost
	}
	p.pool(p.look)
	return p.done, p.lost
}

// look takes away what is done, or notes that it failed. p.mu is held.
func (p *port) look() {
	for len(p.flying) > 0 {
		b := p.flying[0]
		switch p.send(b.object, status) {
		case statusError:
			e := p.get(b.object, errorOf)
			p.lost = &workError{b.point, int64(p.send(e, code)), p.text(p.get(e, localizedDescription))}
			// What waits for its event would do so for ever.
			p.send(p.event, setSignaledValue, uintptr(p.last))
			return
		case statusCompleted:
			p.send(b.object, release)
			p.done = b.point
			p.flying = p.flying[1:]
		default:
			return
		}
	}
}

// Await implements gpu.Port. It waits in Metal, for short times, since failed
// work signals nothing.
func (p *port) Await(ctx context.Context, at backend.Point) error {
	slice := uintptr(100) // milliseconds
	if ctx.Done() != nil {
		slice = 5
	}
	for {
		reached, err := p.Reached()
		if err != nil || reached >= at {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		p.pool(func() {
			if p.send(p.event, waitUntilSignaledValue, uintptr(at), slice).Bool() {
				p.complete(at)
			}
		})
	}
}

// complete waits for the end of a command buffer that has signaled its event.
func (p *port) complete(at backend.Point) {
	p.mu.Lock()
	var c object
	for _, b := range p.flying {
		if b.point == at {
			c = b.object
			p.send(c, retain)
		}
	}
	p.mu.Unlock()
	p.send(c, waitUntilCompleted)
	p.send(c, release)
}

// Flush implements gpu.Port. All memory is coherent.
func (p *port) Flush(gpu.Block, int, int) error { return nil }

// Invalidate implements gpu.Port.
func (p *port) Invalidate(gpu.Block, int, int) error { return nil }

// Memory implements gpu.Port.
func (p *port) Memory() backend.MemInfo { return p.memory(&p.dev) }

// Handles implements gpu.Port.
func (p *port) Handles(b gpu.Block) backend.Handles {
	return backend.Handles{Buffer: b.ID, Device: uint64(p.dev.object), Queue: uint64(p.queue)}
}

// Close implements gpu.Port.
func (p *port) Close() error {
	p.teardown()
	return nil
}

// teardown gives back what there is. Of a lost device command buffers may be
// left, which Metal keeps as long as it needs them.
func (p *port) teardown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pool(func() {
		for _, b := range p.flying {
			p.send(b.object, release)
		}
		p.flying = nil
		p.send(p.event, release)
		p.send(p.queue, release)
		p.send(p.dev.object, release)
	})
}

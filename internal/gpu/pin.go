package gpu

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/go-fuel/fuel/internal/backend"
)

// pins are the host memory that transfers use where it is, by address.
type pins struct {
	some atomic.Bool // list is not empty: most programs pin nothing

	mu   sync.RWMutex
	list []*pin // in the order of their addresses; none overlap
}

// A pin is a Block of host memory of the core's, and a backend.Pin.
type pin struct {
	d     *Device
	mem   []byte
	block Block
	out   atomic.Bool // not in the list any more, and given back

	mu   sync.Mutex
	free bool   // the driver has let go
	gone func() // of Unpin, where it came before that
}

// PinAlign implements backend.Pinner.
func (d *Device) PinAlign() int { return d.ImportAlign() }

// Pin implements backend.Pinner.
func (d *Device) Pin(mem []byte) (backend.Pin, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	if err := d.q.lost.Load(); err != nil {
		return nil, *err
	}
	b, err := d.mem.bring(mem, false)
	if err != nil {
		return nil, d.q.note(err)
	}
	p := &pin{d: d, mem: mem, block: b}
	d.pins.mu.Lock()
	defer d.pins.mu.Unlock()
	i, _ := d.pins.at(start(mem))
	d.pins.list = slices.Insert(d.pins.list, i, p)
	d.pins.some.Store(true)
	return p, nil
}

func start(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// at finds the place of an address in the list: of the first pin that does not
// begin before it.
func (p *pins) at(addr uintptr) (i int, found bool) {
	return slices.BinarySearchFunc(p.list, addr, func(x *pin, addr uintptr) int { return cmp.Compare(start(x.mem), addr) })
}

// find returns the pin that all of mem is in, and where it is there. nil is
// none.
func (p *pins) find(mem []byte) (x *pin, off int) {
	if !p.some.Load() || len(mem) == 0 {
		return nil, 0
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	i, found := p.at(start(mem))
	if !found {
		i-- // the one that begins before it
	}
	if i < 0 {
		return nil, 0
	}
	x = p.list[i]
	from := start(mem) - start(x.mem)
	if size := uintptr(len(x.mem)); from > size || uintptr(len(mem)) > size-from {
		return nil, 0
	}
	return x, int(from)
}

// Held implements backend.Pin.
func (x *pin) Held() bool { return !x.out.Load() }

// Unpin implements backend.Pin.
func (x *pin) Unpin(gone func()) {
	if !x.d.closing.TryRLock() { // who closes the device may wait for a driver that hangs
		go x.unpin(gone)
		return
	}
	x.d.closing.RUnlock()
	x.unpin(gone)
}

func (x *pin) unpin(gone func()) {
	if x.d.enter() == nil { // else closing has ended it
		x.end()
		x.d.leave()
	}
	x.mu.Lock()
	free := x.free
	x.gone = gone
	x.mu.Unlock()
	if free {
		gone()
	}
}

// end takes x out of the list and gives its Block back, unless that was done.
// The device cannot be closed meanwhile.
func (x *pin) end() {
	if x.out.Swap(true) {
		return
	}
	p := &x.d.pins
	p.mu.Lock()
	i := slices.Index(p.list, x)
	p.list = slices.Delete(p.list, i, i+1)
	p.some.Store(len(p.list) > 0)
	p.mu.Unlock()
	if x.d.mem.letGo(x.block, x.freed) {
		x.mu.Lock()
		x.free = true
		x.mu.Unlock()
	}
}

// freed is called where the driver lets go later.
func (x *pin) freed() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.free = true
	if x.gone != nil {
		go x.gone()
	}
}

// unpinAll ends all pins, for Close.
func (d *Device) unpinAll() {
	for len(d.pins.list) > 0 {
		d.pins.list[0].end()
	}
}

// pinned returns the pin that a transfer of mem to or from a range can use.
func (d *Device) pinned(mem []byte, off int) (x *pin, at int) {
	x, at = d.pins.find(mem)
	if x != nil && d.odd(off|at|len(mem)) {
		return nil, 0
	}
	return x, at
}

// uploadPinned copies n bytes of x to a range, and returns when they are there:
// the memory is the caller's.
func (d *Device) uploadPinned(to *span, off int, x *pin, at, n int) (backend.Point, error) {
	return d.direct(to, n, func(done, k int) Op {
		return Op{Kind: OpCopy, Dst: to.slab.block, DstOff: to.off + off + done, Src: x.block, SrcOff: at + done, N: k}
	})
}

// downloadPinned copies n bytes of a range to x, and returns when they are
// there.
func (d *Device) downloadPinned(x *pin, at int, from *span, off, n int) error {
	_, err := d.direct(from, n, func(done, k int) Op {
		return Op{Kind: OpCopy, Dst: x.block, DstOff: at + done, Src: from.slab.block, SrcOff: from.off + off + done, N: k}
	})
	return err
}

// direct queues a copy between a span and memory of the caller's, and waits for
// it, also where a part of it fails.
func (d *Device) direct(s *span, n int, op func(done, k int) Op) (last backend.Point, err error) {
	for done := 0; done < n; {
		k := min(MaxOp, n-done)
		p, err := d.work([]Op{op(done, k)}, s)
		if err != nil {
			d.q.settle(last)
			return 0, err
		}
		last = p
		done += k
	}
	if err = d.q.wait(context.Background(), last); err != nil {
		d.q.settle(last) // a wait that fails is no end of the work
	}
	return last, err
}

package gpu

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/go-fuel/fuel/internal/backend"
)

// enterBoth is enter for two devices, always in the same order, so that none
// waits for the other's end.
func enterBoth(a, b *Device) (leave func(), err error) {
	if uintptr(unsafe.Pointer(a)) > uintptr(unsafe.Pointer(b)) {
		a, b = b, a
	}
	if err := a.enter(); err != nil {
		return nil, err
	}
	if err := b.enter(); err != nil {
		a.leave()
		return nil, err
	}
	return func() { b.leave(); a.leave() }, nil
}

// Reaches implements backend.Peer.
func (d *Device) Reaches(from backend.Device) error {
	f, ours := from.(*Device)
	p, can := d.port.(PeerPort)
	if !ours || !can || f == d {
		return errors.New("the driver has no direct copies between devices")
	}
	leave, err := enterBoth(d, f)
	if err != nil {
		return err
	}
	defer leave()
	return d.q.note(p.Reaches(f.port))
}

// CopyPeer implements backend.Peer.
func (d *Device) CopyPeer(dst backend.Buffer, dstOff int, from backend.Device, src backend.Buffer, srcOff, n int) error {
	f := from.(*Device)
	leave, err := enterBoth(d, f)
	if err != nil {
		return err
	}
	defer leave()
	if err := f.q.lost.Load(); err != nil {
		return fmt.Errorf("the source: %v", *err)
	}
	to, s := d.mem.span(dst), f.mem.span(src)
	if err := f.q.wait(context.Background(), max(f.lastUse(s), backend.Point(f.external.Load()))); err != nil {
		return fmt.Errorf("the source: %v", err) // whose loss is not this device's
	}
	var last backend.Point
	for off := 0; off < n && err == nil; {
		var p backend.Point
		k := min(MaxOp, n-off)
		if p, err = d.work([]Op{{Kind: OpPeer, Dst: to.slab.block, DstOff: to.off + dstOff + off, Src: s.slab.block, SrcOff: s.off + srcOff + off, N: k, From: f.port}}, to); err == nil {
			last = p
		}
		off += k
	}
	// The source is in use until then, also where a later part fails, or a wait.
	err = errors.Join(err, d.q.wait(context.Background(), last))
	if err != nil {
		d.q.settle(last)
	}
	return err
}

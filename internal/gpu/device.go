// Package gpu is what drivers of devices with memory of their own share: it
// makes a backend.Device of a Port, which is one vendor's API.
//
// Memory is cut from few, large allocations of the driver, and used again only
// when the work on it has passed. What the host can reach, it writes and reads
// directly while no work is on the way there; all else goes through staging
// memory of a fixed size. Fills and copies of any offset and length are made
// from those that the API has.
package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
)

// A Device is a backend.Device over a Port, and a backend.Cacher; where the Port
// can, a backend.Importer, Pinner, Peer and Stager as well.
type Device struct {
	port Port
	lim  Limits
	q    *queue
	mem  *memory
	up   staging
	down staging
	pins pins

	forced   bool          // never direct
	external atomic.Uint64 // Point of the newest OpWait
	closing  sync.RWMutex  // read-locked by every call
	closed   bool
}

// Config is what may be asked of a Device beyond the Limits of its Port.
type Config struct {
	// Staged makes transfers go through staging also where the host can reach
	// the memory itself. The device goes on reaching page-locked host memory.
	Staged bool
}

// New returns a Device over p, which it closes.
func New(p Port, lim Limits, c Config) *Device {
	lim.Align = max(lim.Align, minAlign)
	lim.CopyUnit = max(lim.CopyUnit, 1)
	lim.MaxBlock &^= lim.Align - 1
	d := &Device{port: p, lim: lim, forced: c.Staged, q: newQueue(p)}
	d.mem = newMemory(p, lim, d.q.passed)
	d.up = staging{d: d, use: Upload}
	d.down = staging{d: d, use: Readback}
	return d
}

func lostError(err error) bool { return errors.Is(err, backend.ErrLost) }

// enter lets a call in, unless the device is closed; leave ends it.
func (d *Device) enter() error {
	d.closing.RLock()
	if d.closed {
		d.closing.RUnlock()
		return backend.ErrClosed
	}
	return nil
}

func (d *Device) leave() { d.closing.RUnlock() }

// Memory tells the device's memory. Where the driver does not tell what is
// free, it is what this Device does not hold: others are not in it. What Cache
// tells of comes on top of it.
func (d *Device) Memory() backend.MemInfo {
	if d.enter() != nil {
		return backend.MemInfo{Total: backend.Unknown, Free: backend.Unknown}
	}
	defer d.leave()
	info := d.port.Memory()
	d.mem.mu.Lock()
	defer d.mem.mu.Unlock()
	cached := d.mem.cached()
	switch {
	case info.Free >= 0:
		info.Free += int64(d.mem.held-d.mem.live) - cached
	case info.Total >= 0:
		info.Free = info.Total - int64(d.mem.live) - cached
	}
	if info.Total >= 0 {
		info.Free = max(min(info.Free, info.Total), 0)
	}
	return info
}

// Alloc implements backend.Device. Where memory is short it waits for work
// after which there is some.
func (d *Device) Alloc(n int, zero bool) (backend.Buffer, error) {
	if err := d.enter(); err != nil {
		return backend.Buffer{}, err
	}
	defer d.leave()
	if err := d.q.lost.Load(); err != nil {
		return backend.Buffer{}, *err
	}
	s, handle, err := d.mem.alloc(n)
	for errors.Is(err, backend.ErrNoMemory) {
		p := d.mem.next()
		if p == 0 || d.q.wait(context.Background(), p) != nil {
			break
		}
		s, handle, err = d.mem.alloc(n)
	}
	if err != nil {
		return backend.Buffer{}, d.q.note(err)
	}
	b := backend.Buffer{Handle: handle, Size: n}
	if zero { // all of the span, which has no odd end
		if _, err := d.fill(s, 0, s.size, s.size, []byte{0}); err != nil {
			d.mem.free(b, 0)
			return backend.Buffer{}, d.q.note(err)
		}
	}
	return b, nil
}

// Free implements backend.Device.
func (d *Device) Free(b backend.Buffer, after backend.Point) {
	if d.mem.adopted(b) {
		d.disown(b, after)
		return
	}
	d.mem.free(b, after)
}

// host returns the memory of a range where the host may touch it at once: it is
// mapped and coherent, and no work is on the way there. The core keeps new work
// from that range meanwhile.
//
// Memory that is not coherent is left to staging: a flush writes whole atoms,
// and others may be writing the bytes beside.
func (d *Device) host(s *span, off, n int, read bool) []byte {
	b := s.slab.block
	if d.unreached(b, read) != "" || !d.idle(s) {
		return nil
	}
	return b.Host[s.off+off:][:n:n]
}

// unreached says why the host cannot write b itself, or read it, or is "".
func (d *Device) unreached(b Block, read bool) string {
	switch {
	case d.forced:
		return "staging was asked for"
	case b.Host == nil:
		return "the host cannot reach that memory"
	case !b.Coherent:
		return "the host sees that memory through caches of its own"
	case read && !b.Cached:
		return "the host reads that memory without caches, which is slower"
	}
	return ""
}

// idle reports whether no work is on the way to s. Of a lost device that is not
// so: what is there nobody knows.
func (d *Device) idle(s *span) bool {
	return d.q.passed(max(d.lastUse(s), backend.Point(d.external.Load()))) && d.q.lost.Load() == nil
}

// Staging implements backend.Device. An Upload does not wait for work that is
// on the way to b, and stages then; a Download does.
func (d *Device) Staging(b backend.Buffer, off int, mem []byte, read bool) (size int, why string) {
	if d.enter() != nil {
		return 0, ""
	}
	defer d.leave()
	s := &d.up
	if read {
		s = &d.down
	}
	if b.Size == 0 {
		why = d.unreached(d.mem.usual(), read)
	} else {
		to := d.mem.span(b)
		if why = d.unreached(to.slab.block, read); why == "" && !read && !d.idle(to) {
			why = "work on that memory is on its way"
		}
	}
	if why == "" {
		return 0, ""
	}
	if x, _ := d.pinned(mem, off); x != nil {
		return 0, ""
	}
	return s.size(), why
}

// A span's used is written under q.mu.
func (d *Device) lastUse(s *span) backend.Point { return backend.Point(s.used.Load()) }

// work queues ops that use spans.
func (d *Device) work(ops []Op, spans ...*span) (backend.Point, error) {
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	p, err := d.q.add(ops)
	if err != nil {
		return 0, err
	}
	for _, s := range spans {
		s.used.Store(uint64(p))
	}
	return p, nil
}

// Copy implements backend.Device.
func (d *Device) Copy(dst backend.Buffer, dstOff int, src backend.Buffer, srcOff, n int) (backend.Point, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	to, from := d.mem.span(dst), d.mem.span(src)
	whole := d.whole(dst, dstOff, n)
	var p backend.Point
	var err error
	switch {
	case d.odd(dstOff | srcOff | whole):
		p, err = d.copyOdd(to, dstOff, from, srcOff, n, whole)
	case to == from && dstOff < srcOff+n && srcOff < dstOff+n:
		p, err = d.move(to, dstOff, srcOff, whole)
	default:
		p, err = d.copyUnits(to, dstOff, from, srcOff, whole)
	}
	return p, d.q.note(err)
}

// copyUnits queues a copy as the device does it, of ranges that do not overlap.
func (d *Device) copyUnits(to *span, dstOff int, from *span, srcOff, n int) (last backend.Point, err error) {
	for off := 0; off < n; {
		k := min(MaxOp, n-off)
		if last, err = d.work([]Op{copyOp(to, dstOff+off, from, srcOff+off, k)}, to, from); err != nil {
			return 0, err
		}
		off += k
	}
	return last, nil
}

func copyOp(to *span, at int, from *span, off, n int) Op {
	return Op{Kind: OpCopy, Dst: to.slab.block, DstOff: to.off + at, Src: from.slab.block, SrcOff: from.off + off, N: n}
}

// moveSize is the memory through which an overlapping copy goes.
const moveSize = 4 << 20

// move copies within a span where the ranges overlap: in pieces through other
// memory, from the end that the copy does not reach first.
func (d *Device) move(s *span, to, from, n int) (backend.Point, error) {
	if to == from {
		return d.lastUse(s), nil
	}
	size := min(n, moveSize)
	mid, err := d.mem.scratch(size)
	if errors.Is(err, backend.ErrNoMemory) {
		return d.up.move(s, to, from, n)
	}
	if err != nil {
		return 0, err
	}
	var last backend.Point
	defer func() { d.mem.release(mid, last) }()
	for done := 0; done < n; {
		k := min(size, n-done)
		at := moved(to, from, n, done, k)
		p, err := d.work([]Op{copyOp(mid, 0, s, from+at, k), copyOp(s, to+at, mid, 0, k)}, s)
		if err != nil {
			return 0, err
		}
		last = p
		done += k
	}
	return last, nil
}

// moved tells which k of n bytes are next where done of them have been moved.
func moved(to, from, n, done, k int) int {
	if to > from {
		return n - done - k
	}
	return done
}

// Upload implements backend.Device.
func (d *Device) Upload(dst backend.Buffer, off int, src []byte) (p backend.Point, staged bool, err error) {
	if err := d.enter(); err != nil {
		return 0, false, err
	}
	defer d.leave()
	if err := d.q.lost.Load(); err != nil {
		return 0, false, *err
	}
	return d.upload(d.mem.span(dst), off, source{mem: src, n: len(src)}, d.whole(dst, off, len(src)))
}

// UploadFrom implements backend.Device.
func (d *Device) UploadFrom(dst backend.Buffer, off, n int, read func(p []byte, at int) error) (p backend.Point, staged bool, err error) {
	if err := d.enter(); err != nil {
		return 0, false, err
	}
	defer d.leave()
	if err := d.q.lost.Load(); err != nil {
		return 0, false, *err
	}
	return d.upload(d.mem.span(dst), off, source{read: read, n: n}, d.whole(dst, off, n))
}

// A source is n bytes that go to a device: those of mem, or where that is nil
// those that read gets.
type source struct {
	mem  []byte
	read func(p []byte, at int) error
	n    int
}

// get copies the part from byte at on to p.
func (s source) get(p []byte, at int) error {
	if s.mem == nil {
		return s.read(p, at)
	}
	cpu.Copy(p, s.mem[at:at+len(p)])
	return nil
}

// getAll copies all of it to p, from several goroutines where that is faster.
func (s source) getAll(p []byte) error {
	if s.mem != nil {
		copyHost(p, s.mem)
		return nil
	}
	_, err := cpu.Run(context.Background(), s.n, func(off, end int) error { return s.read(p[off:end], off) }, nil)
	return err
}

// upload is Upload; whole is the length of src, or more where the last unit may
// be overwritten.
func (d *Device) upload(to *span, off int, src source, whole int) (p backend.Point, staged bool, err error) {
	b := d.host(to, off, src.n, false)
	if b == nil && d.odd(off|whole) && d.unreached(to.slab.block, false) == "" {
		if err := d.settle(to); err != nil {
			return 0, false, err
		}
		// Others may have queued work on other ranges meanwhile.
		b = to.slab.block.Host[to.off+off:][:src.n]
	}
	if b != nil {
		return d.lastUse(to), false, src.getAll(b)
	}
	if x, at := d.pinned(src.mem, off); x != nil {
		p, err = d.uploadPinned(to, off, x, at, src.n)
		return p, false, d.q.note(err)
	}
	p, err = d.up.upload(to, off, src, whole)
	return p, true, d.q.note(err)
}

// Download implements backend.Device.
func (d *Device) Download(dst []byte, src backend.Buffer, off int) (staged bool, err error) {
	if err := d.enter(); err != nil {
		return false, err
	}
	defer d.leave()
	if err := d.q.lost.Load(); err != nil {
		return false, *err
	}
	return d.download(dst, d.mem.span(src), off)
}

func (d *Device) download(dst []byte, from *span, off int) (staged bool, err error) {
	b := d.host(from, off, len(dst), true)
	if b == nil && d.unreached(from.slab.block, true) == "" {
		// Reading where it is costs less than a copy to staging, even after a
		// wait.
		if err := d.settle(from); err != nil {
			return false, err
		}
		b = d.host(from, off, len(dst), true)
	}
	if b != nil {
		copyHost(dst, b)
		return false, nil
	}
	if x, at := d.pinned(dst, off); x != nil {
		return false, d.q.note(d.downloadPinned(x, at, from, off, len(dst)))
	}
	return true, d.q.note(d.down.download(dst, from, off))
}

// copyHost copies between host memory and mapped memory, from several
// goroutines where that is faster.
func copyHost(dst, src []byte) {
	// Without a context, and with an f that never fails, so does Run.
	_, _ = cpu.Run(context.Background(), len(dst), func(off, end int) error {
		cpu.CopyPart(dst[off:end], src[off:end], len(dst))
		return nil
	}, nil)
}

// Done implements backend.Device.
func (d *Device) Done(p backend.Point) bool { return d.enter() != nil || d.leaveWith(d.q.passed(p)) }

func (d *Device) leaveWith(b bool) bool {
	d.leave()
	return b
}

// Wait implements backend.Device.
func (d *Device) Wait(ctx context.Context, p backend.Point) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.leave()
	return d.q.wait(ctx, p)
}

// WaitExternal implements backend.Device.
func (d *Device) WaitExternal(x backend.External) (backend.Point, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	d.q.mu.Lock()
	defer d.q.mu.Unlock()
	p, err := d.q.add([]Op{{Kind: OpWait, External: x}})
	if err == nil {
		d.external.Store(uint64(p))
	}
	return p, err
}

// Handles implements backend.Device.
func (d *Device) Handles(b backend.Buffer) backend.Handles {
	if d.enter() != nil {
		return backend.Handles{}
	}
	defer d.leave()
	s := d.mem.span(b)
	h := d.port.Handles(s.slab.block)
	h.Offset += uint64(s.off)
	if h.Address != 0 {
		h.Address += uint64(s.off)
	}
	return h
}

// Pageable implements backend.Stager.
func (d *Device) Pageable() bool {
	p, ok := d.port.(Pager)
	return ok && p.Pageable()
}

// Trim implements backend.Cacher. Memory that work still uses is not waited
// for.
func (d *Device) Trim(target int64) (freed int64) {
	if d.enter() != nil {
		return 0
	}
	defer d.leave()
	d.mem.mu.Lock()
	defer d.mem.mu.Unlock()
	d.mem.collect()
	freed = d.mem.trim(target)
	d.mem.leaver.Wait() // what others gave back counts for whoever allocates now
	return freed
}

// Cache implements backend.Cacher.
func (d *Device) Cache() (c backend.CacheInfo) {
	d.mem.mu.Lock()
	defer d.mem.mu.Unlock()
	c.Bytes = d.mem.cached()
	c.Padding = int64(d.mem.live - d.mem.asked)
	for _, l := range d.mem.slabs {
		if l.live == 0 {
			c.Largest = max(c.Largest, int64(l.block.Size))
		}
	}
	return c
}

// Cached implements backend.Cacher.
func (d *Device) Cached() int64 {
	d.mem.mu.Lock()
	defer d.mem.mu.Unlock()
	return d.mem.cached()
}

// SetCache implements backend.Cacher. The default is one slab, for half a
// minute.
func (d *Device) SetCache(most int64, idle time.Duration) {
	d.mem.mu.Lock()
	defer d.mem.mu.Unlock()
	d.mem.max, d.mem.idle = d.mem.defaults()
	if most != 0 {
		d.mem.max = max(most, 0)
	}
	if idle != 0 {
		d.mem.idle = max(idle, 0)
	}
	d.mem.trim(d.mem.max)
	if t := d.mem.timer; t != nil {
		t.Stop()
		d.mem.timer = nil
	}
	d.mem.watch()
}

// Close implements backend.Device. It waits for all work.
func (d *Device) Close() error {
	if err := d.enter(); err != nil {
		return err
	}
	d.q.settle(d.q.newest())
	d.leave()
	gone, err := d.end()
	for _, release := range gone {
		release() // not under the lock: what it ends may be anything
	}
	return err
}

// end closes the device, and returns what is to be called then.
func (d *Device) end() (gone []func(), err error) {
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.closed {
		return nil, backend.ErrClosed
	}
	d.q.settle(d.q.newest()) // queued since
	d.closed = true
	d.up.close()
	d.down.close()
	d.unpinAll()
	gone = d.mem.close()
	if err := d.port.Close(); err != nil {
		return gone, fmt.Errorf("closing the device: %w", err)
	}
	return gone, nil
}

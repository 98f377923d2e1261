package fuel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/check"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/track"
)

// A region is memory on one device and the counts that say who uses it:
//
//	owners   mutable identities whose bytes these are; above one, or where the
//	         memory is read-only, nobody may write
//	writers  operations that write; only while there is one owner, which
//	         cannot share it meanwhile
//	pins     operations that read
//
// The memory goes when all are zero. They are one word, so that "one owner and
// I write" or "no writer and I share" is one compare-and-swap, and an idle
// Clone takes one atomic operation. A region is never handed out.
type region struct {
	word atomic.Uint64
	mem  *memory

	// origin is the place of the memory's first byte in the coordinates of
	// its owners. A private copy of part of a region keeps that part's
	// coordinates, so no handle ever changes its offset.
	origin int

	// For the race detector: what former owners read comes before what the
	// last one writes, and what writers wrote before what a sharer reads.
	reads, writes race.Order

	// For sharers that wait until there is no writer.
	park sync.Mutex
	wake sync.Cond

	hook runtime.Cleanup // set if hooked
}

// The fields of region.word, from the low end: 28 bits of owners, 18 of pins,
// 17 of writers, and a bit that says that a sharer waits.
const (
	oneOwner  = 1
	onePin    = 1 << 28
	oneWriter = 1 << 46
	waiting   = 1 << 63

	ownersMask  = onePin - 1
	pinsMask    = oneWriter - onePin
	writersMask = waiting - oneWriter
)

// memory is what a region frees in the end. It never points back to the
// region, so that the collector can find a region unreachable and free its
// memory.
type memory struct {
	dev     *device
	buf     backend.Buffer
	kind    MemoryKind
	size    int // bytes that its owner asked for; buf may have more
	free    func()
	record  *track.Record
	ro      bool
	hooked  bool
	escaped atomic.Bool // a raw slice was handed out

	// The newest Points of this device's queue that write and that use the
	// memory at all. Zero while no Queue was used.
	lastWrite, lastUse atomic.Uint64
}

// MemoryKind says what kind of memory a Region is.
type MemoryKind uint8

// The kinds of memory.
const (
	MemoryHeap      MemoryKind = iota // Go heap, aligned
	MemoryAnonymous                   // from the operating system
	MemoryMapped                      // a file, read-only
	MemoryWrapped                     // the caller's, by Wrap
	MemoryDevice                      // a GPU's
)

var memoryNames = [...]string{"heap", "anonymous", "mapped", "wrapped", "device"}

// String returns the name in lower case.
func (k MemoryKind) String() string {
	if int(k) >= len(memoryNames) {
		return fmt.Sprintf("memory(%d)", k)
	}
	return memoryNames[k]
}

// MarshalText implements encoding.TextMarshaler.
func (k MemoryKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// newRegion makes a region with one owner of memory that m describes.
func newRegion(m *memory, origin int) *region {
	r := &region{mem: m, origin: origin}
	r.wake.L = &r.park
	r.word.Store(oneOwner)
	m.dev.add(m.size)
	m.record = track.Add(m.dev.id.String(), m.kind.String(), m.size)
	// Small blocks of the Go heap need no hook: the collector frees them
	// anyway, and a hook costs more than they do.
	if m.hooked = m.kind != MemoryHeap || m.size >= fromSystem || check.On(); m.hooked {
		r.hook = runtime.AddCleanup(r, (*memory).leaked, m)
	}
	return r
}

// allocRegion allocates n bytes on dev for an owner whose first byte has the
// coordinate origin.
func allocRegion(dev *device, n int, zero bool, origin int) (*region, error) {
	m := &memory{dev: dev, size: n, kind: MemoryDevice}
	if dev.id.Kind == CPU {
		m.kind = MemoryHeap
	}
	if n > 0 {
		buf, err := dev.alloc(n, zero)
		if err != nil {
			return nil, err
		}
		m.buf = buf
		if buf.Handle == fromSysMem && dev.id.Kind == CPU {
			m.kind = MemoryAnonymous
		}
	}
	return newRegion(m, origin), nil
}

// add, cas and load are the operations on word. The race detector must not take them for synchronization
// of a caller's accesses, so they are hidden from it, and what does order
// accesses is said by reads and writes.
func (r *region) add(d uint64) uint64 {
	race.Disable()
	w := r.word.Add(d)
	race.Enable()
	return w
}

func (r *region) cas(old, new uint64) bool {
	race.Disable()
	ok := r.word.CompareAndSwap(old, new)
	race.Enable()
	return ok
}

func (r *region) load() uint64 {
	race.Disable()
	w := r.word.Load()
	race.Enable()
	return w
}

// tryPin keeps the memory for a reader. It fails where the memory is gone.
func (r *region) tryPin() bool {
	for {
		w := r.load()
		if w&^waiting == 0 {
			return false
		}
		if w&pinsMask == pinsMask { // a quarter of a million readers
			runtime.Gosched()
			continue
		}
		if r.cas(w, w+onePin) {
			return true
		}
	}
}

func (r *region) unpin() { r.left(r.add(^uint64(onePin - 1))) }

// left frees the memory if w, the word after somebody left, says that it was
// the last.
func (r *region) left(w uint64) {
	if w&^waiting == 0 {
		r.free()
	}
}

// tryShare adds an owner. It fails where the memory is gone, and where
// somebody writes: then busy is set.
func (r *region) tryShare() (ok, busy bool) {
	for {
		w := r.load()
		switch {
		case w&ownersMask == 0:
			return false, false
		case w&writersMask != 0:
			return false, true
		case w&ownersMask == ownersMask:
			panic("fuel.Clone: over 268,435,455 clones of one storage")
		}
		if r.cas(w, w+oneOwner) {
			r.writes.Acquire()
			return true, false
		}
	}
}

// awaitWriters blocks until there was a moment without a writer.
func (r *region) awaitWriters() {
	r.park.Lock()
	defer r.park.Unlock()
	for {
		w := r.load()
		if w&writersMask == 0 {
			return
		}
		if w&waiting != 0 || r.cas(w, w|waiting) {
			r.wake.Wait()
		}
	}
}

// dropOwner takes an owner away.
func (r *region) dropOwner() {
	r.reads.Release()
	r.left(r.add(^uint64(oneOwner - 1)))
}

// tryWrite adds a writer. It fails unless there is exactly one owner and the
// memory can be written.
func (r *region) tryWrite() bool {
	for {
		w := r.load()
		if r.mem.ro || w&ownersMask != oneOwner {
			return false
		}
		if w&writersMask == writersMask {
			runtime.Gosched()
			continue
		}
		if r.cas(w, w+oneWriter) {
			r.reads.Acquire()
			return true
		}
	}
}

func (r *region) leaveWrite() {
	r.writes.Release()
	w := r.add(^uint64(oneWriter - 1))
	if w&waiting != 0 && w&writersMask == 0 {
		r.park.Lock()
		for {
			now := r.load()
			if now&waiting == 0 || r.cas(now, now&^waiting) {
				break
			}
		}
		r.wake.Broadcast()
		r.park.Unlock()
	}
	r.left(w)
}

func (r *region) free() {
	m := r.mem
	if m.hooked {
		r.hook.Stop()
	}
	m.release()
}

// release gives the memory back.
func (m *memory) release() {
	track.Remove(m.record)
	m.dev.remove(m.size)
	switch {
	case m.free != nil:
		if m.dev.be.Done(backend.Point(m.lastUse.Load())) {
			m.free()
			return
		}
		go func() {
			// Only queued work that reads the memory is waited for.
			_ = m.dev.be.Wait(context.Background(), backend.Point(m.lastUse.Load()))
			m.free()
		}()
	case m.buf.Size > 0:
		m.dev.be.Free(m.buf, backend.Point(m.lastUse.Load()))
	}
}

// leaked is called by the collector where a region became unreachable without
// a Close.
func (m *memory) leaked() {
	m.dev.leaks.Add(1)
	m.dev.leaked.Add(int64(m.size))
	if check.On() {
		fmt.Fprintf(os.Stderr, "fuel: leak: a Storage was dropped without Close: %s\n", m.record)
	}
	if m.escaped.Load() {
		return // a leak is better than a dangling slice
	}
	go m.release() // not on the collector's goroutine: a driver may block
}

// bytes returns the host memory of a range in owner coordinates.
func (r *region) bytes(off, n int) []byte {
	if n == 0 {
		return []byte{}
	}
	off -= r.origin
	return r.mem.buf.Host[off : off+n : off+n]
}

// settle waits for queued work that a direct access must come after. A read
// comes after what writes, and fails where that failed. A write comes after
// what uses the memory at all, and makes good what failed before.
func (r *region) settle(write bool) error {
	m := r.mem
	if !write {
		last := m.lastWrite.Load()
		if last == 0 {
			return nil
		}
		return m.dev.noted(m.dev.be.Wait(context.Background(), backend.Point(last)))
	}
	if last := m.lastUse.Load(); last != 0 {
		failed := m.lastWrite.Load()
		if r.host() { // on a device what follows is queued behind it
			// Without a context only the error of that work comes, and it was
			// its caller's to hear.
			_ = m.dev.be.Wait(context.Background(), backend.Point(last))
		}
		m.lastWrite.CompareAndSwap(failed, 0)
	}
	return nil
}

// raise lifts v to at least p.
func raise(v *atomic.Uint64, p backend.Point) {
	for {
		old := v.Load()
		if old >= uint64(p) || v.CompareAndSwap(old, uint64(p)) {
			return
		}
	}
}

// RegionInfo describes the memory behind a Storage at one moment.
type RegionInfo struct {
	Memory   MemoryKind `json:"memory"`
	Bytes    int        `json:"bytes"`    // of the whole Region, which others may use too
	Owners   int        `json:"owners"`   // Storages and Clones that share it; Views do not count
	ReadOnly bool       `json:"readOnly"` // the first mutation makes a private copy
	Pinned   bool       `json:"pinned"`   // page-locked for a GPU
}

func (r *region) info() RegionInfo {
	return RegionInfo{
		Memory:   r.mem.kind,
		Bytes:    r.mem.size,
		Owners:   int(r.load() & ownersMask),
		ReadOnly: r.mem.ro,
	}
}

// A device is an opened device and what fuel counts on it.
type device struct {
	id   Device
	be   backend.Device
	info DeviceInfo
	lost atomic.Bool // no call can succeed any more

	bytes, peak, regions atomic.Int64
	leaks, leaked        atomic.Int64
	copies               atomic.Int64 // private copies made for a write
}

func newDevice(id Device, be backend.Device, info backend.DeviceInfo) *device {
	return &device{id: id, be: be, info: publicInfo(id, info)}
}

func (d *device) close() {
	d.lost.Store(true)
	// The driver is being replaced; nobody is left to hear of a failure.
	_ = d.be.Close()
}

// add counts a new region of n bytes.
func (d *device) add(n int) {
	d.regions.Add(1)
	now := d.bytes.Add(int64(n))
	for {
		peak := d.peak.Load()
		if peak >= now || d.peak.CompareAndSwap(peak, now) {
			return
		}
	}
}

// remove counts that a region of n bytes is gone.
func (d *device) remove(n int) {
	d.bytes.Add(int64(-n))
	d.regions.Add(-1)
}

// usable is nil unless the device is lost.
func (d *device) usable() error {
	if d.lost.Load() {
		return fmt.Errorf("%w: %s", ErrDeviceLost, d.id)
	}
	return nil
}

// noted turns a driver's error into this package's, and remembers a loss.
func (d *device) noted(err error) error {
	if errors.Is(err, backend.ErrLost) {
		d.lost.Store(true)
	}
	return fromDriver(err)
}

// alloc gets n > 0 bytes from the driver.
func (d *device) alloc(n int, zero bool) (backend.Buffer, error) {
	if err := d.usable(); err != nil {
		return backend.Buffer{}, err
	}
	if m := d.info.MaxAlloc; m > 0 && n > m {
		return backend.Buffer{}, fmt.Errorf("%w: %d bytes, and %s takes %d at most", ErrTooLarge, n, d.id, m)
	}
	buf, err := d.be.Alloc(n, zero)
	if errors.Is(err, backend.ErrNoMemory) || errors.Is(err, cpu.ErrNoMemory) {
		return buf, &OutOfMemoryError{
			Device: d.id, Requested: int64(n), Free: d.be.Memory().Free,
			Limit: -1, InUse: d.bytes.Load(), Err: err,
		}
	}
	return buf, d.noted(err)
}

// host reports whether the region's bytes can be addressed here.
func (r *region) host() bool { return r.mem.dev.id.Kind == CPU }

// loadRegion and storeRegion treat a plain pointer field as atomic: a fresh
// owner can set it without the cost of an atomic store.
func loadRegion(p **region) *region {
	return (*region)(atomic.LoadPointer((*unsafe.Pointer)(unsafe.Pointer(p))))
}

func storeRegion(p **region, r *region) {
	atomic.StorePointer((*unsafe.Pointer)(unsafe.Pointer(p)), unsafe.Pointer(r))
}

package fuel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
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
	word race.Uint64
	mem  *memory

	// origin is the place of the memory's first byte in the coordinates of
	// its owners. A private copy of part of a region keeps that part's
	// coordinates, so no handle ever changes its offset.
	origin int

	// For the race detector: reads of former owners, and reads that end after
	// their owner, come before what the last owner writes; writes come before
	// what a sharer reads; all of it before the memory is reused.
	reads, lateReads, writes race.Order

	// Those who wait until there is no writer; the bit waiting says whether
	// there are any, and changes under park only.
	park    sync.Mutex
	sharers *sharer

	hook runtime.Cleanup // set if hooked
}

// The fields of region.word, from the low end: 28 bits of owners, 17 of pins,
// 17 of writers, a bit that says that an owner has left since the last write,
// whose reads may still run, and a bit that says that a sharer waits.
const (
	oneOwner  = 1
	onePin    = 1 << 28
	oneWriter = 1 << 45
	parted    = 1 << 62
	waiting   = 1 << 63

	ownersMask  = onePin - 1
	pinsMask    = oneWriter - onePin
	writersMask = parted - oneWriter
	counts      = parted - 1
)

// memory is what a region frees in the end. It never points back to the
// region, so that the collector can find a region unreachable and free its
// memory.
type memory struct {
	dev     *device
	buf     backend.Buffer
	size    int // bytes that its owner asked for; buf may have more
	free    func()
	record  *track.Record
	file    bool // imported, and a mapped file's
	wishes  wishes
	huge    cpu.HugePages
	shared  *sharing // of MemoryShared, else nil
	pinning atomic.Pointer[pinning]
	kind    MemoryKind
	ro      atomic.Bool // may not be written to; shared memory may become so
	hooked  bool
	charged bool        // counts against limits
	escaped atomic.Bool // a raw slice was handed out

	// The newest Points of this device's queue that write and that use the
	// memory at all. Zero while no Queue was used.
	lastWrite, lastUse atomic.Uint64
	before             atomic.Pointer[earlier]
}

// earlier has the queued writes before lastWrite that it does not cover: it is
// there once a Queue wrote to a part of the memory.
type earlier struct {
	mu     sync.Mutex
	points []backend.Point // of which nobody knows how they ended, oldest first
	failed error           // of the last that failed
}

// MemoryKind says what kind of memory a Region is.
type MemoryKind uint8

// The kinds of memory.
const (
	MemoryHeap      MemoryKind = iota // Go heap, aligned: wasm, and race builds
	MemoryAnonymous                   // from the operating system, through the pool
	MemoryMapped                      // a file, read-only
	MemoryWrapped                     // the caller's, by Wrap
	MemoryDevice                      // a GPU's
	MemoryShared                      // other processes may have it too: NewShared, OpenShared
	MemoryImported                    // the host's, used by a GPU where it is
)

var memoryNames = []string{"heap", "anonymous", "mapped", "wrapped", "device", "shared", "imported"}

// String returns the name in lower case.
func (k MemoryKind) String() string { return name(k, memoryNames, "memory") }

// MarshalText implements encoding.TextMarshaler.
func (k MemoryKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *MemoryKind) UnmarshalText(text []byte) error {
	return unname(k, text, memoryNames, "kind of memory")
}

// newRegion makes a region with one owner of memory that m describes.
func newRegion(m *memory, origin int) *region {
	r := &region{}
	m.hooked = true
	r.begin(m, origin)
	return r
}

// begin makes r, which is new, a region with one owner.
func (r *region) begin(m *memory, origin int) {
	r.mem, r.origin = m, origin
	r.word.Store(oneOwner)
	m.dev.add(m.size)
	if track.On() {
		m.record = track.Add(m.dev.id.String(), m.kind.String(), m.size)
	}
	if m.hooked {
		r.hook = runtime.AddCleanup(r, (*memory).leaked, m)
	}
}

// unhooked is a region and its memory in one piece, where the collector need
// not find the region unreachable before the memory.
type unhooked struct {
	region region
	memory memory
}

// allocRegion allocates n bytes on dev for an owner whose first byte has the
// coordinate origin. ctx is for a device to page-lock it with that is not open.
func allocRegion(ctx context.Context, dev *device, n int, zero bool, origin int, w wishes) (*region, error) {
	var r *region
	var m *memory
	// A hook costs more than a small block does.
	if hooked := dev.id.Kind != CPU || n >= hookedFrom || check.On() || w.pinned != (Device{}); hooked {
		r, m = new(region), new(memory)
		m.hooked = true
	} else {
		both := new(unhooked)
		r, m = &both.region, &both.memory
	}
	m.dev, m.size, m.kind, m.wishes = dev, n, MemoryDevice, w
	if dev.id.Kind == CPU {
		m.kind = MemoryHeap
	}
	if n > 0 {
		if err := m.charge(); err != nil {
			return nil, err
		}
		lock := wanted(ctx, dev, w.pinned)
		if err := m.alloc(zero, lock.unit()); err != nil {
			m.discharge()
			return nil, dev.noted(err, n)
		}
		if dev.id.Kind == CPU && m.buf.Handle != goHeap {
			m.kind = MemoryAnonymous
		}
		if lock != nil {
			m.tryPin(lock)
		}
		if w.scope != nil {
			w.scope.quota.note()
		}
		dev.holdLimit()
	}
	r.begin(m, origin)
	return r, nil
}

// tryPin keeps the memory for a reader. It fails where the memory is gone, and
// now and then where others use it too.
func (r *region) tryPin() bool {
	w := r.word.Load()
	return w&counts != 0 && w&pinsMask != pinsMask && r.word.CompareAndSwap(w, w+onePin)
}

// crowded reports whether there is room for one more reader, of 131,071.
func (r *region) crowded() bool { return r.word.Load()&pinsMask == pinsMask }

func (r *region) unpin() {
	r.lateReads.Release()
	if r.word.Add(^uint64(onePin-1))&counts == 0 {
		r.free()
	}
}

// left frees the memory if w, the word after somebody left, says that it was
// the last.
func (r *region) left(w uint64) {
	if w&counts == 0 {
		r.free()
	}
}

// tryShare adds an owner. It fails where the memory is gone, and where
// somebody writes: then busy is set.
func (r *region) tryShare() (ok, busy bool) {
	for {
		w := r.word.Load()
		switch {
		case w&ownersMask == 0:
			return false, false
		case w&writersMask != 0:
			return false, true
		case w&ownersMask == ownersMask:
			panic("fuel.Clone: over 268,435,455 clones of one storage")
		}
		if r.word.CompareAndSwap(w, w+oneOwner) {
			r.writes.Acquire()
			return true, false
		}
	}
}

// A sharer waits to become an owner.
type sharer struct {
	next   *sharer
	shared chan bool // gets one answer
}

// shareLater waits for the mutations that run, and reports whether the last of
// them made the caller an owner, so that no later one can come in between. If
// not, the owner is over, or there was nothing to wait for. An error is ctx's.
func (r *region) shareLater(ctx context.Context) (shared bool, err error) {
	r.park.Lock()
	for {
		w := r.word.Load()
		if w&writersMask == 0 {
			r.park.Unlock()
			return false, nil
		}
		if w&waiting != 0 || r.word.CompareAndSwap(w, w|waiting) {
			break
		}
	}
	s := &sharer{next: r.sharers, shared: make(chan bool, 1)}
	r.sharers = s
	r.park.Unlock()
	select {
	case shared = <-s.shared:
	case <-ctx.Done():
		if r.withdraw(s) {
			return false, ctx.Err()
		}
		shared = <-s.shared // the answer is under way
	}
	r.writes.Acquire()
	return shared, nil
}

// withdraw ends the wait of s, and reports whether it still waited.
func (r *region) withdraw(s *sharer) bool {
	r.park.Lock()
	defer r.park.Unlock()
	p := &r.sharers
	for *p != s {
		if *p == nil {
			return false
		}
		p = &(*p).next
	}
	*p = s.next
	for r.sharers == nil {
		if w := r.word.Load(); r.word.CompareAndSwap(w, w&^waiting) {
			break
		}
	}
	return true
}

// giveWay lets sharers that wait go first, so that writers who follow each
// other without a gap cannot keep a Clone out. Its time is bounded: a write
// from within Mutate would else wait for a Clone that waits for that Mutate.
func (r *region) giveWay() {
	for d := time.Microsecond; d < 4*time.Millisecond && r.word.Load()&waiting != 0; d *= 2 {
		time.Sleep(d)
	}
}

// unshare takes an owner of tryShare away that was none for long: all that it
// read is over.
func (r *region) unshare() {
	r.reads.Release()
	r.left(r.word.Add(^uint64(oneOwner - 1)))
}

// dropOwner takes an owner away. Reads of it may still run.
func (r *region) dropOwner() {
	r.reads.Release()
	for {
		w := r.word.Load()
		next := w - oneOwner
		if next&ownersMask != 0 {
			next |= parted
		}
		if r.word.CompareAndSwap(w, next) {
			r.left(next)
			return
		}
	}
}

// tryWrite adds a writer. It fails unless there is exactly one owner, the
// memory can be written, and no read runs that may be a former owner's.
func (r *region) tryWrite() bool {
	for {
		w := r.word.Load()
		if r.mem.ro.Load() || w&ownersMask != oneOwner || w&parted != 0 && w&pinsMask != 0 {
			return false
		}
		if w&writersMask == writersMask {
			runtime.Gosched()
			continue
		}
		if w&parted != 0 { // the late reads are over: for this writer and all later ones
			r.lateReads.Acquire()
			r.reads.Release()
		}
		if r.word.CompareAndSwap(w, w&^parted+oneWriter) {
			r.reads.Acquire()
			if r.mem.ro.Load() { // sealed after the look above, and nothing else tells
				r.leaveWrite()
				return false
			}
			return true
		}
	}
}

func (r *region) leaveWrite() {
	r.writes.Release()
	for {
		w := r.word.Load()
		next := w - oneWriter
		if w&waiting != 0 && next&writersMask == 0 {
			if r.leaveToSharers() {
				return
			}
		} else if r.word.CompareAndSwap(w, next) {
			r.left(next)
			return
		}
	}
}

// leaveToSharers takes the last writer away and makes those who wait owners, in
// one step. It fails where it is not the last writer any more.
func (r *region) leaveToSharers() bool {
	r.park.Lock()
	n := uint64(0)
	for s := r.sharers; s != nil; s = s.next {
		n++
	}
	for {
		w := r.word.Load()
		next := w&^waiting - oneWriter
		if next&writersMask != 0 {
			r.park.Unlock()
			return false
		}
		shared := next&ownersMask != 0
		if shared {
			next += n * oneOwner
		}
		if r.word.CompareAndSwap(w, next) {
			s := r.sharers
			r.sharers = nil
			r.park.Unlock()
			for ; s != nil; s = s.next {
				s.shared <- shared
			}
			r.left(next)
			return true
		}
	}
}

func (r *region) free() {
	m := r.mem
	if m.hooked {
		r.hook.Stop()
		runtime.KeepAlive(r) // Stop is too late for a region that is unreachable
	}
	r.reads.Acquire()
	r.lateReads.Acquire()
	r.writes.Acquire()
	m.release()
}

// release gives the memory back.
func (m *memory) release() {
	if m.record != nil {
		track.Remove(m.record)
	}
	m.dev.remove(m.size)
	last := backend.Point(m.lastUse.Load())
	pinned := m.pinning.Load()
	if m.free == nil && pinned == nil {
		m.giveBack()
		return
	}
	if m.dev.be.Done(last) {
		pinned.end(m.giveBack)
		return
	}
	go func() {
		// Only queued work that reads the memory is waited for.
		_ = m.dev.be.Wait(context.Background(), last)
		pinned.end(m.giveBack)
	}()
}

// giveBack is the last that happens to the memory.
func (m *memory) giveBack() {
	switch {
	case m.free != nil:
		m.free()
	case m.buf.Size > 0:
		m.dev.be.Free(m.buf, backend.Point(m.lastUse.Load()))
		m.discharge()
		m.dev.holdLimit() // a block is larger in the cache than what counted for it
	}
}

// leaked is called by the collector where a region became unreachable without
// a Close.
func (m *memory) leaked() {
	track.Drop(m.record)
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

// settle waits for queued work that writes the memory, before a direct read, and
// fails where that failed.
func (r *region) settle(ctx context.Context) error {
	if r.mem.lastUse.Load() == 0 {
		return nil
	}
	return r.mem.awaitWrites(ctx)
}

func (m *memory) awaitWrites(ctx context.Context) error {
	return m.dev.noted(m.writes(ctx), m.size)
}

// writes waits for the queued writes and returns the error of one.
func (m *memory) writes(ctx context.Context) error {
	last := m.lastWrite.Load()
	if last == 0 {
		return nil
	}
	if err := m.dev.be.Wait(ctx, backend.Point(last)); err != nil {
		return err
	}
	if e := m.before.Load(); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.look(m.dev.be)
		if e.failed != nil {
			return e.failed
		}
		if len(e.points) > 0 {
			return nil // queued meanwhile
		}
	}
	// Good once and for all: a queue does not tell for ever.
	m.lastWrite.CompareAndSwap(last, 0)
	return nil
}

// look finds out how the writes ended that have passed.
func (e *earlier) look(be backend.Device) {
	for len(e.points) > 0 && be.Done(e.points[0]) {
		if err := be.Wait(context.Background(), e.points[0]); err != nil {
			e.failed = err
		}
		e.points = e.points[1:]
	}
}

// settleWrite waits for queued work that uses the memory at all, before a direct
// write. With all set that writes every byte that there is an owner of, and makes
// good what failed before.
func (r *region) settleWrite(ctx context.Context, all bool) error {
	if r.mem.lastUse.Load() == 0 {
		return nil
	}
	return r.mem.awaitUse(ctx, all)
}

func (m *memory) awaitUse(ctx context.Context, all bool) error {
	last, written := backend.Point(m.lastUse.Load()), m.lastWrite.Load()
	if m.dev.id.Kind == CPU { // on a device what follows is queued behind it
		// The error of that work itself was its caller's to hear.
		if err := m.dev.be.Wait(ctx, last); err != nil && !m.dev.be.Done(last) {
			return err
		}
	}
	if all {
		m.forgive()
		m.lastWrite.CompareAndSwap(written, 0)
	}
	return nil
}

// forgive drops what is known of queued writes before the last.
func (m *memory) forgive() {
	if e := m.before.Load(); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.points, e.failed = nil, nil
	}
}

// queued notes work at p that writes the memory, with all set every byte that
// there is an owner of.
func (m *memory) queued(p backend.Point, all bool) {
	raise(&m.lastUse, p)
	if all {
		m.forgive()
		raise(&m.lastWrite, p)
		return
	}
	e := m.before.Load()
	if e == nil {
		m.before.CompareAndSwap(nil, new(earlier))
		e = m.before.Load()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := backend.Point(m.lastWrite.Load()); last != 0 {
		e.points = append(e.points, min(last, p)) // others may be faster to note a later one
	}
	e.look(m.dev.be)
	raise(&m.lastWrite, p)
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
	ReadOnly bool       `json:"readOnly"` // the first mutation makes a private copy, or is ErrReadOnly: see OpenShared
	Sealed   bool       `json:"sealed"`   // shared memory that no process can change any more
	Scope    string     `json:"scope,omitempty"`

	// Pinned says that the memory is page-locked, PinnedFor for which GPU, and
	// PinnedRefused why it is not though Options.Pinned, or Pin of what this is
	// a private copy of, asked for it, or why it is not any more.
	Pinned        bool   `json:"pinned"`
	PinnedFor     Device `json:"pinnedFor,omitzero"`
	PinnedRefused string `json:"pinnedRefused,omitempty"`

	// HugePages says what came of Options.HugePages, and HugePagesRefused why
	// there are none.
	HugePages        HugePages `json:"hugePages"`
	HugePagesRefused string    `json:"hugePagesRefused,omitempty"`
}

// HugePages says what came of the wish for huge pages.
type HugePages uint8

// The outcomes.
const (
	HugePagesNotAsked  HugePages = iota // the system does as it does by default
	HugePagesRequested                  // the system took the wish, and gives them where it can
	HugePagesRefused                    // there are none
)

var hugePagesNames = []string{"not asked", "requested", "refused"}

// String returns the outcome in lower case words.
func (h HugePages) String() string { return name(h, hugePagesNames, "outcome for huge pages") }

// MarshalText implements encoding.TextMarshaler.
func (h HugePages) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *HugePages) UnmarshalText(text []byte) error {
	return unname(h, text, hugePagesNames, "outcome for huge pages")
}

func (r *region) info() RegionInfo {
	i := RegionInfo{
		Memory:           r.mem.kind,
		Bytes:            r.mem.size,
		Owners:           int(r.word.Load() & ownersMask),
		ReadOnly:         r.mem.ro.Load(),
		Sealed:           r.mem.shared != nil && !r.mem.unsealed(),
		Scope:            r.mem.wishes.scope.Name(),
		HugePagesRefused: r.mem.huge.Refused,
	}
	if p := r.mem.pinning.Load(); p != nil {
		if err := p.held(); err != nil {
			i.PinnedRefused = text(err)
		} else {
			i.Pinned, i.PinnedFor = true, p.dev
		}
	}
	switch {
	case r.mem.huge.Refused != "":
		i.HugePages = HugePagesRefused
	case r.mem.huge.Asked:
		i.HugePages = HugePagesRequested
	}
	return i
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

	quota quota // what this library allocated, and the user's limit for it
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
	if !d.lost.Load() {
		return nil
	}
	return d.isLost()
}

func (d *device) isLost() error { return fmt.Errorf("%w: %s", ErrDeviceLost, d.id) }

// noted turns the error of a driver's work on n bytes into this package's, and
// remembers a loss.
func (d *device) noted(err error, n int) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, backend.ErrLost) {
		d.lost.Store(true)
	}
	if noMemory(err) {
		return d.outOfMemory(int64(n), err)
	}
	return fromDriver(err)
}

// alloc gets the memory from the driver.
func (m *memory) alloc(zero bool, unit int) error {
	d := m.dev
	if err := d.usable(); err != nil {
		return err
	}
	if most := d.info.MaxAlloc; most > 0 && m.size > most {
		return fmt.Errorf("%w: %d bytes, and %s takes %d at most", ErrTooLarge, m.size, d.id, most)
	}
	err := m.ask(zero, unit)
	if err != nil && noMemory(err) && d.trim(0) > 0 {
		err = m.ask(zero, unit)
	}
	return err
}

func (m *memory) ask(zero bool, unit int) (err error) {
	h, ours := m.dev.be.(*host)
	switch {
	case ours:
		m.buf, m.huge, err = h.alloc(m.size, zero, m.wishes.huge, unit)
	default:
		m.buf, err = m.dev.be.Alloc(m.size, zero)
		if m.huge.Asked = m.wishes.huge; m.huge.Asked {
			m.huge.Refused = "not host memory"
		}
	}
	return err
}

// withRoom calls f, and again where that is refused for want of memory, when all
// that is kept of freed memory is gone: it takes addresses and mappings, too.
func (d *device) withRoom(f func() error) error {
	err := f()
	if err != nil && noMemory(err) {
		d.trim(0)
		err = f()
	}
	return err
}

func noMemory(err error) bool {
	return errors.Is(err, backend.ErrNoMemory) || errors.Is(err, cpu.ErrNoMemory)
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

package gpu

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-fuel/fuel/internal/backend"
)

// What is asked of a driver at once: few enough allocations for the 4096 that
// Vulkan guarantees, small enough not to take a small device for one tensor.
const (
	firstSlab = 64 << 20
	mostSlab  = 256 << 20
	leastSlab = 1 << 20

	// smallHeap is where an eighth of the heap is the better size.
	smallHeap = 1 << 30

	// maxAllocations is what a driver is trusted with, whatever it says
	// (Vulkan-Docs#1295); Storages leave some of them to the staging and to
	// others who share the device.
	maxAllocations = 4096
	spareOfThose   = 64
)

// defaultIdle is how long empty slabs are kept, unless SetCache says otherwise.
const defaultIdle = 30 * time.Second

// A memory is the memory of a device: slabs from the driver, and the spans that
// Buffers are. Spans come back when the work that uses them has passed.
type memory struct {
	port   Port
	lim    Limits
	passed func(backend.Point) bool

	mu      sync.Mutex
	space   space
	slabs   []*slab
	spans   []*span  // by handle-1; nil where free
	unused  []uint64 // handles
	waiting []pending
	leaving map[*span]bool // of host memory, in use until a Point has passed
	held    int            // bytes of the driver's in slabs
	live    int            // bytes in the spans of live Buffers
	asked   int            // bytes of live Buffers
	closed  bool
	newest  Block // the slab that was added last, or a Block that is no more

	max   int64 // most bytes of empty slabs to keep
	idle  time.Duration
	timer *time.Timer
	turn  int // of timers

	count   atomic.Int64   // driver allocations, those of the staging included
	leaver  sync.WaitGroup // goroutines that give slabs back; with mu held
	leavers atomic.Int64
}

// A pending span is free when a Point has passed.
type pending struct {
	s     *span
	after backend.Point
}

func newMemory(p Port, lim Limits, passed func(backend.Point) bool) *memory {
	m := &memory{port: p, lim: lim, passed: passed, leaving: map[*span]bool{}}
	m.space.align = lim.Align
	m.max, m.idle = m.defaults()
	return m
}

func (m *memory) defaults() (int64, time.Duration) {
	return int64(slabSize(m.lim, mostSlab)), defaultIdle
}

// slabSize is the length of a new slab, where one of want bytes would do.
func slabSize(lim Limits, want int) int {
	if lim.Heap > 0 && lim.Heap <= smallHeap {
		want = min(want, lim.Heap/8)
	}
	if lim.MaxBlock > 0 {
		want = min(want, lim.MaxBlock)
	}
	return max(want&^(lim.Align-1), lim.Align)
}

// most is the most driver allocations at once.
func (m *memory) most() int {
	if l := m.lim.MaxAllocations; l > 0 {
		return min(l, maxAllocations)
	}
	return maxAllocations
}

// cap is how many of most Storages may have: there are two stagings.
func (m *memory) cap() int {
	n := m.most()
	return max(n-max(min(spareOfThose, n/4), 2), 1)
}

// alloc returns a span of n bytes and its handle.
func (m *memory) alloc(n int) (*span, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, err := m.take(n)
	if err != nil {
		return nil, 0, err
	}
	m.live += s.size
	m.asked += n
	return s, m.name(s), nil
}

// scratch returns a span that has no handle: release gives it back.
func (m *memory) scratch(n int) (*span, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.take(n)
}

func (m *memory) take(n int) (*span, error) {
	size := n + -n&(m.lim.Align-1)
	if size < n || m.lim.MaxBlock > 0 && size > m.lim.MaxBlock {
		return nil, fmt.Errorf("%w: %d bytes, and one allocation has %d at most", backend.ErrTooLarge, n, m.lim.MaxBlock)
	}
	if m.closed {
		return nil, backend.ErrClosed
	}
	m.collect()
	if s := m.space.take(size); s != nil {
		return s, nil
	}
	if err := m.grow(size); err != nil {
		return nil, err
	}
	return m.space.take(size), nil
}

// name gives s a handle.
func (m *memory) name(s *span) uint64 {
	if k := len(m.unused); k > 0 {
		h := m.unused[k-1]
		m.unused = m.unused[:k-1]
		m.spans[h-1] = s
		return h
	}
	m.spans = append(m.spans, s)
	return uint64(len(m.spans))
}

// span returns the span of a Buffer.
func (m *memory) span(b backend.Buffer) *span {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.spans[b.Handle-1]
}

// usual is a Block like the one that new memory will be in: the one of the
// newest slab. Its memory may be gone.
func (m *memory) usual() Block {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.newest
}

// free gives a Buffer back after the Point and what is known of its use.
func (m *memory) free(b backend.Buffer, after backend.Point) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	s := m.forget(b)
	m.live -= s.size
	m.asked -= b.Size
	m.later(s, max(after, backend.Point(s.used.Load())))
}

// forget takes the handle of a Buffer back, and returns its span.
func (m *memory) forget(b backend.Buffer) *span {
	s := m.spans[b.Handle-1]
	m.spans[b.Handle-1] = nil
	m.unused = append(m.unused, b.Handle)
	return s
}

// release gives a span without a handle back after p.
func (m *memory) release(s *span, p backend.Point) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.later(s, p)
	}
}

func (m *memory) later(s *span, p backend.Point) {
	m.collect()
	if len(m.waiting) == 0 && m.passed(p) {
		m.give(s)
		return
	}
	m.waiting = append(m.waiting, pending{s, p})
	m.watch()
}

// next is the first Point after which there is more, 0 where nothing waits.
func (m *memory) next() (p backend.Point) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, w := range m.waiting {
		if i == 0 || w.after < p {
			p = w.after
		}
	}
	return p
}

// collect gives back what waits no longer.
func (m *memory) collect() {
	running := backend.Point(math.MaxUint64) // has not passed, so that nothing later has
	m.waiting = slices.DeleteFunc(m.waiting, func(w pending) bool {
		if w.after >= running {
			return false
		}
		if !m.passed(w.after) {
			running = w.after
			return false
		}
		m.give(w.s)
		return true
	})
}

func (m *memory) give(s *span) {
	l := s.slab
	m.space.give(s)
	if l.live == 0 {
		l.idle = time.Now()
		m.trimWith(m.max, m.leaveLater)
		m.watch()
	}
}

// grow adds a slab with room for n bytes.
func (m *memory) grow(n int) error {
	want := slabSize(m.lim, min(firstSlab<<min(len(m.slabs), 2), mostSlab))
	if n > want/2 {
		want = n // one of its own
	}
	for {
		leaving := m.leavers.Load() > 0 // some may have left when add is refused
		err := m.add(want)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, backend.ErrNoMemory):
			return err
		case want > n:
			want = max(want/2&^(m.lim.Align-1), n)
			if want < leastSlab {
				want = n
			}
		case m.emptied():
			m.trim(0)
		case leaving:
			m.leaver.Wait()
		default:
			return err
		}
	}
}

// add gets a slab of n bytes from the driver.
func (m *memory) add(n int) error {
	b, err := m.allocate(n, Storage)
	if err != nil {
		return err
	}
	m.newest = b
	if b.Host != nil {
		m.newest.Host = []byte{} // that memory may go, and this stays
	}
	l := &slab{block: b, idle: time.Now()}
	m.slabs = append(m.slabs, l)
	m.held += b.Size
	m.space.add(l)
	return nil
}

// allocate gets a Block, within the limits. m.mu is held.
func (m *memory) allocate(n int, use Use) (Block, error) {
	if err := m.room(use); err != nil {
		return Block{}, err
	}
	if room := m.lim.Heap - m.lim.forStaging() - m.held; use == Storage && m.lim.Heap > 0 && n > room {
		return Block{}, fmt.Errorf("%w: %d bytes, and %d are left of %d", backend.ErrNoMemory, n, max(room, 0), m.lim.Heap)
	}
	b, err := m.port.Allocate(n, use)
	if err == nil {
		m.count.Add(1)
	}
	return b, err
}

// room is nil where one more driver allocation is allowed. m.mu is held.
func (m *memory) room(use Use) error {
	most := m.most()
	if use == Storage {
		most = m.cap()
	}
	if n := int(m.count.Load()); n >= most {
		return fmt.Errorf("%w: %d allocations of the driver, and it allows no more", backend.ErrNoMemory, n)
	}
	return nil
}

// stage gets a Block for staging, and unstage gives it back.
func (m *memory) stage(n int, use Use) (Block, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allocate(n, use)
}

func (m *memory) unstage(b Block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leaveNow(b)
}

// leaveNow gives a Block back to the driver, which may wait for its work.
func (m *memory) leaveNow(b Block) {
	m.port.Release(b)
	m.count.Add(-1)
}

// leaveLater is leaveNow for those who must not wait. m.mu is held.
func (m *memory) leaveLater(b Block) {
	m.leavers.Add(1)
	m.leaver.Go(func() {
		defer m.leavers.Add(-1)
		m.leaveNow(b)
	})
}

// emptied reports whether there is an empty slab.
func (m *memory) emptied() bool {
	return slices.ContainsFunc(m.slabs, func(l *slab) bool { return l.live == 0 })
}

// cached counts the bytes of empty slabs.
func (m *memory) cached() (sum int64) {
	for _, l := range m.slabs {
		if l.live == 0 {
			sum += int64(l.block.Size)
		}
	}
	return sum
}

// trim gives empty slabs back, the ones that have been so for longest first,
// until at most target bytes of them are kept.
func (m *memory) trim(target int64) (freed int64) { return m.trimWith(target, m.leaveNow) }

func (m *memory) trimWith(target int64, leave func(Block)) (freed int64) {
	for kept := m.cached(); kept > max(target, 0); {
		var old *slab
		for _, l := range m.slabs {
			if l.live == 0 && (old == nil || l.idle.Before(old.idle)) {
				old = l
			}
		}
		m.drop(old, leave)
		kept -= int64(old.block.Size)
		freed += int64(old.block.Size)
	}
	return freed
}

func (m *memory) drop(l *slab, leave func(Block)) {
	m.space.remove(l)
	m.slabs = slices.DeleteFunc(m.slabs, func(o *slab) bool { return o == l })
	m.held -= l.block.Size
	leave(l.block)
}

// watch arranges that empty slabs go when they have been so for long enough,
// and those that will be empty.
func (m *memory) watch() {
	if m.timer != nil || m.idle <= 0 || m.closed || len(m.waiting) == 0 && !m.emptied() {
		return
	}
	wait := m.idle
	for _, l := range m.slabs {
		if l.live == 0 {
			wait = min(wait, m.idle-time.Since(l.idle))
		}
	}
	m.turn++
	turn := m.turn
	m.timer = time.AfterFunc(max(wait, 0), func() { m.expire(turn) })
}

// expire is what a timer does, unless it was stopped too late.
func (m *memory) expire(turn int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.timer == nil || m.turn != turn || m.closed {
		return
	}
	m.timer = nil
	m.collect()
	for _, l := range slices.Clone(m.slabs) {
		if l.live == 0 && time.Since(l.idle) >= m.idle {
			m.drop(l, m.leaveLater)
		}
	}
	m.watch()
}

// close gives everything back. No work uses it any more. It returns what is to
// be called then.
func (m *memory) close() (release []func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	release = m.disownAll()
	if m.timer != nil {
		m.timer.Stop()
	}
	m.leaver.Wait()
	for _, l := range m.slabs {
		m.port.Release(l.block)
	}
	m.slabs, m.spans, m.waiting, m.space = nil, nil, nil, space{}
	m.held, m.live, m.asked = 0, 0, 0
	return release
}

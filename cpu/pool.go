package cpu

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A Pool hands out host memory and keeps what is freed, up to a number of
// bytes, to hand it out again: taking memory from the system and touching it
// for the first time costs many times what clearing it does.
//
// Blocks of up to 1 MiB come from slabs, mapped memory that is cut into blocks
// of one size; larger ones are a mapping each. The Go heap holds only the
// bookkeeping, so the collector never looks at the blocks and its goal does
// not count them. Several goroutines may use a Pool at once; each core prefers
// slabs of its own.
//
// Where the platform has no other memory ([HaveReserve] is false), Get takes
// it from the Go heap, Put leaves it to the collector, and nothing is cached.
type Pool struct {
	shards []shard
	hint   sync.Pool // of *shard: a core's own, and nothing is lost with it
	turn   atomic.Uint32

	slabs slabTable
	large large

	mappings atomic.Int64 // slabs, and live and cached spans

	// Kept up to date in steps of announce bytes a bin; flush makes them exact.
	inUse, peak, cached atomic.Int64

	stuck atomic.Int64 // cached bytes above the cap that no Trim can give back

	_ [64]byte // what follows is read more often than written

	maxCached atomic.Int64 // 0: not asked for yet
	after     func(time.Duration, func())
	restore   func([]byte) error // restorePages, but for tests
	idle      atomic.Int64       // a time.Duration
	tick      atomic.Uint32
	armed     atomic.Bool

	heap struct{ live, asked, gets atomic.Int64 } // where HaveReserve is false
}

// PoolOptions are the choices of NewPool. The zero value and nil are the
// defaults.
type PoolOptions struct {
	// MaxCached is the most bytes of freed memory that is kept. 0 means the
	// smaller of 1 GiB and an eighth of what HostBudget says the process can
	// have; below zero, none.
	MaxCached int64

	// IdleTrim is how long freed memory lies unused before it goes back to
	// the system. It takes up to a third more. 0 means 30 seconds; below
	// zero, for ever.
	IdleTrim time.Duration

	// AfterFunc calls f in a goroutine of its own, once, after d. nil means
	// time.AfterFunc. It is for tests that have a clock of their own.
	AfterFunc func(d time.Duration, f func())
}

const (
	defaultCached = 1 << 30
	defaultIdle   = 30 * time.Second

	// idleTicks is how many times the clock fires in IdleTrim: more make the
	// end of a block's time more exact.
	idleTicks = 3

	// announce is the number of bytes by which a bin may differ from what the
	// whole pool knows of it.
	announce = 64 << 10

	maxShards = 16
)

// A Block is memory from a Pool.
type Block struct {
	// Bytes has the length that was asked for and begins at a multiple of
	// Align.
	Bytes []byte

	// ID tells the Pool where the block is from. It is never 0.
	ID uint64

	// HugePages says what came of the wish of GetHuge.
	HugePages HugePages
}

// HugePages says what came of a wish for huge pages. The zero value is that
// there was none.
type HugePages struct {
	Asked   bool
	Refused string // why there are none; empty: the system took the wish
}

// Values of Block.ID; those from firstSlab on are slabs.
const (
	idLarge   = 1
	idHeap    = 2
	firstSlab = 16
)

// NewPool returns an empty Pool.
func NewPool(o *PoolOptions) *Pool {
	if o == nil {
		o = &PoolOptions{}
	}
	n := 1
	for n < min(runtime.GOMAXPROCS(0), maxShards) {
		n *= 2
	}
	p := &Pool{shards: make([]shard, n), after: o.AfterFunc, restore: restorePages}
	if p.after == nil {
		p.after = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	}
	p.hint.New = func() any { return &p.shards[p.turn.Add(1)%uint32(n)] }
	p.large.live, p.large.sized = map[uintptr]*span{}, map[size]*spans{}
	p.maxCached.Store(max(o.MaxCached, -1))
	p.SetIdleTrim(o.IdleTrim)
	return p
}

// SetMaxCached changes PoolOptions.MaxCached, and trims to it.
func (p *Pool) SetMaxCached(n int64) {
	p.maxCached.Store(max(n, -1))
	p.stuck.Store(0)
	p.flush()
	p.keepCap(p.cached.Load())
}

// SetIdleTrim changes PoolOptions.IdleTrim for the time to come.
func (p *Pool) SetIdleTrim(d time.Duration) {
	if d == 0 {
		d = defaultIdle
	}
	p.idle.Store(int64(d))
	if p.cached.Load() > 0 {
		p.arm()
	}
}

// cap is the most bytes to keep. The default looks at the system, once.
func (p *Pool) cap() int64 {
	n := p.maxCached.Load()
	if n == 0 {
		n = defaultCached
		if total := HostBudget().Total; total > 0 {
			n = max(1, min(n, total/8))
		}
		if !p.maxCached.CompareAndSwap(0, n) {
			return p.cap()
		}
	}
	return max(n, 0)
}

// Get returns a block of n bytes, n > 0. All of them are zero if zero is set,
// else they are unspecified. Memory that the system gives zeroed is not
// touched; memory that was used before is cleared now. The block is the
// caller's until Put.
//
// Where the system refuses, everything that is cached goes back to it and Get
// asks once more; then it is an error that wraps ErrNoMemory. n below one
// panics.
func (p *Pool) Get(n int, zero bool) (Block, error) { return p.get(n, zero, false) }

// GetHuge is Get with the wish that the system backs the block with huge
// pages. Block.HugePages says what came of it; a wish that is refused is no
// error. Blocks below 2 MiB never get them.
func (p *Pool) GetHuge(n int, zero bool) (Block, error) {
	b, err := p.get(n, zero, n >= hugePage)
	if b.HugePages.Asked = true; n < hugePage {
		b.HugePages.Refused = fmt.Sprintf("the block has under %d bytes", hugePage)
	}
	return b, err
}

func (p *Pool) get(n int, zero, huge bool) (Block, error) {
	switch {
	case n < 1:
		panic("cpu.Pool.Get: the size is below one")
	case int64(n) > maxBlock:
		return Block{}, fmt.Errorf("%w: no process has %d bytes", ErrNoMemory, n)
	case !HaveReserve:
		if err := checkHeap(n); err != nil {
			return Block{}, err
		}
		return p.getHeap(n), nil
	}
	var b Block
	var dirty bool
	var err error
	if n <= smallMax && !huge {
		b, dirty, err = p.getSmall(n)
	} else {
		b, dirty, err = p.getLarge(n, huge)
	}
	if err == nil && zero && dirty {
		zeroBlock(b.Bytes)
	}
	return b, err
}

// maxBlock is what a block can have at most: the address space of a process on
// today's processors, and what an int counts with room for rounding.
const maxBlock = min(1<<47, int64(^uint(0)>>1)-1<<20)

// zeroBlock is Zero, from several goroutines where that gains.
func zeroBlock(b []byte) {
	if len(b) < parallelMin {
		Zero(b)
		return
	}
	_, _ = Run(context.Background(), len(b), func(off, end int) error { // neither can fail
		ZeroPart(b[off:end], off, len(b))
		return nil
	}, nil)
}

// Put takes a block back. Nobody may use its bytes any more. A block that is
// not this Pool's, or was put back before, panics.
func (p *Pool) Put(b Block) {
	switch {
	case b.ID == idHeap && !HaveReserve:
		p.heap.live.Add(-1)
		p.heap.asked.Add(-int64(len(b.Bytes)))
		p.use(-int64(len(b.Bytes)))
	case b.ID == idLarge:
		p.putLarge(b)
	case b.ID >= firstSlab:
		p.putSmall(b)
	default:
		panic("BUG: cpu.Pool: foreign free: " + describe(b))
	}
}

func describe(b Block) string {
	return fmt.Sprintf("%d bytes at %#x, ID %d", len(b.Bytes), address(b.Bytes), b.ID)
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func (p *Pool) getHeap(n int) Block {
	p.heap.live.Add(1)
	p.heap.gets.Add(1)
	p.heap.asked.Add(int64(n))
	p.use(int64(n))
	return Block{Bytes: AlignedHeap(n), ID: idHeap}
}

// use counts bytes in use, d of which may be negative, and the peak.
func (p *Pool) use(d int64) {
	now := p.inUse.Add(d)
	for d > 0 {
		peak := p.peak.Load()
		if peak >= now || p.peak.CompareAndSwap(peak, now) {
			return
		}
	}
}

// keep counts cached bytes, and holds the cap and the clock.
func (p *Pool) keep(d int64) {
	now := p.cached.Add(d)
	if d > 0 || p.stuck.Load() > 0 {
		p.keepCap(now)
	}
}

func (p *Pool) keepCap(cached int64) {
	limit := p.cap()
	over, stuck := max(0, cached-limit), p.stuck.Load()
	if over <= stuck {
		if over < stuck-stuck/4 { // some of it is in use again, or gone; a little of that comes and goes
			p.stuck.CompareAndSwap(stuck, over)
		}
		return
	}
	p.sweep(limit, 0)
	p.stuck.Store(max(0, p.cached.Load()-limit))
}

// Trim gives cached memory back to the system until at most target bytes are
// cached, and returns how many bytes it gave back. What was used last is kept
// longest. Free blocks that are not whole pages and lie between live ones
// stay; on other systems than Linux and Windows all that lie there.
func (p *Pool) Trim(target int64) (freed int64) {
	p.flush()
	freed, _ = p.sweep(max(target, 0), 0)
	return freed
}

// sweep gives cached memory back until target bytes are cached, or, where age
// is above zero, all that was not used for so many ticks. young are the bytes
// that are cached and go when they are older.
func (p *Pool) sweep(target int64, age uint32) (freed, young int64) {
	f, y := p.sweepLarge(target, age)
	freed, young = freed+f, young+y
	f, y = p.sweepSlabs(target, age)
	return freed + f, young + y
}

// arm starts the clock, unless it runs.
func (p *Pool) arm() {
	if p.armed.Load() {
		return
	}
	d := time.Duration(p.idle.Load())
	if d > 0 && p.armed.CompareAndSwap(false, true) {
		p.after(max(1, d/idleTicks), p.fire)
	}
}

// fire is a tick of the clock, which runs only while there is something to
// give back. A block that was freed at tick k has lain there for idleTicks
// whole periods at tick k+idleTicks+1.
func (p *Pool) fire() {
	p.tick.Add(1)
	p.armed.Store(false) // before the look: what is freed from now on starts it again
	if p.idle.Load() < 0 {
		return
	}
	p.flush()
	if _, young := p.sweep(0, idleTicks+1); young > 0 {
		p.arm()
	}
}

// Cached returns the bytes of freed blocks that are kept, to within 64 KiB a
// core and size, at the cost of one atomic load.
func (p *Pool) Cached() int64 { return max(0, p.cached.Load()) }

// PoolStats are figures of a Pool. They are exact while nobody uses it.
type PoolStats struct {
	InUse   int64 // bytes of live blocks, as asked for
	Peak    int64 // the most that InUse was, to within 64 KiB a core and size
	Padding int64 // bytes of live blocks beyond what was asked for
	Blocks  int64 // live blocks
	Gets    int64 // blocks handed out since the start
	Mapped  int64 // bytes of address space; most may never have been touched

	Cached        int64 // bytes of freed blocks that are kept
	LargestCached int64 // bytes of the largest of these blocks
}

// Stats returns the figures.
func (p *Pool) Stats() PoolStats {
	p.flush()
	s := PoolStats{
		InUse: p.heap.asked.Load(), Blocks: p.heap.live.Load(), Gets: p.heap.gets.Load(),
	}
	p.large.add(&s)
	for i := range p.shards {
		for c := range p.shards[i].bins {
			p.shards[i].bins[c].add(&s, classSize(c))
		}
	}
	s.Peak = max(p.peak.Load(), s.InUse)
	return s
}

package cpu

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A shard is one core's part of a Pool.
type shard struct {
	bins [numClasses]bin
}

// A bin has the slabs of one size in one shard. Blocks go back to the bin of
// their slab, whoever frees them.
type bin struct {
	mu    sync.Mutex
	avail []*slab // have a block to give; the last is asked first
	all   []*slab

	live, asked, gets, dirty int64 // blocks, bytes, blocks, bytes

	useAhead, cacheAhead int64 // bytes not yet counted in the Pool

	_ [64]byte // keeps neighbours on other cores off the cache line of mu
}

// What a block of a slab is.
const (
	blockClean uint8 = iota // free, and known to be zero
	blockLive
	blockDirty // free, was used
	blockBare  // free; zero once its pages are restored
)

// A slab is mapped memory, cut into blocks of one size. All fields but bin are
// the bin's, under its lock.
type slab struct {
	bin   atomic.Pointer[bin]
	id    uint64
	class int
	mem   []byte
	state []uint8  // of each block
	free  []uint16 // blocks that were live before, the last freed last
	fresh int      // blocks from here on were never live
	live  int
	dirty int // of free
	used  uint32

	atAvail, atAll int // places in the bin's lists; atAvail -1: not there
}

// slabTable finds slabs by number without a lock.
type slabTable struct {
	dir  [1 << 10]atomic.Pointer[slabPage]
	mu   sync.Mutex
	next uint64
	gone []uint64 // numbers to use again
}

type slabPage [1 << 10]atomic.Pointer[slab]

func (t *slabTable) at(id uint64) *slab {
	i := id - firstSlab
	if i>>10 >= uint64(len(t.dir)) {
		return nil
	}
	page := t.dir[i>>10].Load()
	if page == nil {
		return nil
	}
	return page[i&1023].Load()
}

// enter gives s a number. It fails where there are a million slabs.
func (t *slabTable) enter(s *slab) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.next
	if n := len(t.gone); n > 0 {
		i, t.gone = t.gone[n-1], t.gone[:n-1]
	} else if i>>10 >= uint64(len(t.dir)) {
		return false
	} else {
		t.next++
	}
	page := t.dir[i>>10].Load()
	if page == nil {
		page = new(slabPage)
		t.dir[i>>10].Store(page)
	}
	s.id = i + firstSlab
	page[i&1023].Store(s)
	return true
}

func (t *slabTable) leave(s *slab) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := s.id - firstSlab
	t.dir[i>>10].Load()[i&1023].Store(nil)
	t.gone = append(t.gone, i)
}

// getSmall returns a block from a slab, and whether it was used before.
func (p *Pool) getSmall(n int) (b Block, dirty bool, err error) {
	c := classOf(n)
	sh := p.hint.Get().(*shard)
	home := &sh.bins[c]
	p.hint.Put(sh)
	size := classSize(c)
	home.mu.Lock()
	var s *slab
	var i int
	for trimmed := false; ; {
		if len(home.avail) == 0 {
			home.mu.Unlock()
			if err := p.supply(home, c); err != nil {
				return Block{}, false, err
			}
			home.mu.Lock()
			continue
		}
		s = home.avail[len(home.avail)-1]
		i = s.next()
		if s.state[i] != blockBare {
			break
		}
		if err = p.restore(s.mem[i*size:][:size]); err == nil {
			break
		}
		home.mu.Unlock() // the block stays where it is
		if trimmed {
			return Block{}, false, err
		}
		trimmed = true
		p.Trim(0)
		home.mu.Lock()
	}
	if k := len(s.free); k > 0 {
		s.free = s.free[:k-1]
	} else {
		s.fresh++
	}
	if dirty = s.state[i] == blockDirty; dirty {
		s.dirty--
		home.dirty -= int64(size)
		home.cacheAhead -= int64(size)
	}
	s.state[i] = blockLive
	s.live++
	s.used = p.tick.Load()
	if len(s.free) == 0 && s.fresh == len(s.state) {
		home.unavail(s)
	}
	home.live++
	home.gets++
	home.asked += int64(n)
	home.useAhead += int64(n)
	use, cache := home.announced(announce)
	home.mu.Unlock()
	p.told(use, cache)
	// A slab of the system's memory has no pointer that the collector knows.
	at := unsafe.Add(unsafe.Pointer(unsafe.SliceData(s.mem)), i*size)
	return Block{Bytes: unsafe.Slice((*byte)(at), n), ID: s.id}, dirty, nil
}

// next is the block to give. There is one.
func (s *slab) next() int {
	if k := len(s.free); k > 0 {
		return int(s.free[k-1])
	}
	return s.fresh
}

func (p *Pool) putSmall(b Block) {
	s := p.slabs.at(b.ID)
	if s == nil {
		panic("BUG: cpu.Pool: foreign free: " + describe(b))
	}
	size := classSize(s.class)
	off := address(b.Bytes) - address(s.mem)
	i := int(off / uintptr(size))
	if off >= uintptr(len(s.state)*size) || off%uintptr(size) != 0 || len(b.Bytes) == 0 || len(b.Bytes) > size {
		panic("BUG: cpu.Pool: foreign free: " + describe(b))
	}
	owner := s.bin.Load()
	owner.mu.Lock()
	for owner != s.bin.Load() { // another core took the slab over
		owner.mu.Unlock()
		owner = s.bin.Load()
		owner.mu.Lock()
	}
	if s.state[i] != blockLive {
		owner.mu.Unlock()
		panic("BUG: cpu.Pool: double free: " + describe(b))
	}
	s.state[i] = blockDirty
	s.free = append(s.free, uint16(i))
	s.live--
	s.dirty++
	s.used = p.tick.Load()
	if s.atAvail < 0 {
		owner.toAvail(s)
	}
	owner.live--
	owner.dirty += int64(size)
	owner.asked -= int64(len(b.Bytes))
	owner.useAhead -= int64(len(b.Bytes))
	owner.cacheAhead += int64(size)
	use, cache := owner.announced(announce)
	owner.mu.Unlock()
	p.told(use, cache)
	p.arm()
}

// supply gives home a slab with a block: an idle one with memory that was used
// before, from another shard, else a new one.
func (p *Pool) supply(home *bin, c int) error {
	for i := range p.shards {
		if b := &p.shards[i].bins[c]; b != home {
			if s := b.idle(); s != nil {
				home.adopt(s)
				return nil
			}
		}
	}
	block := classSize(c)
	bare := block%pageSize == 0 // then each gets its memory when it is handed out
	mem, err := p.reserve(func() ([]byte, error) {
		if bare {
			return reserveBare(slabSize(block))
		}
		return Reserve(slabSize(block))
	})
	if err != nil {
		return err
	}
	n := len(mem) / block
	s := &slab{class: c, mem: mem, state: make([]uint8, n), free: make([]uint16, 0, n), used: p.tick.Load()}
	if bare {
		s.allBare()
	}
	if !p.slabs.enter(s) {
		p.mappings.Add(-1)
		_ = Release(mem) // what counts is that there is no room
		return ErrNoMemory
	}
	home.adopt(s)
	return nil
}

// idle takes a slab without live blocks and with used ones out of the bin, or
// returns nil.
func (b *bin) idle() *slab {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := len(b.avail) - 1; i >= 0; i-- {
		if s := b.avail[i]; s.live == 0 && s.dirty > 0 {
			b.remove(s)
			return s
		}
	}
	return nil
}

// adopt adds a slab that is in no bin.
func (b *bin) adopt(s *slab) {
	s.bin.Store(b)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.atAll = len(b.all)
	b.all = append(b.all, s)
	b.toAvail(s)
	d := int64(s.dirty * classSize(s.class))
	b.dirty += d
	b.cacheAhead += d
}

func (b *bin) remove(s *slab) {
	if s.atAvail >= 0 {
		b.unavail(s)
	}
	last := b.all[len(b.all)-1]
	b.all[s.atAll], last.atAll = last, s.atAll
	b.all[len(b.all)-1] = nil
	b.all = b.all[:len(b.all)-1]
	d := int64(s.dirty * classSize(s.class))
	b.dirty -= d
	b.cacheAhead -= d
}

func (b *bin) toAvail(s *slab) {
	s.atAvail = len(b.avail)
	b.avail = append(b.avail, s)
}

func (b *bin) unavail(s *slab) {
	last := b.avail[len(b.avail)-1]
	b.avail[s.atAvail], last.atAvail = last, s.atAvail
	b.avail[len(b.avail)-1] = nil
	b.avail = b.avail[:len(b.avail)-1]
	s.atAvail = -1
}

// announced returns what the Pool has to be told, if it is limit bytes or
// more.
func (b *bin) announced(limit int64) (use, cache int64) {
	if u := b.useAhead; u >= limit || u <= -limit {
		use, b.useAhead = u, 0
	}
	if c := b.cacheAhead; c >= limit || c <= -limit {
		cache, b.cacheAhead = c, 0
	}
	return use, cache
}

func (p *Pool) told(use, cache int64) {
	if use != 0 {
		p.use(use)
	}
	if cache != 0 {
		p.keep(cache)
	}
}

// flush makes the Pool's own counts exact.
func (p *Pool) flush() {
	for i := range p.shards {
		for c := range p.shards[i].bins {
			b := &p.shards[i].bins[c]
			b.mu.Lock()
			use, cache := b.announced(1)
			b.mu.Unlock()
			p.use(use)
			p.cached.Add(cache)
		}
	}
}

func (b *bin) add(s *PoolStats, size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.InUse += b.asked
	s.Blocks += b.live
	s.Gets += b.gets
	s.Padding += b.live*int64(size) - b.asked
	s.Cached += b.dirty
	if b.dirty > 0 {
		s.LargestCached = max(s.LargestCached, int64(size))
	}
	for _, slab := range b.all {
		s.Mapped += int64(len(slab.mem))
	}
}

// sweepSlabs is sweep for slabs: largest blocks first, whole slabs before the
// free blocks of others.
func (p *Pool) sweepSlabs(target int64, age uint32) (freed, young int64) {
	if p.cached.Load() <= target && target > 0 {
		return 0, 0
	}
	now := p.tick.Load()
	for c := numClasses - 1; c >= 0; c-- {
		for i := range p.shards {
			if target > 0 && p.cached.Load() <= target {
				return freed, young
			}
			f, y := p.sweepBin(&p.shards[i].bins[c], target, age, now)
			freed, young = freed+f, young+y
		}
	}
	return freed, young
}

func (p *Pool) sweepBin(b *bin, target int64, age, now uint32) (freed, young int64) {
	var gone []*slab
	b.mu.Lock()
	for i := len(b.all) - 1; i >= 0; i-- {
		s := b.all[i]
		size := int64(classSize(s.class))
		have := int64(s.dirty) * size
		pages := s.live > 0 && size%int64(pageSize) == 0 && canDrop
		switch {
		case s.live > 0 && (!pages || have == 0):
			continue
		case age > 0 && now-s.used < age:
			young += max(1, have) // an idle slab goes as well
			continue
		case target > 0 && p.cached.Load() <= target:
			b.mu.Unlock()
			return freed + p.unmapAll(b, gone), young
		}
		if s.live == 0 {
			b.remove(s)
			gone = append(gone, s)
		} else {
			have = s.drop()
			b.dirty -= have
			b.cacheAhead -= have
			freed += have
		}
		use, cache := b.announced(1)
		p.use(use)
		p.cached.Add(cache)
	}
	b.mu.Unlock()
	return freed + p.unmapAll(b, gone), young
}

// drop gives the pages of free blocks back and returns their bytes. The size of
// the blocks is a multiple of the page's.
func (s *slab) drop() (freed int64) {
	size := classSize(s.class)
	for _, i := range s.free {
		if s.state[i] == blockDirty && dropPages(s.mem[int(i)*size:][:size]) {
			s.state[i] = blockBare
			s.dirty--
			freed += int64(size)
		}
	}
	return freed
}

func (s *slab) allBare() {
	for i := range s.state {
		s.state[i] = blockBare
	}
}

// unmapAll gives slabs that are in no bin and have no live block back to the
// system.
func (p *Pool) unmapAll(b *bin, gone []*slab) (freed int64) {
	unmap := p.mayUnmap(len(gone))
	slices.SortFunc(gone, func(a, b *slab) int { return cmp.Compare(address(a.mem), address(b.mem)) })
	for _, s := range gone {
		have := int64(s.dirty * classSize(s.class))
		p.slabs.leave(s)
		if unmap {
			if Release(s.mem) == nil {
				freed += have
				continue
			}
			p.mappings.Add(1)
		}
		if dropPages(s.mem) {
			s.allBare()
			s.dirty = 0
			freed += have
		}
		if p.slabs.enter(s) { // else, with a million others, only address space is lost
			b.adopt(s)
		}
	}
	return freed
}

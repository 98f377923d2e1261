package cpu

import (
	"cmp"
	"slices"
	"sync"
)

// large has the blocks of a Pool that are a mapping of their own.
type large struct {
	mu     sync.Mutex
	live   map[uintptr]*span // by address
	cached spans             // free ones that were used
	clean  spans             // free ones whose addresses could not go
	cleans int               // of clean
	sized  map[size]*spans   // all free ones, by size
	asked  int64
	bytes  int64 // of live
	kept   int64 // of cached, but for clean ones
	gets   int64
}

// A span is one mapping.
type span struct {
	mem   []byte
	asked int
	used  uint32 // tick of Put
	clean bool   // its pages went: zero, once they are restored
	huge  HugePages

	links [2]link // of cached or clean, and of sized
}

// size is what spans must have in common to take each other's place.
type size struct {
	bytes int
	huge  bool
}

func (sp *span) size() size { return size{len(sp.mem), sp.huge.Asked} }

// spans is a list of spans, through their links with the given number. What
// was freed first comes first.
type spans struct {
	which       int
	first, last *span
}

type link struct{ before, after *span }

func (l *spans) append(sp *span) {
	sp.links[l.which] = link{before: l.last}
	if l.last != nil {
		l.last.links[l.which].after = sp
	} else {
		l.first = sp
	}
	l.last = sp
}

func (l *spans) prepend(sp *span) {
	sp.links[l.which] = link{after: l.first}
	if l.first != nil {
		l.first.links[l.which].before = sp
	} else {
		l.last = sp
	}
	l.first = sp
}

func (l *spans) remove(sp *span) {
	k := &sp.links[l.which]
	if k.before != nil {
		k.before.links[l.which].after = k.after
	} else {
		l.first = k.after
	}
	if k.after != nil {
		k.after.links[l.which].before = k.before
	} else {
		l.last = k.before
	}
	*k = link{}
}

// bigAlign is the size from which a mapping begins at a huge page without
// being asked to. From there on every size is a multiple of a huge page, so
// that neighbours leave no gap and the kernel counts them as one mapping.
const bigAlign = 8 * hugePage

// hugePage is the size of a huge page: 2 MiB on amd64, and on arm64 with pages
// of 4 KiB. Where it is another, alignment to this one does no harm.
const hugePage = 2 << 20

// largeSize returns the bytes of the mapping for a block of n: a class, so
// that other sizes can use it again, or just whole pages where it will not be
// kept.
func (p *Pool) largeSize(n int) int {
	exact, _ := AlignUp(n, pageSize) // n is far below the end of int
	size, ok := AlignUp(classSize(classOf(n)), pageSize)
	if !ok || size < n || int64(size) > p.cap() {
		return exact
	}
	return size
}

// getLarge returns a block with a mapping of its own, and whether it was used
// before.
func (p *Pool) getLarge(n int, huge bool) (b Block, dirty bool, err error) {
	size := p.largeSize(n)
	sp := p.large.take(size, huge)
	if sp != nil && sp.clean && p.restore(sp.mem) != nil {
		p.keepClean([]*span{sp})
		sp = nil
	}
	if sp == nil {
		if sp, err = p.newSpan(n, size, huge); err != nil {
			return Block{}, false, err
		}
	} else if dirty = !sp.clean; dirty {
		p.keep(-int64(len(sp.mem)))
	}
	sp.asked, sp.clean = n, false
	p.large.enter(sp)
	p.use(int64(n))
	return Block{Bytes: sp.mem[:n:n], ID: idLarge, HugePages: sp.huge}, dirty, nil
}

func (p *Pool) newSpan(n, size int, huge bool) (*span, error) {
	align := 0
	if huge || size >= bigAlign && p.mappings.Load() < maxMappings { // it may leave a gap
		align = hugePage
	}
	mem, err := p.reserve(func() ([]byte, error) { return ReserveAligned(size, align) })
	if err != nil {
		exact, _ := AlignUp(n, pageSize)
		if mem, err = Reserve(exact); err != nil {
			return nil, err
		}
		p.mappings.Add(1)
	}
	sp := &span{mem: mem}
	if huge {
		sp.huge = HugePages{Asked: true, Refused: adviseHuge(mem)}
	}
	return sp, nil
}

// reserve makes a mapping, after giving back what is cached where the system
// refuses.
func (p *Pool) reserve(mapping func() ([]byte, error)) ([]byte, error) {
	mem, err := mapping()
	if err != nil {
		p.Trim(0)
		mem, err = mapping()
	}
	if err == nil {
		p.mappings.Add(1)
	}
	return mem, err
}

// take returns the span of the given size that was freed last, or nil.
func (l *large) take(n int, huge bool) *span {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.sized[size{n, huge}]
	if list == nil || list.last == nil {
		return nil
	}
	sp := list.last
	l.forget(sp)
	return sp
}

// keep adds a free span: as the last one freed, or, where only its pages could
// go, to be used again last.
func (l *large) keep(sp *span) {
	list := l.sized[sp.size()]
	if list == nil {
		list = &spans{which: 1}
		l.sized[sp.size()] = list
	}
	if sp.clean {
		list.prepend(sp)
		l.clean.append(sp)
		l.cleans++
		return
	}
	list.append(sp)
	l.cached.append(sp)
	l.kept += int64(len(sp.mem))
}

func (l *large) forget(sp *span) {
	list := l.sized[sp.size()]
	if list.remove(sp); list.first == nil {
		delete(l.sized, sp.size())
	}
	if sp.clean {
		l.clean.remove(sp)
		l.cleans--
		return
	}
	l.cached.remove(sp)
	l.kept -= int64(len(sp.mem))
}

func (l *large) enter(sp *span) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[address(sp.mem)] = sp
	l.asked += int64(sp.asked)
	l.bytes += int64(len(sp.mem))
	l.gets++
}

func (p *Pool) putLarge(b Block) {
	limit := p.cap()
	l := &p.large
	l.mu.Lock()
	at := address(b.Bytes)
	sp := l.live[at]
	if sp == nil || len(b.Bytes) != sp.asked {
		l.mu.Unlock()
		panic("BUG: cpu.Pool: double or foreign free: " + describe(b))
	}
	delete(l.live, at)
	n := int64(len(sp.mem))
	l.asked -= int64(sp.asked)
	l.bytes -= n
	keep := n <= limit
	if keep {
		sp.used = p.tick.Load()
		l.keep(sp)
	}
	l.mu.Unlock()
	p.use(-int64(len(b.Bytes)))
	if keep {
		p.keep(n)
		p.arm()
	} else {
		p.unmap(sp)
	}
}

// maxMappings bounds the mappings between which a Pool leaves holes. Linux
// allows a process 65,530 (vm.max_map_count): it counts neighbours as one, but
// not across a hole. At the limit munmap fails, also for the Go runtime, which
// then ends the program. Half of them are for others.
const maxMappings = 30_000

// crowded reports that, where n mappings go, there are too many others.
func (p *Pool) crowded(n int) bool {
	return countsMappings && p.mappings.Load()-int64(n) > maxMappings
}

// Extent returns all of the memory around a block that is nobody else's: whole
// pages that begin with the block. It is nil where there is no such thing: for
// a block that shares its pages with others, and one of the Go heap.
func (p *Pool) Extent(b Block) []byte {
	if b.ID != idLarge {
		return nil
	}
	p.large.mu.Lock()
	defer p.large.mu.Unlock()
	sp := p.large.live[address(b.Bytes)]
	if sp == nil {
		panic("BUG: cpu.Pool: Extent of a block that is not live: " + describe(b))
	}
	return sp.mem
}

// mayUnmap reports whether n mappings can be given back. Where there are too
// many others, only their pages can.
func (p *Pool) mayUnmap(n int) bool {
	if p.crowded(n) {
		return false
	}
	p.mappings.Add(-int64(n))
	return true
}

// unmap gives a span that is in no list back to the system.
func (p *Pool) unmap(sp *span) { p.unmapSpans([]*span{sp}) }

// unmapSpans gives spans that are in no list back to the system.
func (p *Pool) unmapSpans(gone []*span) {
	if !p.mayUnmap(len(gone)) {
		p.keepClean(gone)
		return
	}
	// From one end to the other, so that no hole is made that will not be
	// there in the end.
	slices.SortFunc(gone, func(a, b *span) int { return cmp.Compare(address(a.mem), address(b.mem)) })
	failed := slices.DeleteFunc(gone, func(sp *span) bool { return Release(sp.mem) == nil })
	p.mappings.Add(int64(len(failed)))
	p.keepClean(failed)
}

// keepClean gives the pages of spans back and keeps their addresses. Where that
// fails they are lost.
func (p *Pool) keepClean(gone []*span) {
	for _, sp := range gone {
		if sp.clean = sp.clean || dropPages(sp.mem); sp.clean {
			p.large.mu.Lock()
			p.large.keep(sp)
			p.large.mu.Unlock()
		}
	}
}

// sweepLarge is sweep for mappings, the oldest first.
func (p *Pool) sweepLarge(target int64, age uint32) (freed, young int64) {
	l := &p.large
	now := p.tick.Load()
	var gone []*span
	l.mu.Lock()
	for l.cached.first != nil {
		sp := l.cached.first
		if age > 0 && now-sp.used < age {
			young = max(1, l.kept)
			break
		}
		if age == 0 && target > 0 && p.cached.Load() <= target {
			break
		}
		p.cached.Add(-int64(len(sp.mem)))
		freed += int64(len(sp.mem))
		l.forget(sp)
		gone = append(gone, sp)
	}
	// Addresses that can go now.
	if target == 0 && !p.crowded(l.cleans+len(gone)) {
		for sp := l.clean.first; sp != nil; sp = l.clean.first {
			l.forget(sp)
			gone = append(gone, sp)
		}
	}
	l.mu.Unlock()
	p.unmapSpans(gone)
	return freed, young
}

func (l *large) add(s *PoolStats) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.InUse += l.asked
	s.Blocks += int64(len(l.live))
	s.Gets += l.gets
	s.Padding += l.bytes - l.asked
	s.Cached += l.kept
	s.Mapped += l.bytes
	for sp := l.clean.first; sp != nil; sp = sp.links[0].after {
		s.Mapped += int64(len(sp.mem))
	}
	for sp := l.cached.first; sp != nil; sp = sp.links[0].after {
		s.Mapped += int64(len(sp.mem))
		s.LargestCached = max(s.LargestCached, int64(len(sp.mem)))
	}
}

package gpu

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// minAlign is the least alignment of a Buffer that fuel promises.
const minAlign = 64

// A space is the memory of a device's Blocks, cut into spans. It is pure
// arithmetic: nothing in it calls a driver, and nothing locks.
//
// Free spans are kept by size in bins of which a bitmap tells the full ones,
// so that take and give cost the same however many there are: the two-level
// segregated fit of Masmano et al. (ECRTS 2004).
type space struct {
	align int // of every span's offset and size

	first uint64             // bit f: some bin of row f has a span
	row   [64]uint32         // bit s: bin s of the row has one
	bins  [64][subBins]*span // by size, see bin
	spare *span              // dead nodes, linked by next
	free  int                // bytes in free spans
}

// subBins is the number of bins between a power of two and the next: a span is
// at most a sixteenth longer than it need be when it is picked without looking.
const (
	subBits = 4
	subBins = 1 << subBits
)

// A span is a part of a Block.
type span struct {
	slab       *slab
	off, size  int
	live       bool
	used       atomic.Uint64 // Point of the last work on it
	prev, next *span         // neighbours in the Block
	left, more *span         // in the bin, while free
	release    func()        // set for host memory, which is in no space
}

// A slab is a Block that spans are cut from.
type slab struct {
	block Block
	live  int       // spans in use
	idle  time.Time // when the last of them went
}

// bin tells where a free span of n bytes, at least minAlign, is kept.
func bin(n int) (row, sub int) {
	row = bits.Len(uint(n)) - 1
	return row, n>>(row-subBits) - subBins
}

// take cuts a span of n bytes, a multiple of align, from a free one, or returns
// nil where none is long enough.
func (s *space) take(n int) *span {
	// From the first bin in which every span is long enough.
	up := n + 1<<(bits.Len(uint(n))-1-subBits) - 1
	if up < n { // no bin is above
		return s.takeClose(n)
	}
	row, sub := bin(up)
	if m := s.row[row] >> sub; m != 0 {
		sub += bits.TrailingZeros32(m)
	} else if m := s.first &^ (2<<row - 1); m != 0 {
		row = bits.TrailingZeros64(m)
		sub = bits.TrailingZeros32(s.row[row])
	} else {
		return s.takeClose(n)
	}
	return s.cut(s.bins[row][sub], n)
}

// takeClose looks in the one bin whose spans may be long enough or not: a Block
// made for one request is no longer than that.
func (s *space) takeClose(n int) *span {
	row, sub := bin(n)
	for f := s.bins[row][sub]; f != nil; f = f.more {
		if f.size >= n {
			return s.cut(f, n)
		}
	}
	return nil
}

func (s *space) cut(f *span, n int) *span {
	s.unlink(f)
	if rest := f.size - n; rest > 0 {
		r := s.node()
		*r = span{slab: f.slab, off: f.off + n, size: rest, prev: f, next: f.next}
		if r.next != nil {
			r.next.prev = r
		}
		f.next, f.size = r, n
		s.link(r)
	}
	f.live = true
	f.used.Store(0)
	f.slab.live++
	return f
}

// give takes a span back and joins it with free neighbours.
func (s *space) give(f *span) {
	f.live = false
	f.slab.live--
	if n := f.next; n != nil && !n.live {
		s.unlink(n)
		s.join(f, n)
	}
	if p := f.prev; p != nil && !p.live {
		s.unlink(p)
		s.join(p, f)
		f = p
	}
	s.link(f)
}

// join makes b, which follows a, a part of it.
func (s *space) join(a, b *span) {
	a.size += b.size
	a.next = b.next
	if a.next != nil {
		a.next.prev = a
	}
	*b = span{next: s.spare}
	s.spare = b
}

// add makes all of a slab a free span.
func (s *space) add(l *slab) {
	f := s.node()
	*f = span{slab: l, size: l.block.Size &^ (s.align - 1)}
	s.link(f)
}

// whole returns the free span that is all of a slab without live spans.
func (s *space) whole(l *slab) *span {
	row, sub := bin(l.block.Size &^ (s.align - 1))
	for f := s.bins[row][sub]; f != nil; f = f.more {
		if f.slab == l {
			return f
		}
	}
	panic("BUG: gpu: an empty slab is not one free span")
}

// remove takes an empty slab out.
func (s *space) remove(l *slab) {
	f := s.whole(l)
	s.unlink(f)
	*f = span{next: s.spare}
	s.spare = f
}

func (s *space) node() *span {
	if f := s.spare; f != nil {
		s.spare = f.next
		return f
	}
	return new(span)
}

func (s *space) link(f *span) {
	row, sub := bin(f.size)
	head := &s.bins[row][sub]
	f.left, f.more = nil, *head
	if f.more != nil {
		f.more.left = f
	}
	*head = f
	s.row[row] |= 1 << sub
	s.first |= 1 << row
	s.free += f.size
}

func (s *space) unlink(f *span) {
	row, sub := bin(f.size)
	if f.left != nil {
		f.left.more = f.more
	} else {
		s.bins[row][sub] = f.more
		if f.more == nil {
			if s.row[row] &^= 1 << sub; s.row[row] == 0 {
				s.first &^= 1 << row
			}
		}
	}
	if f.more != nil {
		f.more.left = f.left
	}
	f.left, f.more = nil, nil
	s.free -= f.size
}

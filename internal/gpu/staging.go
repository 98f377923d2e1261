package gpu

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
)

// stagingSize is the length of the memory that transfers in one direction go
// through, both halves: while the device works on one the host works on the
// other. BenchmarkTransfer gains nothing from more.
const stagingSize = 8 << 20

// leastStaging is the least that a transfer can do with.
const leastStaging = 64 << 10

// A staging is memory that the host has mapped and the device can copy to and
// from. It is there from the first use on.
type staging struct {
	d   *Device
	use Use

	mu    sync.Mutex // held for one transfer
	block Block
	half  int              // bytes of each of the two
	got   atomic.Int64     // bytes of both; 0 before the first use
	turn  int              // the half in use
	at    int              // bytes of it that are taken
	busy  [2]backend.Point // of the last work on each
}

// ready gets the memory. s.mu is held.
func (s *staging) ready() error {
	if s.block.ID != 0 {
		return nil
	}
	for size := stagingSize; ; size /= 2 {
		b, err := s.d.mem.stage(size, s.use)
		if err == nil {
			s.block, s.half = b, size/2
			s.got.Store(int64(size))
			return nil
		}
		if !errors.Is(err, backend.ErrNoMemory) || size == leastStaging {
			return fmt.Errorf("staging memory: %w", err)
		}
	}
}

// size is the bytes of the memory that a transfer goes through.
func (s *staging) size() int {
	if n := int(s.got.Load()); n > 0 {
		return n
	}
	return stagingSize
}

// room returns where the next bytes go, and how many of n fit there. It waits
// for earlier work on that half.
func (s *staging) room(n int) (off, length int, err error) {
	s.at += -s.at & (max(s.d.lim.Atom, minAlign) - 1) // no two share an atom
	if s.at >= s.half || n > s.half-s.at && n <= s.half {
		other := s.turn ^ 1
		if err := s.d.q.wait(context.Background(), s.busy[other]); err != nil {
			return 0, 0, err // it may still be in use
		}
		s.turn, s.at = other, 0
	}
	length = min(n, s.half-s.at)
	off = s.turn*s.half + s.at
	s.at += length
	return off, length, nil
}

// atoms widens a range of the memory to what Flush and Invalidate take.
func (s *staging) atoms(off, n int) (start, length int) {
	unit := s.d.lim.Atom
	start = off &^ (unit - 1)
	end := off + n
	end = min(end+-end&(unit-1), s.block.Size)
	return start, end - start
}

// send makes what the host wrote there visible to work.
func (s *staging) send(off, n int) error {
	if s.block.Coherent {
		return nil
	}
	start, length := s.atoms(off, n)
	return s.d.port.Flush(s.block, start, length)
}

// queue queues ops that use s and a span, no more than MaxOp bytes at a time
// but for those of the edges.
func (s *staging) queue(to *span, ops ...Op) (last backend.Point, err error) {
	for len(ops) > 0 {
		n, sum := 1, ops[0].N
		for n < len(ops) && sum < MaxOp {
			sum += ops[n].N
			n++
		}
		if last, err = s.d.work(ops[:n], to); err != nil {
			return 0, err
		}
		s.busy[s.turn] = last
		ops = ops[n:]
	}
	return last, nil
}

// upload copies src to a range; whole is its length, or more where the last
// unit may be overwritten.
func (s *staging) upload(to *span, off int, src source, whole int) (last backend.Point, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return 0, err
	}
	unit := s.d.lim.CopyUnit
	head := off & (unit - 1) // bytes of the first unit that stay
	keep := s.d.odd(off + whole)
	off -= head
	left := head + whole
	left += -left & (unit - 1)
	for done := 0; left > 0; {
		at, n, err := s.room(left)
		if err != nil {
			return 0, err
		}
		b := s.block.Host[at:][:n]
		if head > 0 {
			if err := s.d.down.download(b[:unit], to, off); err != nil {
				return 0, err
			}
		}
		if keep && n == left {
			if err := s.d.down.download(b[n-unit:], to, off+n-unit); err != nil {
				return 0, err
			}
		}
		k := min(n-head, src.n-done)
		if err := src.get(b[head:head+k], done); err != nil {
			return 0, err
		}
		if err := s.send(at, n); err != nil {
			return 0, err
		}
		last, err = s.queue(to, Op{Kind: OpCopy, Dst: to.slab.block, DstOff: to.off + off, Src: s.block, SrcOff: at, N: n})
		if err != nil {
			return 0, err
		}
		done, off, left, head = done+k, off+n, left-n, 0
	}
	return last, nil
}

// copyMost copies what fits and returns the number of bytes.
func copyMost(dst, src []byte) int {
	n := min(len(dst), len(src))
	cpu.Copy(dst[:n], src[:n])
	return n
}

// move is an overlapping copy for a device that has no other memory to spare.
func (s *staging) move(on *span, to, from, n int) (last backend.Point, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return 0, err
	}
	b := on.slab.block
	for done := 0; done < n; {
		mid, k, err := s.room(n - done)
		if err != nil {
			return 0, err
		}
		at := moved(to, from, n, done, k)
		last, err = s.queue(on,
			Op{Kind: OpCopy, Dst: s.block, DstOff: mid, Src: b, SrcOff: on.off + from + at, N: k},
			Op{Kind: OpCopy, Dst: b, DstOff: on.off + to + at, Src: s.block, SrcOff: mid, N: k})
		if err != nil {
			return 0, err
		}
		done += k
	}
	return last, nil
}

// seeded does a fill that needs bytes from the host.
func (s *staging) seeded(to *span, off, n int, pattern []byte, f filling) (last backend.Point, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return 0, err
	}
	f.seed = min(f.seed, s.half)
	size := f.seed + -f.seed&15 // so that it ends with a pattern
	at, _, err := s.room(size)  // all of it, since a half has that
	if err != nil {
		return 0, err
	}
	cpu.Fill(s.block.Host[at:][:size], pattern)
	if err := s.send(at, size); err != nil {
		return 0, err
	}
	dst := to.slab.block
	begin := to.off + off
	ops := make([]Op, 0, 32)
	if f.head+f.tail > 0 {
		body := n - f.head - f.tail
		if f.head > 0 {
			ops = append(ops, Op{Kind: OpCopy, Dst: dst, DstOff: begin, Src: s.block, SrcOff: at, N: f.head})
		}
		for i := 0; i < body; {
			k := min(MaxOp, body-i)
			ops = append(ops, Op{Kind: OpFill, Dst: dst, DstOff: begin + f.head + i, N: k, Word: f.word})
			i += k
		}
		if f.tail > 0 {
			skew := (f.head + body) % 4
			ops = append(ops, Op{Kind: OpCopy, Dst: dst, DstOff: begin + n - f.tail, Src: s.block, SrcOff: at + skew, N: f.tail})
		}
		return s.queue(to, ops...)
	}
	ops = append(ops, Op{Kind: OpCopy, Dst: dst, DstOff: begin, Src: s.block, SrcOff: at, N: f.seed})
	for have := f.seed; have < n; {
		k := min(have, n-have, MaxOp)
		ops = append(ops, Op{Kind: OpCopy, Dst: dst, DstOff: begin + have, Src: dst, SrcOff: begin, N: k})
		have += k
	}
	return s.queue(to, ops...)
}

func (s *staging) download(dst []byte, from *span, off int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.ready(); err != nil {
		return err
	}
	unit := s.d.lim.CopyUnit
	head := off & (unit - 1) // bytes that are not asked for
	off -= head
	whole := head + len(dst)
	whole += -whole & (unit - 1)
	type piece struct {
		at, n int
		p     backend.Point
	}
	take := func(done int) (x piece, err error) {
		if x.at, x.n, err = s.room(whole - done); err != nil {
			return x, err
		}
		x.p, err = s.queue(from, Op{Kind: OpCopy, Dst: s.block, DstOff: x.at, Src: from.slab.block, SrcOff: from.off + off + done, N: x.n})
		return x, err
	}
	next, err := take(0)
	for done := 0; ; {
		if err != nil {
			return err
		}
		x := next
		var later error
		if ahead := done + x.n; ahead < whole {
			next, later = take(ahead)
		}
		if err := s.d.q.wait(context.Background(), x.p); err != nil {
			return err
		}
		if !s.block.Coherent {
			start, length := s.atoms(x.at, x.n)
			if err := s.d.port.Invalidate(s.block, start, length); err != nil {
				return err
			}
		}
		dst = dst[copyMost(dst, s.block.Host[x.at:][head:x.n]):]
		head = 0
		if done += x.n; done == whole {
			return nil
		}
		err = later
	}
}

func (s *staging) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.block.ID != 0 {
		s.d.mem.unstage(s.block)
		s.block = Block{}
	}
}

package fueltest

import (
	"context"
	"sync"

	"github.com/go-fuel/fuel/internal/backend"
)

// atom is the unit in which the caches of host and device are brought in line.
const atom = 64

// stagingSize is the length of the memory that transfers go through: short, so
// that most suites need several pieces.
const stagingSize = 16 << 10

// staging is memory that host and device both have in a cache of their own.
// What one writes the other sees only after flush or invalidate.
type staging struct {
	f    *Fake
	mu   sync.Mutex // held for one transfer
	host []byte     // what the host sees
	dev  []byte     // what the device sees
	busy backend.Point
	turn int

	// The two operations: methods, but for tests of what happens without.
	flush, invalidate func(off, n int)
}

func newStaging(f *Fake) *staging {
	s := &staging{f: f, host: make([]byte, stagingSize), dev: make([]byte, stagingSize)}
	s.flush = func(off, n int) {
		s.checkAtoms("flush", off, n)
		copy(s.dev[off:off+n], s.host[off:off+n])
	}
	s.invalidate = func(off, n int) {
		s.checkAtoms("invalidate", off, n)
		copy(s.host[off:off+n], s.dev[off:off+n])
	}
	return s
}

func (s *staging) checkAtoms(what string, off, n int) {
	if off%atom != 0 || n%atom != 0 || n <= 0 {
		s.f.mu.Lock()
		defer s.f.mu.Unlock()
		s.f.violate("%s of %d bytes at %d: no whole atoms of %d", what, n, off, atom)
	}
}

// wholeAtoms widens a range to atoms.
func wholeAtoms(off, n int) (start, length int) {
	start = off / atom * atom
	return start, (off + n - start + atom - 1) / atom * atom
}

// take returns where the next piece of a transfer of up to n bytes goes. It
// begins inside an atom, and neither side sees there what the other wrote.
func (s *staging) take(n int) (at, length int) {
	s.turn++
	at = 1 + s.turn*29%(atom-1)
	length = min(n, stagingSize-at)
	start, size := wholeAtoms(at, length)
	scribble(s.host[start:start+size], 0x3A)
	scribble(s.dev[start:start+size], 0x5C)
	return at, length
}

func (d *fakeDevice) uploadStaged(to *fakeBuffer, off int, src []byte, late error) (p backend.Point, err error) {
	s := d.staging
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(src) > 0 {
		// A failure is for those who wait for that work.
		_ = d.await(context.Background(), s.busy)
		at, n := s.take(len(src))
		if err := d.fromHost(s.host[at:at+n], src[:n]); err != nil {
			return 0, err
		}
		s.flush(wholeAtoms(at, n))
		begin := off
		p = d.submit(func() error {
			if late != nil {
				scribble(to.bytes(begin, n), fresh)
				return late
			}
			copy(to.bytes(begin, n), s.dev[at:at+n])
			return nil
		}, to)
		s.busy = p
		src, off = src[n:], off+n
	}
	return p, nil
}

func (d *fakeDevice) downloadStaged(dst []byte, from *fakeBuffer, off int) error {
	s := d.staging
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(dst) > 0 {
		_ = d.await(context.Background(), s.busy) // as in uploadStaged
		at, n := s.take(len(dst))
		begin := off
		s.busy = d.submit(func() error {
			copy(s.dev[at:at+n], from.bytes(begin, n))
			return nil
		}, from)
		if err := d.await(context.Background(), s.busy); err != nil {
			return err
		}
		s.invalidate(wholeAtoms(at, n))
		copy(dst, s.host[at:at+n])
		dst, off = dst[n:], off+n
	}
	return nil
}

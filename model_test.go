package fuel_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
)

// A player is a goroutine with owners of its own, each with a plain slice that
// says what its bytes must be. Owners of different players share memory.
type player struct {
	t    *testing.T
	r    *rand.Rand
	own  []*modelled
	pool *pool
}

// modelled is one owner: handles on it, all owned by one goroutine, and the
// bytes that they must show.
type modelled struct {
	handles []window
	want    []byte
}

type window struct {
	s      *fuel.Storage
	off, n int
}

// pool passes clones between players, so that regions are shared by
// goroutines.
type pool struct {
	mu     sync.Mutex
	clones []*modelled
}

func (p *pool) swap(in *modelled, r *rand.Rand) *modelled {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clones = append(p.clones, in)
	if len(p.clones) < 8 {
		return nil
	}
	i := r.IntN(len(p.clones))
	out := p.clones[i]
	p.clones[i] = p.clones[len(p.clones)-1]
	p.clones = p.clones[:len(p.clones)-1]
	return out
}

func (p *player) check(err error) {
	if err != nil {
		p.t.Error(err)
	}
}

func (p *player) step() {
	t, r, ctx := p.t, p.r, context.Background()
	if len(p.own) == 0 {
		p.own = append(p.own, p.start())
	}
	m := p.own[r.IntN(len(p.own))]
	h := m.handles[r.IntN(len(m.handles))]
	want := m.want[h.off : h.off+h.n]
	off := r.IntN(h.n + 1)
	n := r.IntN(h.n - off + 1)
	v := byte(r.Uint32())
	switch r.IntN(16) {
	case 0, 1: // give a clone away, perhaps get another's
		c, err := h.s.Clone()
		p.check(err)
		if got := p.pool.swap(&modelled{[]window{{c, 0, h.n}}, bytes.Clone(want)}, r); got != nil {
			p.own = append(p.own, got)
		}
	case 2:
		view, err := h.s.View(off, n)
		p.check(err)
		m.handles = append(m.handles, window{view, h.off + off, n})
	case 3, 4:
		b := bytes.Repeat([]byte{v}, n)
		_, err := h.s.WriteAt(b, int64(off))
		p.check(err)
		copy(want[off:], b)
	case 5:
		p.check(h.s.FillRange(ctx, off, n, []byte{v}))
		copy(want[off:off+n], bytes.Repeat([]byte{v}, n))
	case 6:
		p.check(h.s.Mutate(func(b []byte) error {
			if !bytes.Equal(b, want) {
				t.Error("Mutate: wrong bytes")
			}
			for i := range b {
				b[i]++
				want[i]++
			}
			return nil
		}))
	case 7: // a parallel write of disjoint ranges
		var wg sync.WaitGroup
		for i := range 4 {
			from, to := i*h.n/4, (i+1)*h.n/4
			wg.Go(func() {
				_, err := h.s.WriteAt(bytes.Repeat([]byte{v + byte(i)}, to-from), int64(from))
				p.check(err)
			})
			copy(want[from:to], bytes.Repeat([]byte{v + byte(i)}, to-from))
		}
		wg.Wait()
	case 8: // from another owner
		o := p.own[r.IntN(len(p.own))]
		g := o.handles[r.IntN(len(o.handles))]
		k := r.IntN(min(g.n, h.n) + 1)
		to, from := r.IntN(h.n-k+1), r.IntN(g.n-k+1)
		p.check(h.s.CopyRange(ctx, to, g.s, from, k, nil))
		copy(want[to:to+k], o.want[g.off+from:g.off+from+k])
	case 9: // read while others write their clones, and while it is closed
		done := make(chan struct{})
		c, err := h.s.Clone()
		p.check(err)
		go func() {
			defer close(done)
			err := c.Use(func(b []byte) error {
				for range 3 {
					if !bytes.Equal(b, want) {
						t.Error("Use of a clone that is closed: wrong bytes")
					}
					runtime.Gosched()
				}
				return nil
			})
			if err != nil && !isClosed(err) {
				t.Error(err)
			}
		}()
		runtime.Gosched()
		p.check(c.Close())
		p.check(h.s.FillRange(ctx, off, n, []byte{v}))
		<-done
		copy(want[off:off+n], bytes.Repeat([]byte{v}, n))
	case 10:
		got, err := h.s.Take()
		if len(m.handles) > 1 {
			if err == nil {
				t.Error("Take beside other handles")
			}
			break
		}
		p.check(err)
		m.handles[0] = window{got, 0, h.n}
		m.want = bytes.Clone(want)
	case 11, 12, 13:
		for i, g := range m.handles {
			if g.s == h.s {
				m.handles = append(m.handles[:i], m.handles[i+1:]...)
				break
			}
		}
		p.check(h.s.Close())
		if len(m.handles) == 0 {
			for i, o := range p.own {
				if o == m {
					p.own = append(p.own[:i], p.own[i+1:]...)
					break
				}
			}
		}
	case 14:
		_, err := h.s.ReadFrom(bytes.NewReader(bytes.Repeat([]byte{v}, h.n)))
		p.check(err)
		copy(want, bytes.Repeat([]byte{v}, h.n))
	case 15:
		q, err := fuel.QueueOf(fuel.Device{})
		p.check(err)
		if n > 0 {
			view, err := h.s.View(off, n)
			p.check(err)
			_, err = q.Fill(view, []byte{v})
			p.check(err)
			p.check(view.Close())
			copy(want[off:off+n], bytes.Repeat([]byte{v}, n))
		}
	}
	p.verify(m)
}

func (p *player) verify(m *modelled) {
	for _, h := range m.handles {
		b := make([]byte, h.n)
		if n, err := h.s.ReadAt(b, 0); n != h.n || err != nil {
			p.t.Errorf("ReadAt: %d, %v", n, err)
		}
		if !bytes.Equal(b, m.want[h.off:h.off+h.n]) {
			p.t.Errorf("%d bytes at %d: another's write shows, or an own one is lost", h.n, h.off)
		}
	}
}

var modelSizes = []int{0, 1, 7, 64, 1000, 70 << 10}

var releases, wraps atomic.Int64

func (p *player) start() *modelled {
	n := modelSizes[p.r.IntN(len(modelSizes))]
	b := bytes.Repeat([]byte{byte(p.r.Uint32())}, n)
	var s *fuel.Storage
	if name := []string{"", "memfd", "sealed memfd"}[p.r.IntN(3)]; sharedSources[name] != nil {
		s = sharedSources[name](p.t, b)
	} else if p.r.IntN(2) == 0 {
		wraps.Add(1)
		mem := bytes.Clone(b)
		s = value(fuel.Wrap(fuel.U8, mem, func() {
			releases.Add(1)
			for i := range mem { // whoever reads on sees it
				mem[i] ^= 0xA5
			}
		}))(p.t)
	} else {
		s = value(fuel.FromBytes(fuel.Device{}, fuel.U8, b))(p.t)
	}
	return &modelled{[]window{{s, 0, n}}, b}
}

func isClosed(err error) bool { return bytes.Contains([]byte(err.Error()), []byte("closed")) }

// Players clone, view, write, read, take and close at random. Every owner must
// show its own writes, all of them and no others, and all memory must be gone
// at the end, wrapped memory exactly once.
func TestOwnersNeverSeeEachOther(t *testing.T) {
	for _, procs := range []int{2, 8} {
		t.Run(fmt.Sprintf("procs=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			before := value(fuel.MemStats(fuel.Device{}))(t)
			wraps.Store(0)
			releases.Store(0)
			length := 2 * time.Second
			if race.Enabled {
				length = 4 * time.Second
			}
			end := time.Now().Add(length)
			shared := &pool{}
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					p := &player{t: t, r: rand.New(rand.NewPCG(uint64(procs), uint64(i)+uint64(end.UnixNano()))), pool: shared}
					for !t.Failed() && time.Now().Before(end) {
						p.step()
					}
					for _, m := range p.own {
						p.verify(m)
						for _, h := range m.handles {
							p.check(h.s.Close())
						}
					}
				})
			}
			wg.Wait()
			p := &player{t: t}
			for _, m := range shared.clones {
				p.verify(m)
				for _, h := range m.handles {
					p.check(h.s.Close())
				}
			}
			// Wrapped memory goes in a goroutine where queued work used it.
			for range 200 {
				if releases.Load() == wraps.Load() {
					break
				}
				time.Sleep(5 * time.Millisecond)
			}
			if releases.Load() != wraps.Load() {
				t.Errorf("%d wraps, %d releases", wraps.Load(), releases.Load())
			}
			after := value(fuel.MemStats(fuel.Device{}))(t)
			if after.InUse != before.InUse || after.Regions != before.Regions {
				t.Errorf("in use before %+v, after %+v", before, after)
			}
		})
	}
}

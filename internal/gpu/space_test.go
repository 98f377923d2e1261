package gpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/go-fuel/fuel/internal/backend"
)

// checkSpace fails where s is not what slabs and the live spans make it.
func checkSpace(t testing.TB, s *space, slabs []*slab, live []*span) {
	t.Helper()
	count := map[*slab]int{}
	first := map[*slab]*span{}
	for _, f := range live {
		count[f.slab]++
		for f.prev != nil {
			f = f.prev
		}
		first[f.slab] = f
	}
	free := map[*span]bool{}
	sum := 0
	for _, l := range slabs {
		if l.live != count[l] {
			t.Fatalf("a slab counts %d live spans of %d", l.live, count[l])
		}
		f := first[l]
		if f == nil {
			f = s.whole(l)
		}
		at := 0
		for ; f != nil; f = f.next {
			switch {
			case f.slab != l || f.off != at || f.size <= 0:
				t.Fatalf("a span of %d bytes at %d, after one that ends at %d", f.size, f.off, at)
			case f.off%s.align != 0 || f.size%s.align != 0:
				t.Fatalf("a span of %d bytes at %d, with an alignment of %d", f.size, f.off, s.align)
			case f.next != nil && f.next.prev != f:
				t.Fatal("the neighbours differ about who is next")
			case f.next != nil && !f.live && !f.next.live:
				t.Fatal("two free spans side by side")
			}
			if !f.live {
				free[f] = true
				sum += f.size
			}
			at += f.size
		}
		if at != l.block.Size&^(s.align-1) {
			t.Fatalf("spans of %d bytes in a slab of %d", at, l.block.Size)
		}
	}
	if s.free != sum {
		t.Fatalf("%d bytes are free, and it counts %d", sum, s.free)
	}
	for row := range s.bins {
		for sub, f := range s.bins[row] {
			if (s.row[row]>>sub&1 == 1) != (f != nil) {
				t.Fatalf("the bit of bin %d of row %d is wrong", sub, row)
			}
			for before := (*span)(nil); f != nil; before, f = f, f.more {
				if r, b := bin(f.size); r != row || b != sub || f.left != before || !free[f] {
					t.Fatalf("a span of %d bytes in bin %d of row %d: free %v", f.size, sub, row, free[f])
				}
				delete(free, f)
			}
		}
		if (s.first>>row&1 == 1) != (s.row[row] != 0) {
			t.Fatalf("the bit of row %d is wrong", row)
		}
	}
	if len(free) > 0 {
		t.Fatalf("%d free spans are in no bin", len(free))
	}
}

// longest is the longest free span.
func (s *space) longest() (n int) {
	for row := range s.bins {
		for _, f := range s.bins[row] {
			for ; f != nil; f = f.more {
				n = max(n, f.size)
			}
		}
	}
	return n
}

// driveSpace does what data says, three bytes a step.
func driveSpace(t testing.TB, data []byte, every int) {
	if len(data) == 0 {
		return
	}
	s := &space{align: minAlign << (data[0] % 4)}
	var slabs []*slab
	var live []*span
	var id uint64
	for step := 1; len(data) >= 3; step++ {
		op, exp, low := data[0], int(data[1]), int(data[2])
		data = data[3:]
		n := ((1<<(exp%24) + low<<(exp%24)>>8) | 1) // to 32 MiB, of every magnitude
		n += -n & (s.align - 1)
		switch op % 8 {
		case 0: // a new slab, that need not be whole
			if id++; len(slabs) < 16 {
				l := &slab{block: Block{ID: id, Size: n + low%s.align}}
				slabs = append(slabs, l)
				s.add(l)
			}
		case 1: // an empty slab goes
			for i, l := range slabs {
				if l.live == 0 {
					s.remove(l)
					slabs = append(slabs[:i], slabs[i+1:]...)
					break
				}
			}
		case 2, 3, 4:
			if len(live) > 0 {
				i := (exp<<8 | low) % len(live)
				s.give(live[i])
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
			}
		default:
			most := s.longest()
			f := s.take(n)
			if (f == nil) != (n > most) {
				t.Fatalf("take(%d) with %d free in one: %v", n, most, f)
			}
			if f != nil {
				if f.size != n || !f.live || f.used.Load() != 0 {
					t.Fatalf("take(%d) returned %d bytes, live %v, used at %d", n, f.size, f.live, f.used.Load())
				}
				f.used.Store(uint64(step)) // of this owner, not the next
				live = append(live, f)
			}
		}
		if step%every == 0 {
			checkSpace(t, s, slabs, live)
		}
	}
	for _, f := range live {
		s.give(f)
	}
	checkSpace(t, s, slabs, nil) // in which every slab is one free span
	for _, l := range slabs {
		s.remove(l)
	}
	if checkSpace(t, s, nil, nil); s.free != 0 {
		t.Errorf("%d bytes are free of no slab", s.free)
	}
}

func TestSpaceNeverOverlapsNorForgetsAByte(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 3*1500)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		driveSpace(t, data, 10)
	}
}

func FuzzSpace(f *testing.F) {
	f.Add([]byte{0, 20, 1, 5, 6, 0, 5, 6, 1, 2, 0, 0, 2, 0, 0, 1, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) { driveSpace(t, data, 1) })
}

// Sizes at both ends of every bin, up to the largest int there is.
func TestTakeNeverMissesASpanThatFits(t *testing.T) {
	for row := 6; row < 63; row++ {
		for sub := range subBins {
			u := uint64(1)<<row + uint64(sub)<<(row-subBits)
			for _, d := range []uint64{0, minAlign} {
				if u+d > math.MaxInt-minAlign {
					continue
				}
				n := int(u+d) &^ (minAlign - 1)
				s := &space{align: minAlign}
				l := &slab{block: Block{Size: n}}
				s.add(l)
				if n < math.MaxInt-2*minAlign && s.take(n+minAlign) != nil {
					t.Fatalf("%d bytes of %d", n+minAlign, n)
				}
				f := s.take(n)
				if f == nil || f.off != 0 || f.size != n || s.free != 0 {
					t.Fatalf("take(%d) of a slab as long: %+v", n, f)
				}
				s.give(f)
				checkSpace(t, s, []*slab{l}, nil)
			}
		}
	}
}

func TestTakeNeverOverflows(t *testing.T) {
	s := &space{align: minAlign}
	s.add(&slab{block: Block{Size: 1 << 20}})
	for _, n := range []int{math.MaxInt &^ (minAlign - 1), math.MaxInt/2 + 1, 1<<20 + minAlign} {
		if f := s.take(n); f != nil {
			t.Errorf("take(%d): %d bytes", n, f.size)
		}
	}
}

// BenchmarkAlloc is a Buffer taken and given back, among a thousand others.
func BenchmarkAlloc(b *testing.B) {
	sizes := func(r *rand.Rand) int { return minAlign << r.IntN(11) }
	b.Run("space", func(b *testing.B) {
		s := &space{align: minAlign}
		s.add(&slab{block: Block{Size: mostSlab}})
		r := rand.New(rand.NewPCG(1, 2))
		live := make([]*span, 1000)
		for i := range live {
			live[i] = s.take(sizes(r))
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			f := &live[i%len(live)]
			s.give(*f)
			*f = s.take(sizes(r))
		}
	})
	b.Run("memory", func(b *testing.B) {
		m := newMemory(&clockPort{}, Limits{Align: 256, Atom: 64, FillUnit: 4, FillAlign: 4}, func(p backend.Point) bool { return true })
		r := rand.New(rand.NewPCG(1, 2))
		live := make([]uint64, 1000)
		size := make([]int, len(live))
		for i := range live {
			size[i] = sizes(r)
			_, live[i], _ = m.alloc(size[i])
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			k := i % len(live)
			m.free(backend.Buffer{Handle: live[k], Size: size[k]}, 0)
			size[k] = sizes(r)
			_, live[k], _ = m.alloc(size[k])
		}
		b.StopTimer()
		m.close()
	})
}

package fuel_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-fuel/fuel"
	kernels "github.com/go-fuel/fuel/cpu"
)

// In these benchmarks impl=fuel is this library and impl=go what Go has for the
// same work. bench/run adds impl=c and impl=fuel_memory, from bench/peers, under
// the same names, and BENCHMARKS.md says what should come out.

// sizes in bytes go from one line of the cache to memory that no cache holds.
var sizes = []int{64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20}

// bench measures the operations that ours and theirs make for each size, one
// after the other. Each has run once before: it is the steady state that
// counts.
func bench(b *testing.B, ours, theirs func(b *testing.B, n int) (op func())) {
	for _, n := range sizes {
		run := func(impl string, start func(b *testing.B, n int) func()) {
			b.Run(fmt.Sprintf("impl=%s/size=%d", impl, n), func(b *testing.B) {
				op := start(b, n)
				op()
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					op()
				}
			})
		}
		run("fuel", ours)
		run("go", theirs)
	}
}

// written returns a Storage of n bytes that have been written to, so that no
// page of it is taken in the loop.
func written(b *testing.B, n int) *fuel.Storage {
	s := must(b)(fuel.AllocUninit(cpu, fuel.U8, n, nil))
	fill(b, s, 1)
	return s
}

// ones returns n bytes of 1.
func ones(n int) []byte {
	m := make([]byte, n)
	kernels.Fill(m, []byte{1})
	return m
}

// From 8 MiB on a Storage is cleared and copied by all cores. For the kernels
// alone, on one, see package cpu.
func BenchmarkZero(b *testing.B) {
	bench(b, func(b *testing.B, n int) func() {
		s := written(b, n)
		return func() {
			if err := s.Zero(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	}, func(_ *testing.B, n int) func() {
		m := ones(n)
		return func() { clear(m) }
	})
}

func BenchmarkCopy(b *testing.B) {
	bench(b, func(b *testing.B, n int) func() {
		dst, src := written(b, n), written(b, n)
		return func() {
			if err := dst.CopyFrom(context.Background(), src, nil); err != nil {
				b.Fatal(err)
			}
		}
	}, func(_ *testing.B, n int) func() {
		dst, src := ones(n), ones(n)
		return func() { copy(dst, src) }
	})
}

// benchCores measures ours, and what there is to gain: impl=probe is the same
// kernels on the same memory, with a goroutine for each core that does its own
// part and nothing else. part does a piece, off
// bytes into a range of whole ones.
func benchCores(b *testing.B, ours func(dst, src *fuel.Storage) error, part func(dst, src []byte, off, whole int)) {
	for _, n := range []int{8 << 20, 16 << 20, 64 << 20, 256 << 20} {
		dst, src := written(b, n), written(b, n)
		d, err := dst.MutableBytes()
		if err != nil {
			b.Fatal(err)
		}
		s, err := src.MutableBytes()
		if err != nil {
			b.Fatal(err)
		}
		probe := func(cores int) {
			var wg sync.WaitGroup
			for i := range cores {
				wg.Go(func() {
					for off, end := n/cores*i, n/cores*(i+1); off < end; off += kernels.Piece {
						next := min(off+kernels.Piece, end)
						part(d[off:next], s[off:next], off, n)
					}
				})
			}
			wg.Wait()
		}
		for _, impl := range []string{"fuel", "probe"} {
			for _, cores := range []int{1, 2} {
				b.Run(fmt.Sprintf("impl=%s/size=%d/cores=%d", impl, n, cores), func(b *testing.B) {
					if runtime.NumCPU() < cores {
						b.Skip("one core")
					}
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(cores))
					b.SetBytes(int64(n))
					for b.Loop() {
						if impl == "probe" {
							probe(cores)
						} else if err := ours(dst, src); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
		dst.Close()
		src.Close()
	}
}

func BenchmarkZeroCores(b *testing.B) {
	benchCores(b, func(dst, _ *fuel.Storage) error { return dst.Zero(context.Background()) },
		func(dst, _ []byte, off, whole int) { kernels.ZeroPart(dst, off, whole) })
}

func BenchmarkCopyCores(b *testing.B) {
	benchCores(b, func(dst, src *fuel.Storage) error { return dst.CopyFrom(context.Background(), src, nil) },
		func(dst, src []byte, _, whole int) { kernels.CopyPart(dst, src, whole) })
}

// touch writes one byte of each 4096, as the first use of memory does.
func touch(m []byte) {
	for i := 0; i < len(m); i += 4096 {
		m[i] = 1
	}
}

func BenchmarkAllocTouchClose(b *testing.B) {
	bench(b, func(b *testing.B, n int) func() {
		return func() {
			s, err := fuel.Alloc(cpu, fuel.U8, n, nil)
			if err != nil {
				b.Fatal(err)
			}
			m, err := s.MutableBytes()
			if err != nil {
				b.Fatal(err)
			}
			touch(m)
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}, func(_ *testing.B, n int) func() {
		return func() { touch(make([]byte, n)) }
	})
}

func BenchmarkFromSliceClose(b *testing.B) {
	values := func(n int) []float32 { return slices.Repeat([]float32{1}, n/4) }
	bench(b, func(b *testing.B, n int) func() {
		v := values(n)
		return func() {
			s, err := fuel.FromSlice(cpu, v)
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}, func(_ *testing.B, n int) func() {
		v := values(n)
		return func() { copied = slices.Clone(v) }
	})
}

// What benchmarks of Go's own make, so that it is made on the heap.
var (
	copied []float32
	handle *fuel.Storage
)

// The least that Clone and Close can cost, impl=go: the handle, and two atomic
// operations on the counts.
func BenchmarkCloneClose(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(memories)) {
		b.Run("impl=fuel/memory="+name, func(b *testing.B) {
			s := memories[name](b, make([]byte, 4096))
			b.ReportAllocs()
			for b.Loop() {
				c, err := s.Clone()
				if err != nil {
					b.Fatal(err)
				}
				if err := c.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("impl=go/memory="+name, func(b *testing.B) {
			var owners atomic.Int64
			b.ReportAllocs()
			for b.Loop() {
				handle = new(fuel.Storage)
				owners.Add(1)
				owners.Add(-1)
			}
		})
	}
}

type lengths struct {
	fuel.Cases[int] // the GPU kinds
	sum             int
}

func (l *lengths) VisitCPU(m fuel.CPUMemory) (int, error) { l.sum += len(m.Bytes); return l.sum, nil }

// impl=go is a call of the visitor's method.
func BenchmarkVisit(b *testing.B) {
	s := must(b)(fuel.Alloc(cpu, fuel.U8, 4096, nil))
	l := &lengths{}
	b.Run("impl=fuel", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := fuel.Visit(s, l); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("impl=go", func(b *testing.B) {
		m := fuel.CPUMemory{Bytes: make([]byte, 4096)}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.VisitCPU(m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkMap(b *testing.B) {
	for _, n := range []int{1 << 20, 1 << 30} {
		b.Run(fmt.Sprintf("size=%d", n), func(b *testing.B) {
			f := file(b, nil)
			if err := os.Truncate(f.Name(), int64(n)); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s, err := fuel.Map(f, fuel.U8, 0, n)
				if err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}

// Visiting must not allocate, whatever the visitor holds.
func TestVisitDoesNotAllocate(t *testing.T) {
	s := must(t)(fuel.Alloc(cpu, fuel.U8, 4096, nil))
	l := &lengths{}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := fuel.Visit(s, l); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("Visit allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		c, err := s.Clone()
		if err != nil {
			t.Error(err)
		}
		c.Close()
	}); n != 1 {
		t.Errorf("Clone allocates %v times", n)
	}
}

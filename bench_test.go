package fuel_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-fuel/fuel"
	kernels "github.com/go-fuel/fuel/cpu"
)

// sizes go from the first cache to memory.
var sizes = []int{1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}

func benchSizes(b *testing.B, impl string, f func(b *testing.B, n int)) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("impl=%s/size=%d", impl, n), func(b *testing.B) {
			b.SetBytes(int64(n))
			f(b, n)
		})
	}
}

func storage(b *testing.B, n int) *fuel.Storage {
	s := must(b)(fuel.AllocUninit(cpu, fuel.U8, n, nil))
	if err := s.Fill(context.Background(), []byte{1}); err != nil { // no page faults in the loop
		b.Fatal(err)
	}
	return s
}

func BenchmarkZero(b *testing.B) {
	benchSizes(b, "builtin", func(b *testing.B, n int) {
		m := make([]byte, n)
		for b.Loop() {
			clear(m)
		}
	})
	benchSizes(b, "cpu", func(b *testing.B, n int) {
		m := make([]byte, n)
		for b.Loop() {
			kernels.Zero(m)
		}
	})
	benchSizes(b, "Storage", func(b *testing.B, n int) {
		s := storage(b, n)
		for b.Loop() {
			if err := s.Zero(context.Background()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCopy(b *testing.B) {
	benchSizes(b, "builtin", func(b *testing.B, n int) {
		dst, src := make([]byte, n), make([]byte, n)
		clear(src)
		for b.Loop() {
			copy(dst, src)
		}
	})
	benchSizes(b, "cpu", func(b *testing.B, n int) {
		dst, src := make([]byte, n), make([]byte, n)
		clear(src)
		for b.Loop() {
			kernels.Copy(dst, src)
		}
	})
	benchSizes(b, "Storage", func(b *testing.B, n int) {
		dst, src := storage(b, n), storage(b, n)
		for b.Loop() {
			if err := dst.CopyFrom(context.Background(), src, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// touch writes one byte a page, as the first use of memory does.
func touch(m []byte) {
	for i := 0; i < len(m); i += 4096 {
		m[i] = 1
	}
}

func BenchmarkAllocTouchClose(b *testing.B) {
	benchSizes(b, "make", func(b *testing.B, n int) {
		for b.Loop() {
			touch(make([]byte, n))
		}
	})
	benchSizes(b, "Alloc", func(b *testing.B, n int) {
		for b.Loop() {
			s, err := fuel.Alloc(cpu, fuel.U8, n, nil)
			if err != nil {
				b.Fatal(err)
			}
			m, err := s.MutableBytes()
			if err != nil {
				b.Fatal(err)
			}
			touch(m)
			s.Close()
		}
	})
}

func BenchmarkFromSliceClose(b *testing.B) {
	benchSizes(b, "FromSlice", func(b *testing.B, n int) {
		v := make([]float32, n/4)
		for b.Loop() {
			s, err := fuel.FromSlice(cpu, v)
			if err != nil {
				b.Fatal(err)
			}
			s.Close()
		}
	})
}

// Clone + Close against making the same struct: see also the package's own
// benchmark of new.
func BenchmarkCloneClose(b *testing.B) {
	for name, open := range memories {
		b.Run("memory="+name, func(b *testing.B) {
			s := open(b, make([]byte, 4096))
			b.ReportAllocs()
			for b.Loop() {
				c, err := s.Clone()
				if err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
	}
}

type lengths struct {
	fuel.Cases[int] // the GPU kinds
	sum             int
}

func (l *lengths) VisitCPU(m fuel.CPUMemory) (int, error) { l.sum += len(m.Bytes); return l.sum, nil }

func BenchmarkVisit(b *testing.B) {
	s := must(b)(fuel.Alloc(cpu, fuel.U8, 4096, nil))
	l := &lengths{}
	b.Run("impl=Visit", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := fuel.Visit(s, l); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("impl=call", func(b *testing.B) {
		m := fuel.CPUMemory{Bytes: make([]byte, 4096)}
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

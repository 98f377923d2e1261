package cpu

import (
	"fmt"
	"testing"
)

// A block, taken zeroed, a byte of each page written, and put back.
func BenchmarkPool(b *testing.B) {
	touch := func(m []byte) {
		for i := 0; i < len(m); i += 4096 {
			m[i] = 1
		}
	}
	for _, n := range []int{64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("impl=go/size=%d", n), func(b *testing.B) {
			for b.Loop() {
				touch(make([]byte, n))
			}
		})
		b.Run(fmt.Sprintf("impl=fuel/size=%d", n), func(b *testing.B) {
			p := newPool(b, 1<<30)
			for b.Loop() {
				m, err := p.Get(n, true)
				if err != nil {
					b.Fatal(err)
				}
				touch(m.Bytes)
				p.Put(m)
			}
		})
	}
}

// Blocks of one size from every core at once: what they have in common costs.
func BenchmarkPoolParallel(b *testing.B) {
	for _, n := range []int{64, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("size=%d", n), func(b *testing.B) {
			p := newPool(b, 1<<30)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					m, err := p.Get(n, false)
					if err != nil {
						b.Error(err)
						return
					}
					m.Bytes[0]++
					p.Put(m)
				}
			})
		})
	}
}

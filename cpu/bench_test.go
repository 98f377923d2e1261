package cpu

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel/internal/impl"
)

// benchSizes go from a few words to memory that no cache holds.
var benchSizes = []int{16, 64, 256, 1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20, 12 << 20, 16 << 20, 18 << 20, 20 << 20, 24 << 20, 64 << 20, 256 << 20}

// blocks are memory of the largest size, once for all benchmarks, written to
// and at a multiple of Align.
func blocks(b *testing.B, size int) (dst, src []byte) {
	b.Helper()
	largest := benchSizes[len(benchSizes)-1]
	if benchDst == nil {
		for _, p := range []*[]byte{&benchDst, &benchSrc} {
			m := AlignedHeap(largest + Align)
			if HaveReserve {
				var err error
				if m, err = Reserve(largest + Align); err != nil {
					b.Skip(err)
				}
			}
			Fill(m, []byte{1})
			*p = m
		}
	}
	return benchDst[:size+Align], benchSrc[:size+Align]
}

var benchDst, benchSrc []byte

// bench measures ours as it is, impl=fuel, what Go has, impl=go, and each tier,
// all through the same bytes. See BENCHMARKS.md.
func bench(b *testing.B, sizes []int, theirs, ours func(dst, src []byte)) {
	for _, size := range sizes {
		dst, src := blocks(b, size)
		for _, off := range []int{0, 1} {
			if off > 0 && size < 4<<10 {
				continue
			}
			dst, src := dst[off:][:size], src[:size]
			run := func(name string, f func(dst, src []byte)) {
				b.Run(fmt.Sprintf("impl=%s/size=%d/off=%d", name, size, off), func(b *testing.B) {
					b.SetBytes(int64(size))
					for b.Loop() {
						f(dst, src)
					}
				})
			}
			run("fuel", ours)
			run("go", theirs)
			if off > 0 {
				continue
			}
			for _, name := range append([]string{impl.Generic}, impl.List("cpu")...) {
				restore, ok := impl.Select("cpu", name)
				if ok {
					run(name, ours)
				}
				restore()
			}
		}
	}
}

func BenchmarkZero(b *testing.B) {
	bench(b, benchSizes, func(dst, _ []byte) { clear(dst) }, func(dst, _ []byte) { Zero(dst) })
}

func BenchmarkCopy(b *testing.B) {
	bench(b, benchSizes, func(dst, src []byte) { copy(dst, src) }, Copy)
}

func BenchmarkFill(b *testing.B) {
	pattern := []byte{1, 2, 3, 4}
	bench(b, benchSizes, func(dst, _ []byte) {
		for n := copy(dst, pattern); n < len(dst); n *= 2 {
			copy(dst[n:], dst[:n])
		}
	}, func(dst, _ []byte) { Fill(dst, pattern) })
}

// What a clear leaves in the cache is worth something to who reads it next.
func BenchmarkZeroThenRead(b *testing.B) {
	bench(b, []int{64 << 10, 1 << 20, 8 << 20, 16 << 20, 18 << 20, 20 << 20, 24 << 20, 28 << 20, 64 << 20},
		func(dst, _ []byte) { clear(dst); sink += read(dst) },
		func(dst, _ []byte) { Zero(dst); sink += read(dst) })
}

// BenchmarkBeside does the same work in turn, by Go and as it is, and says how
// many times as long Go takes: the median of the ratios of neighbours, which
// whatever else the machine does meets alike. Each time is that of a second
// time, so that both find what they left in the caches themselves.
func BenchmarkBeside(b *testing.B) {
	for _, work := range []struct {
		name         string
		theirs, ours func(dst, src []byte)
	}{
		{"Zero", func(dst, _ []byte) { clear(dst) }, func(dst, _ []byte) { Zero(dst) }},
		{"Copy", func(dst, src []byte) { copy(dst, src) }, Copy},
		{"ZeroThenRead", func(dst, _ []byte) { clear(dst); sink += read(dst) }, func(dst, _ []byte) { Zero(dst); sink += read(dst) }},
	} {
		for _, size := range benchSizes {
			if size < 64<<10 {
				continue
			}
			many := max(1, 2<<20/size) // so that the clock does not count
			dst, src := blocks(b, size)
			for _, off := range []int{0, 1} {
				dst, src := dst[off:][:size], src[:size]
				second := func(f func(dst, src []byte)) (took time.Duration) {
					for range 2 {
						start := time.Now()
						for range many {
							f(dst, src)
						}
						took = time.Since(start)
					}
					return took
				}
				b.Run(fmt.Sprintf("work=%s/size=%d/off=%d", work.name, size, off), func(b *testing.B) {
					var ratios []float64
					for b.Loop() {
						theirs, ours := second(work.theirs), second(work.ours)
						ratios = append(ratios, float64(theirs)/float64(ours))
					}
					slices.Sort(ratios)
					b.ReportMetric(ratios[len(ratios)/2], "go/fuel")
				})
			}
		}
	}
}

// BenchmarkReadBandwidth is the ceiling that one core meets in reading.
func BenchmarkReadBandwidth(b *testing.B) {
	bench(b, []int{64 << 10, 1 << 20, 16 << 20, 64 << 20},
		func(_, src []byte) { sink += read(src) }, func(_, src []byte) { sink += read(src) })
}

var sink uint64

// read adds up one word of each line, which is as fast as lines come.
func read(b []byte) (sum uint64) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	for n := len(b) &^ 255; n > 0; n -= 256 {
		sum += *(*uint64)(p) + *(*uint64)(unsafe.Add(p, 64)) + *(*uint64)(unsafe.Add(p, 128)) + *(*uint64)(unsafe.Add(p, 192))
		if n > 256 {
			p = unsafe.Add(p, 256)
		}
	}
	return sum
}

// BenchmarkConvert has a copy beside each conversion that reads and writes as
// many bytes: size is what both read and write together.
func BenchmarkConvert(b *testing.B) {
	for c := range conversionEnd {
		from, to := c.Block()
		benchConversion(b, c.String(), from, to, c.Convert)
	}
	benchConversion(b, "Swap2", 2, 2, func(dst, src []byte) { Swap(dst, src, 2) })
	benchConversion(b, "Swap8", 8, 8, func(dst, src []byte) { Swap(dst, src, 8) })
	benchConversion(b, "Transpose", 4, 4, func(dst, src []byte) {
		n := len(dst) / 1024
		CopyStrided(dst, src, 0, 4, []int{256, n}, []int{4, 1024})
	})
}

// BenchmarkTranspose has sides that are powers of two, for which the cache has
// the fewest places, and others.
func BenchmarkTranspose(b *testing.B) {
	for _, elem := range []int{1, 2, 4, 8, 16} {
		for _, side := range []int{8, 64, 520, 1024, 2000, 4095, 4096} {
			size := side * side * elem
			dst, src := blocks(b, size)
			b.Run(fmt.Sprintf("impl=fuel/elem=%d/side=%d", elem, side), func(b *testing.B) {
				b.SetBytes(int64(size))
				for b.Loop() {
					CopyStrided(dst[:size], src[:size], 0, elem, []int{side, side}, []int{elem, side * elem})
				}
			})
		}
	}
}

func benchConversion(b *testing.B, name string, from, to int, f func(dst, src []byte)) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20, 16 << 20, 32 << 20, 64 << 20, 256 << 20} {
		n := size / (from + to)
		if name == "Transpose" {
			n = n / 256 * 256
		}
		dst, src := blocks(b, max(n*from, n*to))
		run := func(impl string, dst, src []byte, f func(dst, src []byte)) {
			b.Run(fmt.Sprintf("impl=%s/conv=%s/size=%d", impl, name, size), func(b *testing.B) {
				b.SetBytes(int64(len(dst) + len(src)))
				for b.Loop() {
					f(dst, src)
				}
			})
		}
		run("copy", dst[:size/2], src[:size/2], Copy)
		run("fuel", dst[:n*to], src[:n*from], f)
		for _, tier := range append([]string{impl.Generic}, impl.List("cpu")...) {
			restore, ok := impl.Select("cpu", tier)
			if ok {
				run(tier, dst[:n*to], src[:n*from], f)
			}
			restore()
		}
	}
}

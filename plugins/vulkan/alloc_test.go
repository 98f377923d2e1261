package vulkan

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	host "github.com/go-fuel/fuel/cpu"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// Drivers have as few as 4096 allocations (Vulkan-Docs#1295).
func TestTinyStoragesNeverTakeADriverAllocationEach(t *testing.T) {
	for way, c := range ways {
		t.Run(way, func(t *testing.T) {
			d := testDriver(c)
			var made atomic.Int64
			d.port.inject = func(call string, r result) result {
				if call == "vkAllocateMemory" {
					made.Add(1)
				}
				return r
			}
			dev := use(t, d)
			const n = 20_000
			list := make([]*fuel.Storage, n)
			seen := map[[2]uint64]int{}
			for i := range list {
				size := 4 + i%253
				list[i] = value(fuel.AllocUninit(dev, fuel.U8, size, nil))(t)
				m := memoryOf(t, list[i])
				if at := [2]uint64{m.Buffer, m.Offset}; m.Offset%64 != 0 {
					t.Fatalf("storage %d is at %d", i, m.Offset)
				} else if k, twice := seen[at]; twice {
					t.Fatalf("storages %d and %d are both at %d", k, i, m.Offset)
				} else {
					seen[at] = i
				}
			}
			if made.Load() > 16 {
				t.Errorf("%d driver allocations for %d storages", made.Load(), n)
			}
			t.Logf("%d driver allocations", made.Load())
			for i, s := range list {
				if i%97 == 0 {
					value(s.WriteAt(binary.LittleEndian.AppendUint32(nil, uint32(i)), 0))(t)
				}
			}
			for i, s := range list {
				if i%97 == 0 {
					got := contents(t, s)
					if !bytes.Equal(got[:4], binary.LittleEndian.AppendUint32(nil, uint32(i))) {
						t.Fatalf("storage %d holds %x", i, got[:4])
					}
				}
				ok(t, s.Close())
			}
		})
	}
}

// BenchmarkAlloc compares an allocation with what a program does that has no
// allocator of its own: a buffer, memory for it, and binding the two. Each op is
// 10,000 that live at once and go again. impl=fuel is whole Storages, impl=device
// only what a driver of fuel does for them.
func BenchmarkAlloc(b *testing.B) {
	const n = 10_000
	for _, size := range []int{4 << 10, 160 << 10} {
		name := func(impl string) string { return fmt.Sprintf("impl=%s/size=%dKiB", impl, size>>10) }
		b.Run(name("fuel"), func(b *testing.B) {
			dev := use(b, testDriver(gpu.Config{}))
			list := make([]*fuel.Storage, n)
			var err error
			for b.Loop() {
				for i := range list {
					if list[i], err = fuel.AllocUninit(dev, fuel.U8, size, nil); err != nil {
						b.Fatal(err)
					}
				}
				for _, s := range list {
					if err := s.Close(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run(name("device"), func(b *testing.B) {
			p := openRaw(b, portOptions{})
			d := gpu.New(p, p.lim, gpu.Config{})
			defer d.Close()
			list := make([]backend.Buffer, n)
			var err error
			for b.Loop() {
				for i := range list {
					if list[i], err = d.Alloc(size, false); err != nil {
						b.Fatal(err)
					}
				}
				for _, x := range list {
					d.Free(x, 0)
				}
			}
		})
		b.Run(name("driver"), func(b *testing.B) {
			p := openRaw(b, portOptions{})
			defer p.Close()
			list := make([]gpu.Block, n)
			var err error
			for b.Loop() {
				for i := range list {
					if list[i], err = p.Allocate(size, gpu.Storage); err != nil {
						b.Fatal(err)
					}
				}
				for _, x := range list {
					p.Release(x)
				}
			}
		})
	}
}

// BenchmarkTransfer compares uploads and downloads with copies on the host, of
// the same bytes: cpu.Copy as fuel's own memory has it, and Go's copy.
func BenchmarkTransfer(b *testing.B) {
	const most = 64 << 20
	src, dst := make([]byte, most), make([]byte, most)
	host.Fill(src, []byte{1})
	host.Fill(dst, []byte{2})
	sizes := func(b *testing.B, f func(b *testing.B, n int)) {
		for _, n := range []int{1 << 20, 16 << 20, most} {
			b.Run(fmt.Sprintf("size=%dMiB", n>>20), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f(b, n)
				}
			})
		}
	}
	b.Run("impl=copy", func(b *testing.B) { sizes(b, func(_ *testing.B, n int) { copy(dst[:n], src[:n]) }) })
	b.Run("impl=cpu.Copy", func(b *testing.B) { sizes(b, func(_ *testing.B, n int) { host.Copy(dst[:n], src[:n]) }) })
	for _, path := range slices.Sorted(maps.Keys(ways)) {
		b.Run("impl=fuel/path="+path, func(b *testing.B) {
			s := closed(b, value(fuel.FromBytes(use(b, testDriver(ways[path])), fuel.U8, src))(b))
			b.Run("way=upload", func(b *testing.B) {
				sizes(b, func(b *testing.B, n int) { value(s.WriteAt(src[:n], 0))(b) })
			})
			name := filepath.Join(b.TempDir(), "file")
			ok(b, os.WriteFile(name, src, 0o600))
			file := value(os.Open(name))(b)
			b.Cleanup(func() { file.Close() })
			sources := map[string]*fuel.Storage{
				"file":   closed(b, value(fuel.Map(file, fuel.U8, 0, most))(b)),
				"pinned": closed(b, value(fuel.Alloc(fuel.Device{}, fuel.U8, most, &fuel.Options{Pinned: s.Device()}))(b)),
			}
			for _, from := range slices.Sorted(maps.Keys(sources)) {
				b.Run("way="+from, func(b *testing.B) {
					sizes(b, func(b *testing.B, n int) { ok(b, s.CopyRange(b.Context(), 0, sources[from], 0, n, nil)) })
				})
			}
			b.Run("way=download", func(b *testing.B) {
				sizes(b, func(b *testing.B, n int) { value(s.ReadAt(dst[:n], 0))(b) })
			})
		})
	}
}

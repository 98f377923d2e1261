package safetensors

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
)

// sparse makes a file of size bytes with n tensors of equal length. Where the
// file system knows holes it takes no room on the disk.
func sparse(b *testing.B, size int64, n int) string {
	b.Helper()
	each := int(size) / n / 64 * 64
	entries := make([]string, n)
	for i := range entries {
		entries[i] = entryOf(fmt.Sprintf("model.layers.%d.weight", i), "F32", fmt.Sprint(each/4), each*i, each*(i+1))
	}
	header := padded(headerOf(entries...))
	path := filepath.Join(b.TempDir(), "f.safetensors")
	if err := os.WriteFile(path, fileOf(header, nil), 0o600); err != nil {
		b.Fatal(err)
	}
	if err := os.Truncate(path, int64(8+len(header)+each*n)); err != nil {
		b.Fatal(err)
	}
	return path
}

func openAndClose(b *testing.B, path string) {
	f, err := Open(path, nil)
	if err != nil {
		b.Fatal(err)
	}
	tensors, err := f.Tensors()
	if err != nil {
		b.Fatal(err)
	}
	for _, x := range tensors {
		if err := x.Data.Close(); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
}

// The time of opening a file and all its tensors depends on their number and
// not on their size.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{1000, 16384} {
		for _, size := range []int64{1 << 20, 1 << 30} {
			b.Run(fmt.Sprintf("tensors=%d/size=%dMiB", n, size>>20), func(b *testing.B) {
				if race.Enabled || runtime.GOOS == "wasip1" || runtime.GOOS == "js" {
					b.Skip("the race detector's shadow, or reading instead of mapping, takes as much memory as the file")
				}
				path := sparse(b, size, n)
				for b.Loop() {
					openAndClose(b, path)
				}
			})
		}
	}
}

func BenchmarkOpenMany(b *testing.B) {
	const n = 100_000
	b.Run(fmt.Sprintf("tensors=%d", n), func(b *testing.B) {
		path := sparse(b, 64*n, n)
		b.ReportAllocs()
		for b.Loop() {
			openAndClose(b, path)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("tensors=%d", n), func(b *testing.B) {
			file := zeros(bigHeader(n), 4*n)
			b.SetBytes(int64(len(file) - 4*n))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := parse(file); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTensor(b *testing.B) {
	f, err := FromBytes(zeros(headerOf(entryOf("own", "F32", "16", 0, 64)), 64), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	mapped, err := Open(sparse(b, 1<<20, 1), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer mapped.Close()
	for _, c := range []struct {
		placement, name string
		f               *File
	}{{"zero-copy", "model.layers.0.weight", mapped}, {"own", "own", f}} {
		b.Run("placement="+c.placement, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s, err := c.f.Tensor(c.name)
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Realigning against copy to memory of the same kind.
func BenchmarkRealign(b *testing.B) {
	for _, size := range []int{64 << 10, 16 << 20} {
		header := headerOf(entryOf("odd", "U8", "1", 0, 1), entryOf("w", "F32", fmt.Sprint(size/4), 1, 1+size))
		file := zeros(padded(header), size+1)
		b.Run(fmt.Sprintf("impl=safetensors/size=%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				f, err := Wrap(file, nil, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := f.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("impl=copy/size=%dKiB", size>>10), func(b *testing.B) {
			b.SetBytes(int64(size))
			for b.Loop() {
				s, err := fuel.FromBytes(fuel.Device{}, fuel.U8, file[len(file)-size:])
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	const size = 16 << 20
	f, err := FromBytes(zeros(headerOf(entryOf("w", "F32", fmt.Sprint(size/4), 0, size)), size), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	tensors, err := f.Tensors()
	if err != nil {
		b.Fatal(err)
	}
	defer tensors[0].Data.Close()
	b.Run("impl=safetensors/size=16MiB", func(b *testing.B) {
		b.SetBytes(size)
		var out bytes.Buffer
		for b.Loop() {
			out.Reset()
			if err := Write(&out, tensors, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("impl=discard/size=16MiB", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if err := Write(io.Discard, tensors, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

package fuel_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/require"
)

// Report 13: a truncated model crashes after it is mapped.
func TestMapOfAShortFileIsRefused(t *testing.T) {
	f := file(t, count(100))
	for _, c := range []struct {
		off int64
		n   int
	}{{0, 26}, {4, 25}, {100, 1}, {101, 0}, {1 << 40, 1}, {1<<63 - 1, 1}} {
		_, err := fuel.Map(f, fuel.F32, c.off, c.n)
		wantErr(t, "Map", err, fuel.ErrTruncated)
		var short *fuel.TruncatedError
		if !errors.As(err, &short) || short.Have != 100 || short.Want <= 100 {
			t.Errorf("%d elements at %d: %+v", c.n, c.off, short)
		}
	}
	_, err := fuel.Map(f, fuel.F32, -1, 1)
	wantErr(t, "Map before the begin", err, fuel.ErrRange)
	_, err = fuel.Map(f, fuel.F32, 0, -1)
	wantErr(t, "Map of a negative count", err, fuel.ErrOverflow)
	f.Close()
	_, err = fuel.Map(f, fuel.F32, 0, 1)
	if runtime.GOOS == "windows" && err != nil {
		return // Stat of a closed file says there only that the handle is wrong
	}
	wantErr(t, "Map of a closed file", err, os.ErrClosed)
}

// The crate empties a file when it is called with a bad argument.
func TestABadArgumentNeverChangesTheFile(t *testing.T) {
	want := count(100)
	f := file(t, want)
	for _, c := range []struct {
		d   fuel.DType
		off int64
		n   int
	}{{fuel.F32, 0, 0}, {fuel.F32, 0, 26}, {fuel.F32, -1, 1}, {0, 0, 1}, {fuel.U8, 0, -1}, {fuel.U8, 99, 1}} {
		if s, err := fuel.Map(f, c.d, c.off, c.n); err == nil {
			s.Close()
		}
	}
	got, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the file changed: %d bytes, %v", len(got), err)
	}
}

// Report 15: a write to a read-only mapping is a crash.
func TestAWriteToAMappedFileGoesToAPrivateCopy(t *testing.T) {
	want := count(10_000)
	f := file(t, want)
	for what, write := range map[string]func(s *fuel.Storage) error{
		"WriteAt":      func(s *fuel.Storage) error { _, err := s.WriteAt([]byte{0xEE}, 7); return err },
		"MutableBytes": func(s *fuel.Storage) error { b, err := s.MutableBytes(); b[7] = 0xEE; return err },
		"Mutate":       func(s *fuel.Storage) error { return s.Mutate(func(b []byte) error { b[7] = 0xEE; return nil }) },
		"FillRange":    func(s *fuel.Storage) error { return s.FillRange(t.Context(), 7, 1, []byte{0xEE}) },
		"VisitMutable": func(s *fuel.Storage) error {
			_, err := fuel.VisitMutable(s, &fuel.Cases[int]{CPU: func(m fuel.CPUMemory) (int, error) { m.Bytes[7] = 0xEE; return 0, nil }})
			return err
		},
	} {
		s := must(t)(fuel.Map(f, fuel.U8, 0, len(want)))
		if r := s.Region(); runtime.GOARCH != "wasm" && (r.Memory != fuel.MemoryMapped || !r.ReadOnly) {
			t.Fatalf("%+v", r)
		}
		if err := write(s); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		changed := bytes.Clone(want)
		changed[7] = 0xEE
		wantBytes(t, what, s, changed)
		if r := s.Region(); r.Memory == fuel.MemoryMapped || r.ReadOnly {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file changed: %v", err)
	}
}

// The private copy that a write makes frees the mapping, and with it what the
// write is of.
func TestAWriteOfItsOwnBytesNeverReadsFreedMemory(t *testing.T) {
	ctx := t.Context()
	q, err := fuel.QueueOf(cpu)
	if err != nil {
		t.Fatal(err)
	}
	const n = 10_000
	for name, open := range sources() {
		t.Run(name, func(t *testing.T) {
			for what, write := range map[string]func(s *fuel.Storage, own, model []byte) error{
				"WriteAt": func(s *fuel.Storage, own, model []byte) error {
					copy(model[20:], model[:5000])
					_, err := s.WriteAt(own[:5000], 20)
					return err
				},
				"WriteAt of all": func(s *fuel.Storage, own, model []byte) error { _, err := s.WriteAt(own, 0); return err },
				"Fill": func(s *fuel.Storage, own, model []byte) error {
					copy(model, bytes.Repeat(bytes.Clone(model[102:104]), n/2))
					return s.Fill(ctx, own[102:104])
				},
				"FillRange": func(s *fuel.Storage, own, model []byte) error { // which writes to the pattern
					copy(model[1:], bytes.Repeat(bytes.Clone(model[2:4]), n/2-1))
					return s.FillRange(ctx, 1, n-2, own[2:4])
				},
				"Queue.Fill": func(s *fuel.Storage, own, model []byte) error {
					copy(model, bytes.Repeat(bytes.Clone(model[102:104]), n/2))
					p, err := q.Fill(s, own[102:104])
					if err != nil {
						return err
					}
					return q.Wait(ctx, p)
				},
			} {
				model := count(n)
				s := open(t, bytes.Clone(model))
				own, err := s.Bytes()
				if err != nil {
					t.Fatal(err)
				}
				if err := write(s, own, model); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				wantBytes(t, what, s, model)
				s.Close()
			}
		})
	}
}

// sources has every kind of host memory.
func sources() map[string]func(t testing.TB, b []byte) *fuel.Storage {
	all := maps.Clone(memories)
	maps.Copy(all, sharedSources)
	return all
}

// Where there is nothing to write there is nothing to copy, and nothing faults.
func TestAWriteOfNothingNeverMakesAPrivateCopy(t *testing.T) {
	s := shrunk(t, 300_000)
	v := must(t)(s.View(200_000, 0))
	f := must(t)(v.Reinterpret(fuel.F32))
	none := func(n int, err error) error {
		if n != 0 {
			t.Errorf("%d bytes or elements of none", n)
		}
		return err
	}
	for what, write := range map[string]func() error{
		"MutableBytes": func() error { b, err := v.MutableBytes(); return none(len(b), err) },
		"MutableSlice": func() error { b, err := fuel.MutableSlice[float32](f); return none(len(b), err) },
		"Mutate":       func() error { return v.Mutate(func(b []byte) error { return none(len(b), nil) }) },
		"MutateSlice":  func() error { return fuel.MutateSlice(f, func(b []float32) error { return none(len(b), nil) }) },
		"VisitMutable": func() error {
			return none(fuel.VisitMutable(v, &fuel.Cases[int]{CPU: func(m fuel.CPUMemory) (int, error) { return len(m.Bytes), nil }}))
		},
		"WriteAt":   func() error { return none(v.WriteAt(nil, 0)) },
		"FillRange": func() error { return s.FillRange(t.Context(), 5, 0, []byte{1}) },
	} {
		if err := write(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if r := s.Region(); r.Memory != fuel.MemoryMapped {
			t.Fatalf("%s made a private copy: %+v", what, r)
		}
	}
}

func TestAMappingOutlivesItsFile(t *testing.T) {
	needsMapping(t)
	want := count(10_000)
	f := file(t, want)
	s := must(t)(fuel.Map(f, fuel.U8, 1, len(want)-1))
	f.Close()
	if err := os.Remove(f.Name()); err != nil && runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	wantBytes(t, "after the file was removed", s, want[1:])
}

// Reports 1 and 2: offsets in files are odd.
func TestMapTakesAnyOffset(t *testing.T) {
	want := count(9000)
	f := file(t, want)
	for off := range 70 {
		s := must(t)(fuel.Map(f, fuel.F32, int64(off), 2000))
		wantBytes(t, "Map", s, want[off:off+8000])
		if a := s.Alignment(); runtime.GOARCH != "wasm" && (off%a != 0 || off%(2*a) == 0 && off != 0) {
			t.Errorf("offset %d is aligned to %d", off, a)
		}
		_, err := fuel.Slice[float32](s)
		if ok := s.Alignment() >= 4; ok != (err == nil) || err != nil && !errors.Is(err, fuel.ErrMisaligned) {
			t.Errorf("a slice at offset %d: %v", off, err)
		}
		s.Close()
	}
}

// shrunk maps a file and then truncates it. Its first page stays readable.
func shrunk(t *testing.T, size int) *fuel.Storage {
	t.Helper()
	needsMapping(t)
	if runtime.GOOS == "windows" {
		require.Skip(t, "truncation", "Windows refuses to truncate a mapped file")
	}
	f := file(t, count(size))
	s := must(t)(fuel.Map(f, fuel.U8, 0, size))
	if err := f.Truncate(100); err != nil {
		t.Fatal(err)
	}
	return s
}

// Report 14: the file shrinks, and SIGBUS ends the process. The process must
// live, and every accessor must say ErrMapFault.
func TestTruncationUnderAMappingNeverKills(t *testing.T) {
	ctx := t.Context()
	for what, size := range map[string]int{"small": 300_000, "split between goroutines": 40 << 20} {
		t.Run(what, func(t *testing.T) {
			s := shrunk(t, size)
			ok := must(t)(fuel.FromBytes(cpu, fuel.U8, count(size)))
			dst := must(t)(fuel.Alloc(cpu, fuel.U8, size, nil))
			queue, err := fuel.QueueOf(cpu)
			if err != nil {
				t.Fatal(err)
			}
			for what, read := range map[string]func() error{
				"ReadAt":      func() error { _, err := s.ReadAt(make([]byte, size), 0); return err },
				"ReadAt tail": func() error { _, err := s.ReadAt(make([]byte, 1), int64(size-1)); return err },
				"CopyFrom":    func() error { return dst.CopyFrom(ctx, s, nil) },
				"CopyRange":   func() error { return dst.CopyRange(ctx, 1, s, size-10, 10, nil) },
				"Checksum":    func() error { _, err := s.Checksum(ctx); return err },
				"Equal":       func() error { _, err := s.Equal(ctx, ok); return err },
				"Equal it":    func() error { _, err := ok.Equal(ctx, s); return err },
				"WriteTo":     func() error { _, err := s.WriteTo(io.Discard); return err },
				"WriteAt":     func() error { _, err := s.WriteAt([]byte{1}, 5); return err },
				"MutableBytes": func() error {
					c := must(t)(s.Clone())
					defer c.Close()
					_, err := c.MutableBytes()
					return err
				},
				"Queue.Copy": func() error {
					p, err := queue.Copy(dst, s)
					if err != nil {
						return err
					}
					return queue.Wait(ctx, p)
				},
			} {
				wantErr(t, what, read(), fuel.ErrMapFault)
			}
			if r := s.Region(); r.Memory != fuel.MemoryMapped || r.Owners != 1 {
				t.Errorf("after failed private copies: %+v", r)
			}
			if _, err := s.ReadAt(make([]byte, 10), 0); err != nil {
				t.Errorf("the part that is left: %v", err)
			}
			if err := dst.CopyFrom(ctx, ok, nil); err != nil {
				t.Errorf("the destination after a fault: %v", err)
			}
		})
	}
}

func TestTruncationIsFoundInEveryGoroutine(t *testing.T) {
	s := shrunk(t, 1<<20)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if _, err := s.ReadAt(make([]byte, 5000), 500_000); !errors.Is(err, fuel.ErrMapFault) {
					t.Errorf("ReadAt: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Report 19: on Windows a mapped file cannot be replaced unless it was opened
// so. What the system does about os.Open is its own; fuel's part is to keep no
// handle: after Close the file can go.
func TestNoHandleIsLeftOnTheFile(t *testing.T) {
	f := file(t, count(100))
	s := must(t)(fuel.Map(f, fuel.U8, 0, 100))
	if err := errors.Join(f.Close(), s.Close(), os.Remove(f.Name())); err != nil {
		t.Error(err)
	}
}

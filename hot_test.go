package fuel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/go-fuel/fuel"
	checked "github.com/go-fuel/fuel/internal/check"
	"github.com/go-fuel/fuel/internal/race"
)

// leaver leaves a visit in another way than by a return.
type leaver struct {
	fuel.Cases[int]
	leave func()
}

func (l *leaver) VisitCPU(fuel.CPUMemory) (int, error) { l.leave(); return 0, nil }

// A visitor that panics, or ends its goroutine, must not stay counted in: the
// memory would never be freed, and a mutation keep every Clone out.
func TestALeftVisitNeverStaysCountedIn(t *testing.T) {
	for name, leave := range map[string]func(){
		"panic":  func() { panic("visitor's") },
		"Goexit": runtime.Goexit, // as t.FailNow does
	} {
		t.Run(name, func(t *testing.T) {
			freed := false
			s, err := fuel.Wrap(fuel.U8, make([]byte, 64), func() { freed = true })
			if err != nil {
				t.Fatal(err)
			}
			use := func([]byte) error { leave(); return nil }
			for _, visit := range []func(){
				func() { _, _ = fuel.Visit(s, &leaver{leave: leave}) },
				func() { _, _ = fuel.VisitMutable(s, &leaver{leave: leave}) },
				func() { _ = s.Use(use) },
				func() { _ = s.Mutate(use) },
			} {
				left := make(chan struct{})
				go func() {
					defer close(left)
					defer func() { _ = recover() }()
					visit()
				}()
				<-left
			}
			c, err := s.Clone() // would wait for a writer for ever
			if err != nil {
				t.Fatal(err)
			}
			if c.Close() != nil || s.Close() != nil || !freed {
				t.Error("the memory is still in use after the last Close")
			}
		})
	}
}

// Small accesses are frequent: what they would leave to the collector costs
// more than they do.
func TestSmallAccessNeverAllocates(t *testing.T) {
	ctx, pattern, p := context.Background(), []byte{1, 2, 3, 4}, make([]byte, 64)
	for name, open := range memories {
		t.Run("memory="+name, func(t *testing.T) {
			s, d := open(t, count(4096)), must(t)(fuel.Alloc(cpu, fuel.U8, 4096, nil))
			for _, op := range []struct {
				name string
				f    func() error
			}{
				// These first: a write moves a mapped file's bytes to memory.
				{"ReadAt", func() error { _, err := s.ReadAt(p, 8); return err }},
				{"CopyFrom", func() error { return d.CopyFrom(ctx, s, nil) }},
				{"WriteAt", func() error { _, err := s.WriteAt(p, 8); return err }},
				{"Zero", func() error { return s.Zero(ctx) }},
				{"Fill", func() error { return s.Fill(ctx, pattern) }},
				{"FillRange", func() error { return s.FillRange(ctx, 8, 64, pattern) }},
				{"CopyRange", func() error { return s.CopyRange(ctx, 0, s, 32, 64, nil) }},
			} {
				n := testing.AllocsPerRun(100, func() {
					if err := op.f(); err != nil {
						t.Error(op.name, err)
					}
				})
				if n != 0 && !race.Enabled {
					t.Errorf("%s allocates %v times", op.name, n)
				}
			}
		})
	}
}

// A small Storage is its handle, which has the owner, and its region.
func TestSmallAllocAllocatesNoMoreThanTwice(t *testing.T) {
	// The bytes are on the Go heap too, or checked mode records who asks.
	exempt := checked.On() || must(t)(fuel.Alloc(cpu, fuel.U8, 1, nil)).Region().Memory == fuel.MemoryHeap
	for _, n := range []int{1, 64, 4096, 32 << 10} {
		for name, alloc := range map[string]func(fuel.Device, fuel.DType, int, *fuel.Options) (*fuel.Storage, error){
			"Alloc": fuel.Alloc, "AllocUninit": fuel.AllocUninit,
		} {
			if got := testing.AllocsPerRun(100, func() {
				s, err := alloc(cpu, fuel.U8, n, nil)
				if err != nil {
					t.Fatal(err)
				}
				s.Close()
			}); got > 2 && !exempt {
				t.Errorf("%s of %d bytes allocates %v times", name, n, got)
			}
		}
	}
}

// What goes the short way must end as the long way does.
func TestShortAndLongRangesAreTreatedAlike(t *testing.T) {
	for _, n := range []int{1, 16, 4096, 256 << 10, 256<<10 + 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := must(t)(fuel.FromBytes(cpu, fuel.U8, count(n)))
			d := must(t)(fuel.Alloc(cpu, fuel.U8, n, nil))
			gone, cancel := context.WithCancel(context.Background())
			cancel()
			for op, err := range map[string]error{
				"Zero": s.Zero(gone), "Fill": s.Fill(gone, []byte{7}), "CopyFrom": s.CopyFrom(gone, d, nil),
			} {
				if e, ok := errors.AsType[*fuel.OpError](err); !ok || e.Bytes != 0 || !errors.Is(err, context.Canceled) {
					t.Errorf("%s, cancelled: %v", op, err)
				}
			}
			wantBytes(t, "after cancelled writes", s, count(n))
			told := 0
			err := d.CopyFrom(context.Background(), s, &fuel.CopyOptions{Progress: func(done, total int) {
				if done <= told || total != n {
					t.Errorf("progress %d of %d after %d", done, total, told)
				}
				told = done
			}})
			if err != nil || told != n {
				t.Errorf("copy: %v, told of %d", err, told)
			}
			wantBytes(t, "the copy", d, count(n))
			if err := d.Fill(context.Background(), []byte{7}); err != nil {
				t.Error(err)
			}
			wantBytes(t, "the fill", d, bytes.Repeat([]byte{7}, n))
		})
	}
}

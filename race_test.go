package fuel_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
	checked "github.com/go-fuel/fuel/internal/check"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
)

// inOrder runs fs one after another, each in a goroutine of its own, ordered by
// the clock alone: the race detector sees no synchronization between them.
func inOrder(fs ...func()) {
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 30 * time.Millisecond)
			f()
		})
	}
	wg.Wait()
}

// None of these is a race of the caller's; under -race each fails the test
// where the detector takes it for one.
func TestSafeUseIsNoRace(t *testing.T) {
	read := func(s *fuel.Storage) func() {
		return func() {
			if _, err := s.ReadAt(make([]byte, s.LenBytes()), 0); err != nil {
				t.Error(err)
			}
		}
	}
	write := func(s *fuel.Storage) func() { return func() { fill(t, s, 9) } }
	shut := func(s *fuel.Storage) func() { return func() { _ = s.Close() } }

	sources := map[string]func(t testing.TB) *fuel.Storage{
		"heap":    func(t testing.TB) *fuel.Storage { return filled(t, 100, 1) },
		"wrapped": func(t testing.TB) *fuel.Storage { return value(fuel.Wrap(fuel.U8, make([]byte, 100), nil))(t) },
		"mapped":  func(t testing.TB) *fuel.Storage { s, _ := mapped(t, 100); return s },
	}
	for name, source := range sharedSources {
		sources[name] = func(t testing.TB) *fuel.Storage { return source(t, bytes.Repeat([]byte{1}, 100)) }
	}
	for name, source := range sources {
		t.Run("read a clone, close it, write the original/"+name, func(t *testing.T) {
			a := source(t)
			b := value(a.Clone())(t)
			inOrder(read(b), shut(b), write(a))
			a.Close()
		})
		t.Run("read a clone, rewrite it, write the original/"+name, func(t *testing.T) {
			a := source(t)
			b := value(a.Clone())(t)
			head, tail := value(b.View(0, 50))(t), value(b.View(50, 50))(t)
			inOrder(read(head), write(tail), write(a))
			for _, h := range []*fuel.Storage{a, b, head, tail} {
				h.Close()
			}
		})
		t.Run("write, then clone and read/"+name, func(t *testing.T) {
			a := source(t)
			inOrder(write(a), func() {
				b := value(a.Clone())(t)
				read(b)()
				b.Close()
			})
			a.Close()
		})
		t.Run("read by a clone that steals/"+name, func(t *testing.T) {
			a := source(t)
			b := value(a.Clone())(t)
			inOrder(read(a), shut(a), write(b), func() { c := value(b.Clone())(t); read(c)(); c.Close() })
			b.Close()
		})
		t.Run("disjoint writes of shared memory/"+name, func(t *testing.T) {
			a := source(t)
			b := value(a.Clone())(t)
			var wg sync.WaitGroup
			for i := range 10 {
				wg.Go(func() {
					if _, err := a.WriteAt([]byte("0123456789"), int64(i*10)); err != nil {
						t.Error(err)
					}
				})
			}
			read(b)()
			wg.Wait()
			read(a)()
			a.Close()
			b.Close()
		})
		t.Run("read and write disjoint/"+name, func(t *testing.T) {
			a := source(t)
			b := value(a.Clone())(t)
			head, tail := value(a.View(0, 50))(t), value(a.View(50, 50))(t)
			inOrder(read(head), write(tail), read(head))
			for _, h := range []*fuel.Storage{a, b, head, tail} {
				h.Close()
			}
		})
		t.Run("queue, then write the source/"+name, func(t *testing.T) {
			a := source(t)
			d := filled(t, 100, 3)
			q := value(fuel.QueueOf(fuel.Device{}))(t)
			value(q.Copy(d, a))(t)
			write(a)()
			read(d)()
			a.Close()
			d.Close()
		})
	}
	t.Run("wrapped memory is the caller's after release", func(t *testing.T) {
		mem := make([]byte, 100)
		a := value(fuel.Wrap(fuel.U8, mem, func() { scribble(mem) }))(t)
		inOrder(read(a), shut(a))
		b := value(fuel.Wrap(fuel.U8, mem, func() { scribble(mem) }))(t)
		inOrder(write(b), shut(b))
	})
	t.Run("checked mode poisons after the last read", func(t *testing.T) {
		defer checked.Set(checked.Set(true))
		a := filled(t, 100, 1)
		inOrder(read(a), shut(a))
		b := filled(t, 100, 1)
		inOrder(write(b), shut(b))
	})
}

// races are deliberate. Each is run in a process of its own, which the
// detector must end.
var races = map[string]func(t *testing.T, s *fuel.Storage){
	"read and write": func(t *testing.T, s *fuel.Storage) {
		inOrder(func() { s.ReadAt(make([]byte, 100), 0) }, func() { s.WriteAt(make([]byte, 100), 0) })
	},
	"write and read": func(t *testing.T, s *fuel.Storage) {
		inOrder(func() { s.WriteAt(make([]byte, 100), 0) }, func() { s.ReadAt(make([]byte, 100), 0) })
	},
	"two writes": func(t *testing.T, s *fuel.Storage) {
		inOrder(func() { fill(t, s, 1) }, func() { s.WriteAt(make([]byte, 100), 0) })
	},
	"through views": func(t *testing.T, s *fuel.Storage) {
		v, w := value(s.View(0, 60))(t), value(s.View(50, 50))(t)
		inOrder(func() { fill(t, v, 1) }, func() { w.Checksum(context.Background()) })
	},
	"raw slice": func(t *testing.T, s *fuel.Storage) {
		b := value(s.MutableBytes())(t)
		inOrder(func() { s.ReadAt(make([]byte, 100), 0) }, func() { b[5] = 1; s.Mutate(func([]byte) error { return nil }) })
	},
	"visit": func(t *testing.T, s *fuel.Storage) {
		inOrder(
			func() {
				fuel.VisitMutable(s, &fuel.Cases[int]{CPU: func(m fuel.CPUMemory) (int, error) { m.Bytes[0] = 1; return 0, nil }})
			},
			func() { s.ReadAt(make([]byte, 100), 0) })
	},
	"copies": func(t *testing.T, s *fuel.Storage) {
		d := filled(t, 100, 1)
		inOrder(func() { d.CopyFrom(context.Background(), s, nil) }, func() { s.CopyFrom(context.Background(), filled(t, 100, 2), nil) })
	},
	"equal": func(t *testing.T, s *fuel.Storage) {
		d := filled(t, 100, 1)
		inOrder(func() { d.Equal(context.Background(), s) }, func() { s.Zero(context.Background()) })
	},
}

func TestDeliberateRaceIsReported(t *testing.T) {
	if !race.Enabled {
		require.Skip(t, "race", "built without -race")
	}
	if what := os.Getenv("FUEL_TEST_RACE"); what != "" {
		kind, name, _ := strings.Cut(what, "/")
		var s *fuel.Storage
		switch kind {
		case "heap":
			s = filled(t, 100, 1)
		case "wrapped": // memory that the detector does not see
			s = value(fuel.Wrap(fuel.U8, unseen(t, 100), nil))(t)
		case "pinned": // nor this
			_, dev := pinner(t, fueltest.FakeOptions{})
			s = pinnedFor(t, dev, bytes.Repeat([]byte{1}, 100))
		case "mapped":
			s, _ = mapped(t, 100)
		case "shared":
			s = filled(t, 100, 1)
			value(s.Clone())(t)
		default:
			s = sharedSources[kind](t, bytes.Repeat([]byte{1}, 100))
		}
		races[name](t, s)
		return
	}
	exe := value(os.Executable())(t)
	kinds := []string{"heap", "wrapped", "pinned", "mapped", "shared"}
	for kind := range sharedSources {
		kinds = append(kinds, kind)
	}
	for _, kind := range kinds {
		for name := range races {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				c := exec.Command(exe, "-test.run=^TestDeliberateRaceIsReported$")
				c.Env = append(os.Environ(), "FUEL_TEST_RACE="+kind+"/"+name)
				out, err := c.CombinedOutput()
				if err == nil || !strings.Contains(string(out), "DATA RACE") {
					t.Errorf("not reported: %v\n%s", err, out)
				}
			})
		}
	}
}

// scribble writes to b so that the race detector sees it, which it does not
// for clear.
func scribble(b []byte) {
	for i := range b {
		b[i] = 0xA5
	}
}

package fuel_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
)

// A Close and the collector's hook never both free: the last use of a handle
// may be its Close.
func TestCloseAndCollectorNeverBothRelease(t *testing.T) {
	var made, released atomic.Int64
	before := value(fuel.MemStats(fuel.Device{}))(t).Leaks
	stop := make(chan struct{})
	var gc sync.WaitGroup
	gc.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	mem := make([]byte, 8)
	var wg sync.WaitGroup
	end := time.Now().Add(2 * time.Second)
	for range 4 {
		wg.Go(func() {
			for time.Now().Before(end) {
				for range 100 {
					made.Add(1)
					s, _ := fuel.Wrap(fuel.U8, mem, func() { released.Add(1) })
					_ = s.Close()
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	gc.Wait()
	time.Sleep(50 * time.Millisecond)
	if made.Load() != released.Load() {
		t.Errorf("%d made, %d released", made.Load(), released.Load())
	}
	if got := value(fuel.MemStats(fuel.Device{}))(t).Leaks - before; got != 0 {
		t.Errorf("%d leaks counted", got)
	}
}

// Writers that follow each other without a gap do not keep a Clone out.
func TestCloneIsNotStarvedByWriters(t *testing.T) {
	s := filled(t, 4<<20, 1)
	defer s.Close()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			b := bytes.Repeat([]byte{byte(i)}, 1<<20)
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := s.WriteAt(b, int64(i)<<20); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
	var worst time.Duration
	for range 20 {
		began := time.Now()
		c := value(s.Clone())(t)
		worst = max(worst, time.Since(began))
		c.Close()
	}
	close(stop)
	wg.Wait()
	t.Logf("longest Clone: %v", worst)
	if worst > 20*time.Second { // a starved one waits for ever; an emulator is slow
		t.Errorf("a Clone took %v", worst)
	}
}

// A View aliases its Storage before and after a private copy, in both
// directions, also where the Storage is a Clone of a View.
func TestViewAliasesThroughPrivateCopies(t *testing.T) {
	root := filled(t, 300, 1)
	part := value(root.View(100, 150))(t)
	s := value(part.Clone())(t)
	v := value(s.View(10, 20))(t)
	w := value(v.View(5, 5))(t)
	for i := range byte(3) {
		if _, err := v.WriteAt([]byte{10 + i}, 6); err != nil {
			t.Fatal(err)
		}
		if _, err := s.WriteAt([]byte{20 + i}, 17); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		if _, err := w.ReadAt(b, 0); err != nil || !bytes.Equal(b, []byte{1, 10 + i, 20 + i, 1, 1}) {
			t.Errorf("%v %v", b, err)
		}
		c := value(w.Clone())(t)
		if _, err := c.WriteAt([]byte{99}, 0); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if !all(value(root.Bytes())(t), 1) {
		t.Error("the original changed")
	}
	s.Close()
	v.Close()
	moved := value(w.Take())(t)
	if b := value(moved.Bytes())(t); len(b) != 5 || b[1] != 12 {
		t.Errorf("%v", b)
	}
	for _, h := range []*fuel.Storage{root, part, moved} {
		h.Close()
	}
}

// A panic of the caller's Progress leaves nobody at work on the memory.
func TestPanicInProgressLeavesNoWorker(t *testing.T) {
	if race.Enabled {
		require.Skip(t, "norace", "too slow under -race")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	before := runtime.NumGoroutine()
	me := goroutine()
	for range 20 {
		src, dst := filled(t, 32<<20, 1), filled(t, 32<<20, 2)
		func() {
			defer func() { _ = recover() }()
			_ = dst.CopyFrom(context.Background(), src, &fuel.CopyOptions{Progress: func(done, total int) {
				if goroutine() == me {
					panic("caller's")
				}
			}})
		}()
		src.Close()
		dst.Close()
	}
	time.Sleep(50 * time.Millisecond)
	if now := runtime.NumGoroutine(); now > before {
		t.Errorf("%d goroutines before, %d after", before, now)
	}
}

func goroutine() string {
	b := make([]byte, 32)
	b = b[:runtime.Stack(b, false)]
	return string(bytes.Fields(b)[1])
}

// Nothing that can be asked for ends the program.
func TestHugeAllocIsAnError(t *testing.T) {
	const maxInt = int(^uint(0) >> 1)
	if strconv.IntSize == 32 {
		require.Skip(t, "64-bit", "a 32-bit process may well get all that it can name")
	}
	sizes := []int{maxInt, maxInt - 1, maxInt - 63, maxInt - 64, maxInt - 4096, maxInt / 2}
	if runtime.GOARCH == "wasm" { // has an int of 64 bits, and addresses of 32
		sizes = append(sizes, maxInt>>30, maxInt>>31+1, maxInt>>31, maxInt>>31-62)
	}
	before := value(fuel.MemStats(cpu))(t)
	defer func() {
		if after := value(fuel.MemStats(cpu))(t); after.Allocated != before.Allocated || after.InUse != before.InUse {
			t.Errorf("%+v, before %+v", after, before)
		}
	}()
	for _, n := range sizes {
		func() {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("%d bytes: panic: %v", n, r)
				}
			}()
			s, err := fuel.Alloc(fuel.Device{}, fuel.U8, n, nil)
			if !errors.Is(err, fuel.ErrOutOfMemory) && !errors.Is(err, fuel.ErrTooLarge) {
				t.Errorf("%d bytes: %v", n, err)
			}
			if err == nil {
				s.Close()
			}
		}()
	}
}

// Writes from within Mutate go on while a Clone waits for that Mutate.
func TestWriteWithinMutateNeverWaitsForAClone(t *testing.T) {
	s := filled(t, 100, 1)
	defer s.Close()
	done := make(chan struct{})
	err := s.Mutate(func([]byte) error {
		started := make(chan struct{})
		go func() {
			defer close(done)
			close(started)
			value(s.Clone())(t).Close()
		}()
		<-started
		for range 20 {
			if _, err := s.WriteAt([]byte{2}, 3); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	<-done
}

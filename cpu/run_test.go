package cpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
)

// split makes Run use several goroutines from n bytes on, for one test.
func split(t *testing.T, n int) {
	before := parallelMin
	parallelMin = n
	t.Cleanup(func() { parallelMin = before })
}

func eachSplit(t *testing.T, f func(t *testing.T)) {
	for name, n := range map[string]int{"sequential": math.MaxInt, "parallel": 1} {
		t.Run(name, func(t *testing.T) {
			split(t, n)
			f(t)
		})
	}
}

func TestRunDoesEveryByteOnce(t *testing.T) {
	eachSplit(t, func(t *testing.T) {
		for _, n := range []int{0, 1, Piece - 1, Piece, Piece + 1, stripe, stripe + 1, 5*stripe + 7} {
			mem := make([]byte, n)
			var last atomic.Int64
			done, err := Run(t.Context(), n, func(off, end int) error {
				if end-off > Piece || end <= off {
					return fmt.Errorf("piece [%d, %d)", off, end)
				}
				for i := off; i < end; i++ {
					mem[i]++
				}
				return nil
			}, func(done int) {
				if int64(done) <= last.Swap(int64(done)) {
					t.Errorf("progress went back to %d", done)
				}
			})
			if done != n || err != nil || last.Load() != int64(n) {
				t.Fatalf("Run of %d bytes: %d, %v, progress %d", n, done, err, last.Load())
			}
			for i, v := range mem {
				if v != 1 {
					t.Fatalf("byte %d of %d was done %d times", i, n, v)
				}
			}
		}
	})
}

func TestRunStopsBetweenPieces(t *testing.T) {
	eachSplit(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int64
		done, err := Run(ctx, 8*stripe, func(off, end int) error {
			if calls.Add(1) >= 3 {
				cancel() // in every goroutine, since one may be slow to
			}
			return nil
		}, nil)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("a cancelled Run says %v", err)
		}
		// Each worker ends the piece it is at.
		if n := int(calls.Load()); done != n*Piece || n > 3+maxWorkers {
			t.Fatalf("%d bytes done by %d calls", done, n)
		}
	})
}

func TestRunReturnsTheErrorAndTheBytesDone(t *testing.T) {
	eachSplit(t, func(t *testing.T) {
		bad := errors.New("bad")
		var mu sync.Mutex
		sum := 0
		done, err := Run(t.Context(), 4*stripe, func(off, end int) error {
			if off == 2*Piece {
				return bad
			}
			mu.Lock()
			defer mu.Unlock()
			sum += end - off
			return nil
		}, nil)
		if err != bad || done != sum {
			t.Fatalf("%v, %d bytes done, and %d by the calls", err, done, sum)
		}
	})
}

func TestRunStartsNothingOnADoneContext(t *testing.T) {
	eachSplit(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		done, err := Run(ctx, 3*stripe, func(off, end int) error {
			t.Error("a piece was done")
			return nil
		}, nil)
		if done != 0 || err != context.Canceled {
			t.Fatal(done, err)
		}
	})
}

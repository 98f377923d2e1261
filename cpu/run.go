package cpu

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// parallelMin is the length from which Run splits its work between cores: two
// goroutines cost a few microseconds, which 8 MiB (about a millisecond) hide.
// A variable for tests.
var parallelMin = 8 << 20

// stripe is what a worker takes at a time: large enough that neighbouring
// workers do not meet in one huge page often.
const stripe = 16 * Piece

// maxWorkers bounds the goroutines of one call: memory bandwidth is used up by
// a few cores.
const maxWorkers = 8

// Run calls f for consecutive ranges [off, end) that together make [0, n),
// each of at most Piece bytes, and lets others run in between as Zero does. From
// 8 MiB it does so from several goroutines at once, in no particular order.
//
// It looks at ctx between pieces. It returns the bytes that were done, and the
// first error of f or of ctx; pieces begun elsewhere are finished before it
// returns. progress, if not nil, is told the bytes done so far, never from two
// goroutines at once.
func Run(ctx context.Context, n int, f func(off, end int) error, progress func(done int)) (done int, err error) {
	workers := min(runtime.GOMAXPROCS(0), maxWorkers, (n+stripe-1)/stripe)
	if n < parallelMin || workers < 2 {
		return runRange(ctx, 0, n, 1, f, func(d int) bool {
			if progress != nil {
				progress(d)
			}
			return true
		})
	}
	var (
		next  atomic.Int64 // stripe to take next
		stop  atomic.Bool
		mu    sync.Mutex // done, err, calls of progress
		total int
		wg    sync.WaitGroup
	)
	tell := func(more int) {
		mu.Lock()
		defer mu.Unlock()
		total += more
		progress(total)
	}
	work := func() {
		for !stop.Load() {
			off := int(next.Add(1)-1) * stripe
			if off >= n || off < 0 {
				return
			}
			before := 0
			d, e := runRange(ctx, off, min(off+stripe, n), workers, f, func(d int) bool {
				if progress != nil {
					tell(d - before)
					before = d
				}
				return !stop.Load()
			})
			mu.Lock()
			total += d - before
			if e != nil && err == nil {
				err = e
			}
			mu.Unlock()
			if e != nil {
				stop.Store(true)
			}
		}
	}
	// Also where progress panics: nobody may work on the memory any more.
	defer wg.Wait()
	defer stop.Store(true)
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	return total, err
}

// runRange does [from, to) in one of so many workers. step is told the bytes
// done in this range and says whether to go on.
func runRange(ctx context.Context, from, to, workers int, f func(off, end int) error, step func(done int) bool) (int, error) {
	for off := from; off < to; {
		if err := ctx.Err(); err != nil {
			return off - from, err
		}
		end := off + min(Piece, to-off)
		if err := f(off, end); err != nil {
			return off - from, err
		}
		off = end
		if !step(off - from) {
			return off - from, nil
		}
		yield(to-off, workers)
	}
	return to - from, nil
}

package cpu

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
)

// needsTime skips tests that measure time, which means nothing in an emulator
// or under the race detector.
func needsTime(t *testing.T) {
	t.Helper()
	switch {
	case race.Enabled:
		require.Skip(t, "norace", "the race detector changes what takes how long")
	case testing.Short() || os.Getenv("FUEL_TEST_EXEC") != "" || !HaveReserve || underWine():
		require.Skip(t, "realtime", "time means nothing here")
	}
}

// underWine reports whether the system is Wine, whose Windows this is.
func underWine() bool { return wine }

// gibibyte is as much memory as that, written to.
func gibibyte(t *testing.T) []byte {
	t.Helper()
	n := 1 << 30
	if math.MaxInt == math.MaxInt32 {
		n = 1 << 28 // more does not fit
	}
	b, err := Reserve(n)
	if err != nil {
		require.Skip(t, "64-bit", err.Error()) // a 32-bit process may be too full
	}
	t.Cleanup(func() {
		if err := Release(b); err != nil {
			t.Error(err)
		}
	})
	Fill(b, []byte{1})
	return b
}

// stops runs f while another goroutine collects garbage all the time. It
// returns how many stops of the world f let through within a millisecond and
// how many took longer, and the longest: the upper bound of its bucket.
func stops(f func()) (short, long uint64, worst time.Duration) {
	sample := []metrics.Sample{{Name: "/sched/pauses/stopping/gc:seconds"}}
	counts := func() []uint64 {
		metrics.Read(sample)
		return slices.Clone(sample[0].Value.Float64Histogram().Counts)
	}
	var stop atomic.Bool
	collected := make(chan struct{})
	before := counts()
	go func() {
		defer close(collected)
		for !stop.Load() {
			runtime.GC()
		}
	}()
	f()
	stop.Store(true)
	<-collected
	for i, n := range counts() {
		bound := time.Duration(sample[0].Value.Float64Histogram().Buckets[i+1] * float64(time.Second))
		switch n -= before[i]; {
		case n == 0:
		case bound <= time.Millisecond:
			short += n
		default:
			long += n
		}
		if n > 0 {
			worst = bound
		}
	}
	return short, long, worst
}

// Reports 64 and 65: a clear of much memory holds up every stop of the world.
//
// No stop should take more than a millisecond. On a machine that others use
// some do, whatever we do, since a thread of ours waits for its turn: so one
// run without any is enough, or many runs in which few are long. What cannot
// be preempted holds up a stop in every run.
func TestBigZeroAndCopyDoNotHoldTheWorld(t *testing.T) {
	needsTime(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	dst, src := gibibyte(t), gibibyte(t)
	if short, long, _ := stops(func() { clear(dst) }); long == 0 {
		t.Logf("the runtime's clear let %d stops through and none wait: this test may not see what it looks for", short)
	}
	for name, f := range map[string]func(){
		"zero": func() { Zero(dst) },
		"copy": func() { Copy(dst, src) },
		"fill": func() { Fill(dst, []byte{1, 2}) },
		"move": func() { Copy(dst[1:], dst[:len(dst)-1]) },
	} {
		var short, long uint64
		var worst time.Duration
		for start := time.Now(); time.Since(start) < 10*time.Second; {
			more, wait, most := stops(f)
			short, long, worst = short+more, long+wait, most
			if wait == 0 && more >= 4 { // not just those before and after f
				long = 0
				break
			}
		}
		t.Logf("%s of %d MiB: %d stops within 1 ms, %d longer, at last at most %v", name, len(dst)>>20, short, long, worst)
		if short < 4*long || short == 0 {
			t.Errorf("%s of %d MiB holds the world", name, len(dst)>>20)
		}
	}
}

// Reports 64 and 65 again: with one processor nobody else would run.
func TestBigZeroAndCopyLetOthersRun(t *testing.T) {
	needsTime(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	dst, src := gibibyte(t), gibibyte(t)
	eachTier(t, func(t *testing.T, k *tier) {
		for name, f := range map[string]func(){
			"zero": func() { Zero(dst) },
			"copy": func() { Copy(dst, src) },
			"fill": func() { Fill(dst, []byte{1, 2}) },
			"swap": func() { Swap(dst, src, 4) },
			"run":  func() { zeroByRun(dst, func() {}) },
		} {
			var stop atomic.Bool
			ticks := 0
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for !stop.Load() {
					ticks++
					runtime.Gosched()
				}
			}()
			start := time.Now()
			f()
			took := time.Since(start)
			stop.Store(true)
			<-ended
			if want := len(dst) / Piece / 8; ticks < want { // half as often as yield says
				t.Errorf("%s of %d MiB: %d ticks in %v, want %d", name, len(dst)>>20, ticks, took, want)
			}
		}
	})
}

// zeroByRun clears b in pieces and calls each after one.
func zeroByRun(b []byte, each func()) {
	_, _ = Run(context.Background(), len(b), func(off, end int) error {
		ZeroPart(b[off:end], off, len(b))
		each()
		return nil
	}, nil)
}

// The same where Run has all processors.
func TestRunOnAllProcessorsLetsOthersRun(t *testing.T) {
	needsTime(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	b := gibibyte(t)
	pieces := len(b) / Piece
	var done atomic.Int64
	begun, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		zeroByRun(b, func() {
			if done.Add(1) == int64(pieces/4) {
				close(begun)
			}
		})
	}()
	<-begun // by now it has both
	from, turns := done.Load(), 0
	for done.Load() < int64(pieces-4*stripe/Piece) { // while it has both
		runtime.Gosched()
		turns++
	}
	n := int(done.Load() - from)
	<-ended
	if turns < n/32 { // an eighth of what yield says
		t.Errorf("%d turns of another in %d pieces", turns, n)
	}
	t.Logf("%d turns of another in %d pieces", turns, n)
}

// The same where work has not all processors, but as much again has the rest.
// By bytes, not by time: ten milliseconds, after which the scheduler takes a
// processor away, are more bytes than this on most machines.
func TestBigZerosOnAllProcessorsLetOthersRun(t *testing.T) {
	needsTime(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	b := gibibyte(t)
	const each, turns = 256 * Piece, 200
	var stop atomic.Bool
	var zeros atomic.Int64
	var wg sync.WaitGroup
	begun := make(chan bool)
	for _, part := range [][]byte{b[:each], b[each:][:each]} {
		wg.Go(func() {
			Zero(part)
			begun <- true
			for !stop.Load() {
				Zero(part)
				zeros.Add(1)
			}
		})
	}
	<-begun
	<-begun // now each has its processor
	before := zeros.Load()
	for range turns {
		runtime.Gosched()
	}
	n := int(zeros.Load() - before)
	stop.Store(true)
	wg.Wait()
	t.Logf("%d MiB cleared for each turn of another", n*each>>20/turns)
	if n > 5*turns { // five times what yield says
		t.Errorf("%d turns of another while %d times %d MiB were cleared", turns, n, each>>20)
	}
}

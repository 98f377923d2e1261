package backend

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Serial runs functions one after another in a goroutine of its own and hands
// out Points: the queue of the CPU, and of a fake device. The goroutine is
// there only while there is work. The zero value is ready.
type Serial struct {
	// Before, if not nil, is called before each function, in the goroutine
	// that runs it. Set it before the first use.
	Before func()

	mu      sync.Mutex
	jobs    []func() error
	last    Point           // given to the newest job
	done    Point           // everything up to here has run
	order   []Point         // whose work failed, oldest first; the newest maxPoints
	failed  map[Point]error // and how, of the newest maxFailed
	forgot  Point           // what failed up to here may have been dropped from order
	changed chan struct{}   // closed when done moves; nil while nobody waits
}

// maxFailed bounds the errors kept for somebody who may wait for them. That there
// was one is kept for longer: a Point is 8 bytes.
const (
	maxFailed = 1024
	maxPoints = 64 << 10
)

var (
	errUntold    = errors.New("backend: this work failed, and over a thousand did later: how it failed is not known any more")
	errForgotten = errors.New("backend: over 60,000 later errors; whether this work failed is not known any more")
)

// Do queues f and returns its Point.
func (q *Serial) Do(f func() error) Point {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.jobs = append(q.jobs, f)
	q.last++
	if len(q.jobs) == 1 {
		go q.run()
	}
	return q.last
}

// Last is the Point of the newest work.
func (q *Serial) Last() Point {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last
}

func (q *Serial) run() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.jobs) > 0 {
		f := q.jobs[0]
		q.mu.Unlock()
		if q.Before != nil {
			q.Before()
		}
		err := f()
		q.mu.Lock()
		q.jobs[0] = nil
		q.jobs = q.jobs[1:]
		q.done++
		if err != nil {
			q.remember(q.done, err)
		}
		if q.changed != nil {
			close(q.changed)
			q.changed = nil
		}
	}
	q.jobs = nil
}

func (q *Serial) remember(p Point, err error) {
	if q.failed == nil {
		q.failed = map[Point]error{}
	}
	q.failed[p] = err
	q.order = append(q.order, p)
	if n := len(q.order); n > maxFailed {
		delete(q.failed, q.order[n-1-maxFailed])
	}
	if len(q.order) > maxPoints {
		q.forgot = q.order[0]
		q.order = q.order[1:]
	}
}

// outcome is the error of the work at p, which has passed.
func (q *Serial) outcome(p Point) error {
	if err := q.failed[p]; err != nil || p == 0 {
		return err
	}
	if _, failed := slices.BinarySearch(q.order, p); failed {
		return errUntold
	}
	if p <= q.forgot {
		return errForgotten
	}
	return nil
}

// Done reports whether p has passed.
func (q *Serial) Done(p Point) bool {
	if p == 0 { // as most are, and the lock is the whole process's
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return p <= q.done
}

// Wait returns when p has passed, with the error of p's own function, or with
// ctx's error. A Point that was not handed out yet is waited for all the same.
func (q *Serial) Wait(ctx context.Context, p Point) error {
	for {
		q.mu.Lock()
		if p <= q.done {
			err := q.outcome(p)
			q.mu.Unlock()
			return err
		}
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Drain waits for everything queued so far.
func (q *Serial) Drain() {
	// A background context never ends the wait, and a failed job is its own
	// waiter's business.
	_ = q.Wait(context.Background(), q.Last())
}

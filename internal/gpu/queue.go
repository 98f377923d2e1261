package gpu

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-fuel/fuel/internal/backend"
)

// A queue hands out Points and waits for them.
type queue struct {
	port Port

	mu   sync.Mutex    // held while work is submitted
	last backend.Point // of the newest work
	lost atomic.Pointer[error]

	reached atomic.Uint64 // no Point above is known to have passed
	slots   chan struct{} // each a thread in Await
	look    chan struct{} // held by the one waiter without a thread that looks

	wake    sync.Mutex
	changed chan struct{} // closed when reached moves; nil while nobody waits
}

// waiters is the number of threads that may wait for the device at once; the
// others wait for those.
const waiters = 4

// lookEvery is how often one of the others looks for itself, since those with a
// thread may all wait for later work.
const lookEvery = time.Millisecond

func newQueue(p Port) *queue {
	return &queue{port: p, slots: make(chan struct{}, waiters), look: make(chan struct{}, 1)}
}

// add queues ops and returns their Point. q.mu is held.
func (q *queue) add(ops []Op) (backend.Point, error) {
	if err := q.lost.Load(); err != nil {
		return 0, *err
	}
	if err := q.port.Submit(q.last+1, ops); err != nil {
		return 0, q.note(err)
	}
	q.last++
	return q.last, nil
}

// note remembers that the device is lost, if that is what err says, and returns
// err. Every call of the Port may be the first to know.
func (q *queue) note(err error) error {
	if lostError(err) && q.lost.CompareAndSwap(nil, &err) {
		q.stir()
	}
	return err
}

// newest is the Point of the newest work.
func (q *queue) newest() backend.Point {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last
}

// passed reports whether p has. Of a lost device every Point has: no work of
// it will run or runs any more.
func (q *queue) passed(p backend.Point) bool {
	if uint64(p) <= q.reached.Load() || q.lost.Load() != nil {
		return true
	}
	r, err := q.port.Reached()
	if err != nil {
		return lostError(q.note(err))
	}
	q.move(r)
	return p <= r
}

// move notes that the device has reached p.
func (q *queue) move(p backend.Point) {
	for {
		old := q.reached.Load()
		if old >= uint64(p) {
			return
		}
		if q.reached.CompareAndSwap(old, uint64(p)) {
			break
		}
	}
	q.stir()
}

// stir makes waiters look at what has changed.
func (q *queue) stir() {
	q.wake.Lock()
	defer q.wake.Unlock()
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

// wait returns when p has passed, or with an error: ctx's, or that of a device
// that was lost before.
func (q *queue) wait(ctx context.Context, p backend.Point) error {
	for range 3 { // most work is short
		if uint64(p) <= q.reached.Load() || q.passed(p) {
			return q.outcome(p)
		}
		runtime.Gosched()
	}
	for {
		q.wake.Lock()
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed := q.changed
		q.wake.Unlock()
		if q.passed(p) {
			return q.outcome(p)
		}
		select {
		case q.slots <- struct{}{}:
			return q.await(ctx, p)
		default:
		}
		select {
		case q.slots <- struct{}{}:
			return q.await(ctx, p)
		case q.look <- struct{}{}:
			select {
			case <-time.After(lookEvery):
			case <-changed:
			case <-ctx.Done():
			}
			<-q.look
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// await is wait for one who has a slot, which it gives back.
func (q *queue) await(ctx context.Context, p backend.Point) error {
	err := q.port.Await(ctx, p)
	<-q.slots
	if err == nil {
		q.move(p)
		return nil
	}
	if ctx.Err() != nil && !lostError(err) {
		return ctx.Err()
	}
	return q.note(err)
}

// settle returns when no work up to p runs any more, whatever the driver says
// to a wait: of a lost device none does.
func (q *queue) settle(p backend.Point) {
	for !q.passed(p) && q.wait(context.Background(), p) != nil {
		time.Sleep(lookEvery)
	}
}

// outcome is the error of work at p, which has passed.
func (q *queue) outcome(p backend.Point) error {
	if uint64(p) <= q.reached.Load() {
		return nil
	}
	if err := q.lost.Load(); err != nil {
		return *err
	}
	return nil
}

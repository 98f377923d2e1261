package gpu

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-fuel/fuel/internal/backend"
)

// A clockPort is a Port whose work passes when a test says so. It gives memory
// that nobody may touch.
type clockPort struct {
	Port

	mu      sync.Mutex
	at      backend.Point
	lost    bool
	changed chan struct{}
	in      int // threads in Await
	most    int
	looks   int // calls of Reached
	id      uint64
	blocks  int
	refuse  func(n int) error
	work    func(ops []Op) error
}

func (p *clockPort) Allocate(n int, _ Use) (Block, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse != nil {
		if err := p.refuse(n); err != nil {
			return Block{}, err
		}
	}
	p.id++
	p.blocks++
	return Block{ID: p.id, Size: n}, nil
}

func (p *clockPort) Release(Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocks--
}

func (p *clockPort) Submit(_ backend.Point, ops []Op) error {
	if p.work != nil {
		return p.work(ops)
	}
	return nil
}

func (p *clockPort) Reached() (backend.Point, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks++
	if p.lost {
		return 0, fmt.Errorf("clock: %w", backend.ErrLost)
	}
	return p.at, nil
}

func (p *clockPort) Await(ctx context.Context, at backend.Point) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.in++
	p.most = max(p.most, p.in)
	defer func() { p.in-- }()
	for !p.lost && p.at < at {
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if p.lost {
		return fmt.Errorf("clock: %w", backend.ErrLost)
	}
	return nil
}

// set moves the clock, or loses the device.
func (p *clockPort) set(at backend.Point, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.lost = at, lost
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *clockPort) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.in
}

// soon fails where f does not come true.
func soon(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond / 4) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

func clockQueue(t *testing.T, points int) (*clockPort, *queue) {
	p := &clockPort{}
	q := newQueue(p)
	for range points {
		if _, err := q.submit(Op{Kind: OpWait}); err != nil {
			t.Fatal(err)
		}
	}
	return p, q
}

// ended returns what the waiters return, or fails where they do not.
func ended(t *testing.T, c <-chan error, n int) (list []error) {
	t.Helper()
	for range n {
		select {
		case err := <-c:
			list = append(list, err)
		case <-time.After(10 * time.Second):
			t.Fatalf("%d of %d waiters have returned", len(list), n)
		}
	}
	return list
}

func TestWaitersNeverHoldMoreThanFourThreads(t *testing.T) {
	const n = 64
	p, q := clockQueue(t, n)
	c := make(chan error, n)
	for i := range n {
		at := backend.Point(i + 1)
		go func() {
			err := q.wait(t.Context(), at)
			if now, _ := p.Reached(); now < at {
				err = fmt.Errorf("the wait for %d ended at %d", at, now)
			}
			c <- err
		}()
	}
	soon(t, "four threads wait", func() bool { return p.waiting() == waiters })
	for i := range n {
		p.set(backend.Point(i+1), false)
		if i%8 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	for _, err := range ended(t, c, n) {
		if err != nil {
			t.Error(err)
		}
	}
	if p.most > waiters {
		t.Errorf("%d threads at once", p.most)
	}
}

// Work behind something that the user has still to do: who waits for it holds
// all threads, and must not keep another from what was done long ago.
func TestWaitersForLaterWorkNeverKeepOneFromEarlierWork(t *testing.T) {
	p, q := clockQueue(t, 100)
	late := make(chan error, waiters)
	for range waiters {
		go func() { late <- q.wait(t.Context(), 100) }()
	}
	soon(t, "four threads wait", func() bool { return p.waiting() == waiters })
	early := make(chan error, 20)
	for i := range cap(early) {
		go func() { early <- q.wait(t.Context(), backend.Point(i+1)) }()
	}
	time.Sleep(5 * time.Millisecond)
	p.mu.Lock()
	p.at = backend.Point(cap(early)) // nobody in Await has that
	p.mu.Unlock()
	for _, err := range ended(t, early, cap(early)) {
		if err != nil {
			t.Error(err)
		}
	}
	p.set(100, false)
	ended(t, late, waiters)
}

// One waiter without a thread looks now and then; the others do nothing.
func TestWaitersNeverSpin(t *testing.T) {
	const n = 64
	p, q := clockQueue(t, 1)
	c := make(chan error, n)
	for range n {
		go func() { c <- q.wait(t.Context(), 1) }()
	}
	soon(t, "four threads wait", func() bool { return p.waiting() == waiters })
	begin := time.Now()
	time.Sleep(50 * time.Millisecond)
	p.mu.Lock()
	looks := p.looks
	p.mu.Unlock()
	if most := 10*n + int(time.Since(begin)/lookEvery)*2; looks > most {
		t.Errorf("the driver was asked %d times, over %d", looks, most)
	}
	p.set(1, false)
	ended(t, c, n)
}

func TestLostDeviceNeverKeepsAWaiter(t *testing.T) {
	const n = 64
	p, q := clockQueue(t, n)
	p.set(3, false)
	c := make(chan error, n)
	for i := range n {
		go func() { c <- q.wait(t.Context(), backend.Point(i+1)) }()
	}
	passed := ended(t, c, 3)
	soon(t, "four threads wait", func() bool { return p.waiting() == waiters })
	p.set(0, true)
	for _, err := range passed {
		if err != nil {
			t.Errorf("work that passed before the loss: %v", err)
		}
	}
	for _, err := range ended(t, c, n-3) {
		if !errors.Is(err, backend.ErrLost) {
			t.Errorf("a wait on a lost device: %v", err)
		}
	}
	if err := q.wait(t.Context(), 3); err != nil {
		t.Errorf("work that passed before the loss: %v", err)
	}
	if err := q.wait(t.Context(), n); !errors.Is(err, backend.ErrLost) || !q.passed(n) {
		t.Errorf("a later wait: %v", err)
	}
	if _, err := q.submit(Op{Kind: OpWait}); !errors.Is(err, backend.ErrLost) || q.newest() != n {
		t.Errorf("work for a lost device: %v", err)
	}
}

func TestCancelledWaiterNeverStaysNorTakesOthersAlong(t *testing.T) {
	const n = 64
	p, q := clockQueue(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	stay, gone := make(chan error, n), make(chan error, n)
	for range n {
		go func() { gone <- q.wait(ctx, 1) }()
	}
	soon(t, "four threads wait", func() bool { return p.waiting() == waiters })
	for range n {
		go func() { stay <- q.wait(t.Context(), 1) }()
	}
	cancel()
	for _, err := range ended(t, gone, n) {
		if err != context.Canceled {
			t.Errorf("a cancelled wait: %v", err)
		}
	}
	soon(t, "the others have the threads", func() bool { return p.waiting() == waiters })
	p.set(1, false)
	for _, err := range ended(t, stay, n) {
		if err != nil {
			t.Errorf("a wait beside cancelled ones: %v", err)
		}
	}
}

func TestWaitNeverEndsEarlyNorNever(t *testing.T) {
	const n, each = 16, 60
	p, q := clockQueue(t, n*each)
	c := make(chan error, n)
	for i := range n {
		go func() {
			r := rand.New(rand.NewPCG(uint64(i), 7))
			for range each {
				at := backend.Point(r.IntN(n*each) + 1)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(2000))*time.Microsecond)
				err := q.wait(ctx, at)
				cancel()
				if now, _ := p.Reached(); err == nil && now < at {
					c <- fmt.Errorf("the wait for %d ended at %d", at, now)
					return
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					c <- err
					return
				}
			}
			c <- q.wait(t.Context(), n*each)
		}()
	}
	for i := range n * each {
		p.set(backend.Point(i+1), false)
		if i%16 == 0 {
			time.Sleep(100 * time.Microsecond)
		}
	}
	for _, err := range ended(t, c, n) {
		if err != nil {
			t.Error(err)
		}
	}
}

// submit queues ops and returns their Point.
func (q *queue) submit(ops ...Op) (backend.Point, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(ops)
}

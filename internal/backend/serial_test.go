package backend

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func TestSerialRunsInOrderAndOnce(t *testing.T) {
	var q Serial
	const n = 500
	var ran []int
	var last Point
	for i := range n {
		p := q.Do(func() error { ran = append(ran, i); return nil })
		if p <= last {
			t.Fatalf("Point %d after %d", p, last)
		}
		last = p
	}
	if err := q.Wait(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	for i, v := range ran {
		if v != i {
			t.Fatalf("job %d ran at place %d", v, i)
		}
	}
	if len(ran) != n || !q.Done(last) || q.Done(last+1) || !q.Done(0) {
		t.Error(len(ran), q.Done(last), q.Done(last+1))
	}
}

func TestSerialKeepsEveryErrorForItsPoint(t *testing.T) {
	var q Serial
	bad := errors.New("bad")
	ok := q.Do(func() error { return nil })
	failed := q.Do(func() error { return bad })
	after := q.Do(func() error { return nil })
	for range 2 {
		for p, want := range map[Point]error{ok: nil, failed: bad, after: nil} {
			if err := q.Wait(t.Context(), p); err != want {
				t.Errorf("Point %d: %v, want %v", p, err, want)
			}
		}
	}
}

func TestAForgottenErrorIsNoSuccess(t *testing.T) {
	var q Serial
	bad := errors.New("bad")
	for range maxFailed + 1 {
		q.Do(func() error { return bad })
	}
	q.Drain()
	if err := q.Wait(t.Context(), 1); err != errForgotten {
		t.Errorf("the oldest error, which is dropped: %v", err)
	}
	if err := q.Wait(t.Context(), 0); err != nil {
		t.Errorf("before all work: %v", err)
	}
	if err := q.Wait(t.Context(), 2); err != bad {
		t.Errorf("the second oldest error: %v", err)
	}
	if len(q.failed) != maxFailed || len(q.order) != maxFailed {
		t.Error(len(q.failed), len(q.order))
	}
}

func TestWaitEndsWithItsContextAndTheWorkGoesOn(t *testing.T) {
	var q Serial
	hold := make(chan struct{})
	p := q.Do(func() error { <-hold; return nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Wait(ctx, p); err != context.Canceled || q.Done(p) {
		t.Errorf("%v, done %v", err, q.Done(p))
	}
	close(hold)
	if err := q.Wait(t.Context(), p); err != nil {
		t.Error(err)
	}
}

func TestNoWaiterIsForgotten(t *testing.T) {
	var q Serial
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 50 {
				p := q.Do(func() error { return nil })
				if err := q.Wait(t.Context(), p); err != nil || !q.Done(p) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

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
	ok := q.Do(func() error { return nil })
	oldest := ok + 1
	for range maxFailed {
		q.Do(func() error { return bad })
	}
	check := func(what string, p Point, want error) {
		t.Helper()
		if err := q.Wait(t.Context(), p); err != want {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	check("the oldest error", oldest, bad)
	q.Do(func() error { return bad })
	q.Drain()
	check("the oldest error, whose text is dropped", oldest, errUntold)
	check("the second oldest error", oldest+1, bad)
	check("before all work", 0, nil)
	check("what went well before all errors", ok, nil)
	for range maxPoints - maxFailed - 1 {
		q.Do(func() error { return bad })
	}
	q.Drain()
	check("the oldest that is known to have failed", oldest, errUntold)
	check("what went well before it", ok, nil)
	q.Do(func() error { return bad })
	q.Drain()
	check("the oldest error, which is dropped", oldest, errForgotten)
	check("what went well before it, which nobody can tell", ok, errForgotten)
	check("the second oldest error", oldest+1, errUntold)
	if len(q.failed) != maxFailed || len(q.order) != maxPoints {
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

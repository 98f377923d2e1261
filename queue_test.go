package fuel_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/require"
)

// unreadable maps a file that is then empty: to copy it fails.
func unreadable(t testing.TB, n int) *fuel.Storage {
	t.Helper()
	if runtime.GOOS == "windows" || runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		require.Skip(t, "truncation", "a mapped file cannot be truncated on "+runtime.GOOS)
	}
	s, f := mapped(t, n)
	t.Cleanup(func() { s.Close() })
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	return s
}

// Queued work that failed is told by Wait; the Storages stay usable.
func TestFailedQueuedCopyLeavesStoragesUsable(t *testing.T) {
	ctx := context.Background()
	src := unreadable(t, 1<<20)
	dst := filled(t, 1<<20, 1)
	defer dst.Close()
	q := value(fuel.QueueOf(fuel.Device{}))(t)
	p := value(q.Copy(dst, src))(t)
	if err := q.Wait(ctx, p); !errors.Is(err, fuel.ErrMapFault) {
		t.Errorf("Wait: %v", err)
	}
	bystander := filled(t, 16, 1)
	defer bystander.Close()
	if err := bystander.UsedUntil(p); err != nil {
		t.Error(err)
	}
	if _, err := bystander.WriteAt([]byte{2}, 0); err != nil {
		t.Errorf("a write to a Storage that p only used: %v", err)
	}
	if err := dst.Fill(ctx, []byte{5}); err != nil {
		t.Errorf("Fill after the failure: %v", err)
	}
	if _, err := dst.ReadAt(make([]byte, 8), 0); err != nil {
		t.Errorf("ReadAt after Fill: %v", err)
	}
}

// Close, and the release of wrapped memory, come after queued work.
func TestWrappedMemoryIsReleasedAfterQueuedWork(t *testing.T) {
	q := value(fuel.QueueOf(fuel.Device{}))(t)
	gate := make(chan struct{})
	value(q.WaitExternal(fuel.External{Done: gate}))(t)
	mem := make([]byte, 100)
	released := make(chan struct{})
	src := value(fuel.Wrap(fuel.U8, mem, func() { close(released) }))(t)
	dst := filled(t, 100, 9)
	p := value(q.Copy(dst, src))(t)
	c := value(dst.Clone())(t)
	src.Close()
	dst.Close()
	select {
	case <-released:
		t.Error("released while work is queued")
	case <-time.After(20 * time.Millisecond):
	}
	if q.Done(p) {
		t.Error("done behind the gate")
	}
	close(gate)
	if err := q.Wait(context.Background(), p); err != nil {
		t.Error(err)
	}
	<-released
	if !all(value(c.Bytes())(t), 0) {
		t.Error("a clone made after the copy was queued does not have it")
	}
	c.Close()
}

// What a queue wrote well is good for ever, whatever fails afterwards.
func TestAGoodQueuedWriteIsNeverForgotten(t *testing.T) {
	bad, scrap := unreadable(t, 16), filled(t, 16, 0)
	defer scrap.Close()
	q := value(fuel.QueueOf(fuel.Device{}))(t)
	read, unread, src := filled(t, 16, 0), filled(t, 16, 0), filled(t, 16, 7)
	defer read.Close()
	defer unread.Close()
	defer src.Close()
	first := value(q.Copy(read, src))(t)
	value(q.Copy(unread, src))(t)
	wantBytes(t, "before", read, bytes.Repeat([]byte{7}, 16))
	var last fuel.Point
	for range 2000 {
		last = value(q.Copy(scrap, bad))(t)
	}
	if err := q.Wait(t.Context(), last); !errors.Is(err, fuel.ErrMapFault) {
		t.Errorf("Wait: %v", err)
	}
	for what, s := range map[string]*fuel.Storage{"read before": read, "not read before": unread} {
		wantBytes(t, what, s, bytes.Repeat([]byte{7}, 16))
		value(s.Bytes())(t)
	}
	if err := q.Wait(t.Context(), first); err != nil {
		t.Errorf("Wait for work that went well: %v", err)
	}
}

// Nobody may take bytes for good that a queue was to write and did not.
func TestAFailedQueuedWriteIsNeverHiddenByAWriteOfPart(t *testing.T) {
	const n = 64 << 10
	ctx := t.Context()
	bad, good := unreadable(t, n), filled(t, n, 7)
	defer good.Close()
	badHalf, half := value(bad.View(0, n/2))(t), value(good.View(0, n/2))(t)
	defer badHalf.Close()
	defer half.Close()
	q := value(fuel.QueueOf(fuel.Device{}))(t)
	second := func(_ any, err error) error { return err }
	for _, wait := range []bool{true, false} {
		for what, write := range map[string]func(dst, v1, v2 *fuel.Storage) error{
			"nothing":    func(_, _, _ *fuel.Storage) error { return nil },
			"WriteAt":    func(dst, _, _ *fuel.Storage) error { return second(dst.WriteAt([]byte{9}, 0)) },
			"FillRange":  func(dst, _, _ *fuel.Storage) error { return dst.FillRange(ctx, 0, n-1, []byte{9}) },
			"CopyFrom":   func(_, _, v2 *fuel.Storage) error { return v2.CopyFrom(ctx, half, nil) },
			"Mutate":     func(_, _, v2 *fuel.Storage) error { return v2.Mutate(func(b []byte) error { b[0] = 9; return nil }) },
			"Queue.Copy": func(_, _, v2 *fuel.Storage) error { return second(q.Copy(v2, half)) },
			"Queue.Zero": func(_, v1, v2 *fuel.Storage) error {
				for range 100 {
					if err := second(q.Zero(v2)); err != nil {
						return err
					}
				}
				return nil
			},
			"itself": func(dst, _, _ *fuel.Storage) error { return second(q.Copy(dst, dst)) },
		} {
			dst := filled(t, n, 1)
			v1, v2 := value(dst.View(0, n/2))(t), value(dst.View(n/2, n/2))(t)
			p := value(q.Copy(v1, badHalf))(t)
			if wait {
				_ = q.Wait(ctx, p)
			}
			if err := write(dst, v1, v2); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			for range 2 {
				_, err := v1.ReadAt(make([]byte, 8), 100)
				wantErr(t, "a read after "+what, err, fuel.ErrMapFault)
				_, err = dst.Bytes()
				wantErr(t, "Bytes after "+what, err, fuel.ErrMapFault)
				wantErr(t, "a copy after "+what, second(dst.Checksum(ctx)), fuel.ErrMapFault)
			}
			for _, s := range []*fuel.Storage{v1, v2, dst} {
				s.Close()
			}
		}
	}
	for what, write := range map[string]func(dst *fuel.Storage) error{
		"WriteAt":      func(dst *fuel.Storage) error { return second(dst.WriteAt(make([]byte, n), 0)) },
		"ReadFrom":     func(dst *fuel.Storage) error { return second(dst.ReadFrom(bytes.NewReader(make([]byte, n)))) },
		"Zero":         func(dst *fuel.Storage) error { return dst.Zero(ctx) },
		"FillRange":    func(dst *fuel.Storage) error { return dst.FillRange(ctx, 0, n, []byte{9}) },
		"CopyFrom":     func(dst *fuel.Storage) error { return dst.CopyFrom(ctx, good, nil) },
		"MutableBytes": func(dst *fuel.Storage) error { return second(dst.MutableBytes()) },
		"Mutate":       func(dst *fuel.Storage) error { return dst.Mutate(func([]byte) error { return nil }) },
		"Queue.Zero":   func(dst *fuel.Storage) error { return second(q.Zero(dst)) },
		"Queue.Copy":   func(dst *fuel.Storage) error { return second(q.Copy(dst, good)) },
	} {
		dst := filled(t, n, 1)
		v1, v2 := value(dst.View(0, n/2))(t), value(dst.View(n/2, n/2))(t)
		value(q.Copy(v1, badHalf))(t)
		value(q.Zero(v2))(t)
		if err := write(dst); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := v1.ReadAt(make([]byte, 8), 100); err != nil {
			t.Errorf("a read after %s of all bytes: %v", what, err)
		}
		for _, s := range []*fuel.Storage{v1, v2, dst} {
			s.Close()
		}
	}
}

// A context bounds every wait for others: of the queue, of a Mutate, of another
// private copy.
func TestNoWaitForOthersOutlivesItsContext(t *testing.T) {
	const n = 4096
	second := func(_ any, err error) error { return err }
	late := func(t *testing.T, what string, op func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- op(ctx) }()
		select {
		case err := <-done:
			wantErr(t, what, err, context.DeadlineExceeded)
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: still waits", what)
		}
	}
	t.Run("queue", func(t *testing.T) {
		q := value(fuel.QueueOf(cpu))(t)
		s, d := must(t)(filled(t, n, 1), nil), must(t)(filled(t, n, 2), nil)
		gate := make(chan struct{})
		value(q.WaitExternal(fuel.External{Done: gate}))(t)
		p := value(q.Zero(s))(t)
		for what, op := range map[string]func(ctx context.Context) error{
			"CopyFrom":         func(ctx context.Context) error { return d.CopyFrom(ctx, s, nil) },
			"CopyFrom to it":   func(ctx context.Context) error { return s.CopyFrom(ctx, d, nil) },
			"CopyRange":        func(ctx context.Context) error { return s.CopyRange(ctx, 0, s, 10, 10, nil) },
			"Zero":             func(ctx context.Context) error { return s.Zero(ctx) },
			"Fill":             func(ctx context.Context) error { return s.Fill(ctx, []byte{1}) },
			"FillRange":        func(ctx context.Context) error { return s.FillRange(ctx, 1, 1, []byte{1}) },
			"Checksum":         func(ctx context.Context) error { return second(s.Checksum(ctx)) },
			"Equal":            func(ctx context.Context) error { return second(s.Equal(ctx, d)) },
			"Equal the second": func(ctx context.Context) error { return second(d.Equal(ctx, s)) },
			"Convert":          func(ctx context.Context) error { return second(fuel.Convert(ctx, s, fuel.F32, nil)) },
		} {
			late(t, what, op)
		}
		close(gate)
		if err := q.Wait(t.Context(), p); err != nil {
			t.Error(err)
		}
		wantBytes(t, "after waits that were given up", s, make([]byte, n))
	})
	t.Run("Mutate", func(t *testing.T) {
		s := must(t)(filled(t, n, 1), nil)
		inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(left)
			if err := s.Mutate(func([]byte) error { close(inside); <-leave; return nil }); err != nil {
				t.Error(err)
			}
		}()
		<-inside
		cloned := make(chan error, 1)
		go func() { // another who waits is not given up with it
			c, err := s.Clone()
			if err == nil {
				err = c.Close()
			}
			cloned <- err
		}()
		for range 3 {
			late(t, "To", func(ctx context.Context) error { return second(s.To(ctx, cpu, nil)) })
			late(t, "Convert", func(ctx context.Context) error { return second(fuel.Convert(ctx, s, fuel.U8, nil)) })
		}
		close(leave)
		<-left
		if err := <-cloned; err != nil {
			t.Error(err)
		}
		if r := s.Region(); r.Owners != 1 {
			t.Errorf("%d owners are left", r.Owners)
		}
	})
	t.Run("private copy", func(t *testing.T) {
		s := must(t)(filled(t, n, 1), nil)
		must(t)(s.Clone())
		release := fuel.HoldPrivateCopies(s)
		for what, op := range map[string]func(ctx context.Context) error{
			"CopyRange": func(ctx context.Context) error { return s.CopyRange(ctx, 0, s, 10, 10, nil) },
			"Zero":      func(ctx context.Context) error { return s.Zero(ctx) },
			"FillRange": func(ctx context.Context) error { return s.FillRange(ctx, 1, 1, []byte{1}) },
		} {
			late(t, what, op)
		}
		release()
		if err := s.Zero(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A wait that is given up just when it is over is neither lost nor counted twice.
func TestGivenUpClonesLeaveNoOwner(t *testing.T) {
	s := must(t)(filled(t, 64, 1), nil)
	stop := time.Now().Add(200 * time.Millisecond)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for time.Now().Before(stop) {
				if err := s.Mutate(func([]byte) error { time.Sleep(20 * time.Microsecond); return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 4 {
		wg.Go(func() {
			for time.Now().Before(stop) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
				c, err := s.To(ctx, cpu, nil)
				cancel()
				if err == nil {
					err = c.Close()
				}
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if r := s.Region(); r.Owners != 1 {
		t.Errorf("%d owners are left", r.Owners)
	}
	if err := s.Zero(t.Context()); err != nil {
		t.Error(err)
	}
}

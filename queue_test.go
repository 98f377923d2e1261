package fuel_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/require"
)

// Queued work that failed is told by Wait; the Storages stay usable.
func TestFailedQueuedCopyLeavesStoragesUsable(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "js" || runtime.GOOS == "wasip1" {
		require.Skip(t, "truncation", "a mapped file cannot be truncated on "+runtime.GOOS)
	}
	ctx := context.Background()
	src, f := mapped(t, 1<<20)
	defer src.Close()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
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

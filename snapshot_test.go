package fuel_test

import (
	"bytes"
	"testing"

	"github.com/go-fuel/fuel"
)

// Close may come while a read runs, and what is written to the original must
// not be seen by that read: the clone is a snapshot until its last reader is
// done, not until its Close.
func TestReadOfClosedCloneNeverSeesWriteToOriginal(t *testing.T) {
	for _, n := range []int{100, 1 << 20} {
		a := filled(t, n, 1)
		b := value(a.Clone())(t)
		err := b.Use(func(p []byte) error {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			fill(t, a, 2)
			if !all(p, 1) {
				t.Errorf("%d bytes: the running read of the clone sees %d", n, p[0])
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if got := value(a.Bytes())(t); !all(got, 2) {
			t.Errorf("the original has %d", got[0])
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A clone that gets a private copy while one of its reads runs leaves that
// read behind on the old memory, which then has one owner: the original.
func TestReadOfRewrittenCloneNeverSeesWriteToOriginal(t *testing.T) {
	a := filled(t, 1<<20, 1)
	defer a.Close()
	b := value(a.Clone())(t)
	defer b.Close()
	tail := value(b.View(1<<19, 1<<19))(t)
	defer tail.Close()
	head := value(b.View(0, 1<<19))(t)
	defer head.Close()
	err := head.Use(func(p []byte) error {
		fill(t, tail, 3) // disjoint from what is read
		fill(t, a, 2)
		if !all(p, 1) {
			t.Errorf("the running read of the clone sees %d", p[0])
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// As above, for WriteTo.
func TestWriteToOfClosedCloneNeverSeesWriteToOriginal(t *testing.T) {
	a := filled(t, 4<<20, 1)
	defer a.Close()
	b := value(a.Clone())(t)
	w := &onFirstWrite{f: func() {
		_ = b.Close()
		fill(t, a, 2)
	}}
	if _, err := b.WriteTo(w); err != nil {
		t.Fatal(err)
	}
	if !all(w.Bytes(), 1) {
		t.Error("the copy is torn")
	}
}

type onFirstWrite struct {
	bytes.Buffer
	f func()
}

func (w *onFirstWrite) Write(p []byte) (int, error) {
	if w.f != nil {
		w.f()
		w.f = nil
	}
	return w.Buffer.Write(p)
}

// The last owner writes in place where no read is left: no copy.
func TestLastOwnerWritesInPlace(t *testing.T) {
	a := filled(t, 1<<20, 1)
	defer a.Close()
	b := value(a.Clone())(t)
	if err := b.Use(func([]byte) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	before := value(fuel.MemStats(fuel.Device{}))(t).PrivateCopies
	err := a.Use(func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	fill(t, a, 2)
	// A read of its own does not make a sole owner copy.
	c := filled(t, 1<<20, 1)
	defer c.Close()
	err = c.Use(func(p []byte) error {
		fill(t, c, 2)
		if !all(p, 2) {
			t.Error("a write moved memory that nobody shares")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := value(fuel.MemStats(fuel.Device{}))(t).PrivateCopies - before; got != 0 {
		t.Errorf("%d private copies", got)
	}
}

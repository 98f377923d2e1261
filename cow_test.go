package fuel_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
)

func privateCopies(t testing.TB) int64 {
	t.Helper()
	stats, err := fuel.MemStats(cpu)
	if err != nil {
		t.Fatal(err)
	}
	return stats.PrivateCopies
}

// unsealed reports whether s is in shared memory that is not sealed, which is
// never moved to a private copy: its clones are.
func unsealed(s *fuel.Storage) bool {
	r := s.Region()
	return r.Memory == fuel.MemoryShared && !r.Sealed
}

// Report 41: a clone of pinned memory failed. It must work on every kind.
func TestClonesOfEveryMemoryAreIndependent(t *testing.T) {
	each(t, 300, func(t *testing.T, s *fuel.Storage, want []byte) {
		c := must(t)(s.Clone())
		cc := must(t)(c.Clone())
		if _, err := c.WriteAt([]byte{0xFF}, 5); err != nil {
			t.Fatal(err)
		}
		changed := bytes.Clone(want)
		changed[5] = 0xFF
		wantBytes(t, "the clone that was written", c, changed)
		wantBytes(t, "the original", s, want)
		wantBytes(t, "the clone's clone", cc, want)
		if err := s.Zero(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantBytes(t, "the original, cleared", s, make([]byte, len(want)))
		wantBytes(t, "the clone, after the original was cleared", c, changed)
		wantBytes(t, "the clone's clone, after the original was cleared", cc, want)
	})
}

func TestReadingViewingAndCloningNeverCopy(t *testing.T) {
	each(t, 300, func(t *testing.T, s *fuel.Storage, want []byte) {
		if unsealed(s) {
			return // other processes write: only a copy is a clone
		}
		before := privateCopies(t)
		c := must(t)(s.Clone())
		v := must(t)(c.View(10, 20))
		vc := must(t)(v.Clone())
		wantBytes(t, "a clone of a view", vc, want[10:30])
		if _, err := c.Bytes(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Checksum(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := privateCopies(t) - before; n != 0 {
			t.Errorf("%d private copies", n)
		}
	})
}

func TestTheLastOwnerWritesInPlace(t *testing.T) {
	s := must(t)(fuel.FromBytes(cpu, fuel.U8, count(100)))
	c := must(t)(s.Clone())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := privateCopies(t)
	if _, err := c.WriteAt([]byte{1}, 0); err != nil {
		t.Fatal(err)
	}
	if n := privateCopies(t) - before; n != 0 {
		t.Errorf("%d private copies", n)
	}
}

func TestAWriteThroughAViewIsSeen(t *testing.T) {
	each(t, 300, func(t *testing.T, s *fuel.Storage, want []byte) {
		v := must(t)(s.View(100, 50))
		vv := must(t)(v.View(10, 10))
		write := func(h *fuel.Storage, off int, b byte) {
			t.Helper()
			if _, err := h.WriteAt([]byte{b}, int64(off)); err != nil {
				t.Fatal(err)
			}
		}
		check := func(when string) {
			t.Helper()
			wantBytes(t, when, s, want)
			wantBytes(t, when, v, want[100:150])
			wantBytes(t, when, vv, want[110:120])
		}
		write(vv, 3, 0xF1)
		want[113] = 0xF1
		check("a write through a view of a view")
		clone := must(t)(s.Clone())
		snapshot := bytes.Clone(want)
		write(v, 0, 0xF2)
		want[100] = 0xF2
		check("a write that made a private copy")
		write(s, 119, 0xF3)
		want[119] = 0xF3
		check("a write after the private copy")
		wantBytes(t, "the clone", clone, snapshot)
	})
}

func TestTheCloneOfAViewHasOnlyItsBytes(t *testing.T) {
	s := must(t)(fuel.FromBytes(cpu, fuel.U8, count(1000)))
	c := must(t)(must(t)(s.View(100, 7)).Clone())
	if _, err := c.WriteAt([]byte{1}, 6); err != nil {
		t.Fatal(err)
	}
	if r := c.Region(); r.Bytes >= 7+64 || r.Owners != 1 {
		t.Errorf("%+v", r)
	}
	if r := s.Region(); r.Owners != 1 {
		t.Errorf("the original has %d owners", r.Owners)
	}
	want := count(1000)[100:107]
	want[6] = 1
	wantBytes(t, "the clone", c, want)
	inner := must(t)(c.View(2, 3))
	wantBytes(t, "a view of the clone", inner, want[2:5])
}

// Report 39, first half: one private copy, every byte right.
func TestParallelWritesMakeOnePrivateCopy(t *testing.T) {
	const writers, length = 16, 4096
	for name, open := range memories {
		t.Run(name, func(t *testing.T) {
			s := open(t, make([]byte, writers*length))
			clone := must(t)(s.Clone())
			before := privateCopies(t)
			var wg sync.WaitGroup
			start := make(chan struct{})
			for i := range writers {
				wg.Go(func() {
					<-start
					if _, err := s.WriteAt(bytes.Repeat([]byte{byte(i + 1)}, length), int64(i*length)); err != nil {
						t.Error(err)
					}
				})
			}
			close(start)
			wg.Wait()
			want := int64(1)
			if unsealed(s) {
				want = 0
			}
			if n := privateCopies(t) - before; n != want {
				t.Errorf("%d private copies", n)
			}
			for i, b := range contents(t, s) {
				if b != byte(i/length+1) {
					t.Fatalf("byte %d is %d", i, b)
				}
			}
			wantBytes(t, "the clone", clone, make([]byte, writers*length))
		})
	}
}

func TestVersionAndIDTellContentsApart(t *testing.T) {
	s := must(t)(fuel.Alloc(cpu, fuel.U8, 100, nil))
	v := must(t)(s.View(0, 10))
	id, version := s.ID(), s.Version()
	if v.ID() != id || s.ID() != id {
		t.Error("a view has another ID than its storage")
	}
	for what, mutate := range map[string]func() error{
		"WriteAt":      func() error { _, err := v.WriteAt([]byte{1}, 0); return err },
		"Zero":         func() error { return s.Zero(t.Context()) },
		"MutableBytes": func() error { _, err := s.MutableBytes(); return err },
		"Mutate":       func() error { return s.Mutate(func([]byte) error { return nil }) },
	} {
		if err := mutate(); err != nil {
			t.Fatal(err)
		}
		if now := s.Version(); now <= version || v.Version() != now {
			t.Errorf("%s: version %d after %d", what, now, version)
		}
		version = s.Version()
	}
	if s.ID() != id {
		t.Error("a write in place changed the ID")
	}
	c := must(t)(s.Clone())
	if c.ID() == id {
		t.Error("a clone has the ID of its original")
	}
	if _, err := s.WriteAt([]byte{1}, 0); err != nil {
		t.Fatal(err)
	}
	if s.ID() == id {
		t.Error("a private copy kept the ID")
	}
	seen := map[uint64]bool{}
	for range 100 {
		x := must(t)(s.Clone())
		if seen[x.ID()] {
			t.Fatal("an ID came twice")
		}
		seen[x.ID()] = true
		x.Close()
	}
}

// soon waits for something that must come, and for a moment where it must not.
func soon(c <-chan struct{}, must bool) bool {
	d := 50 * time.Millisecond
	if must {
		d = 30 * time.Second
	}
	select {
	case <-c:
		return true
	case <-time.After(d):
		return false
	}
}

func TestACloneWaitsForMutate(t *testing.T) {
	s := must(t)(fuel.FromBytes(cpu, fuel.U8, []byte{1, 2}))
	inside, leave, cloned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Mutate(func(b []byte) error {
			b[0] = 9
			close(inside)
			<-leave
			b[1] = 9
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-inside
	var c *fuel.Storage
	wg.Go(func() {
		var err error
		if c, err = s.Clone(); err != nil {
			t.Error(err)
		}
		close(cloned)
	})
	if soon(cloned, false) {
		t.Error("Clone did not wait")
	}
	close(leave)
	if !soon(cloned, true) {
		t.Fatal("Clone waits for ever")
	}
	wg.Wait()
	wantBytes(t, "the clone", must(t)(c, nil), []byte{9, 9})
}

func TestASliceIsTheOwnersUntilTheNextClone(t *testing.T) {
	s := must(t)(fuel.FromBytes(cpu, fuel.U8, []byte{1, 2}))
	b, err := s.MutableBytes()
	if err != nil {
		t.Fatal(err)
	}
	b[0] = 9
	wantBytes(t, "a write through the slice", s, []byte{9, 2})
	c := must(t)(s.Clone())
	again, err := s.MutableBytes() // what the rule asks for after a Clone
	if err != nil {
		t.Fatal(err)
	}
	again[1] = 9
	wantBytes(t, "a write through the new slice", s, []byte{9, 9})
	wantBytes(t, "the clone", c, []byte{9, 2})
}

func TestCloseDuringUseKeepsTheMemory(t *testing.T) {
	each(t, 1<<20, func(t *testing.T, s *fuel.Storage, want []byte) {
		before, _ := fuel.MemStats(cpu)
		for what, use := range map[string]func(*fuel.Storage, func([]byte) error) error{
			"Use": (*fuel.Storage).Use, "Mutate": (*fuel.Storage).Mutate,
		} {
			h := must(t)(s.Clone())
			if what == "Mutate" { // with memory of its own, which Close would free
				if _, err := h.WriteAt(want[:1], 0); err != nil {
					t.Fatal(err)
				}
			}
			err := h.Use(func([]byte) error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			if err := use(h, func(b []byte) error {
				done := make(chan error)
				go func() { done <- h.Close() }()
				if err := <-done; err != nil {
					return err
				}
				if !bytes.Equal(b, want) {
					return errors.New("the bytes changed")
				}
				return nil
			}); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if after, _ := fuel.MemStats(cpu); after.InUse != before.InUse {
			t.Errorf("%d bytes are left", after.InUse-before.InUse)
		}
	})
}

func TestMemoryGoesWithTheLastHandle(t *testing.T) {
	var released atomic.Int64
	s := must(t)(fuel.Wrap(fuel.U8, make([]byte, 100), func() { released.Add(1) }))
	v := must(t)(s.View(1, 2))
	c := must(t)(v.Clone())
	cv := must(t)(c.View(0, 1))
	for i, h := range []*fuel.Storage{s, c, v, cv} {
		if n := released.Load(); n != 0 {
			t.Fatalf("released %d times with %d handles open", n, 4-i)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := released.Load(); n != 1 {
		t.Errorf("released %d times", n)
	}
	// With a private copy the wrapped memory is not needed any more.
	s = must(t)(fuel.Wrap(fuel.U8, make([]byte, 100), func() { released.Add(1) }))
	c = must(t)(s.Clone())
	if _, err := s.WriteAt([]byte{1}, 0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if n := released.Load(); n != 2 {
		t.Errorf("released %d times after the last owner moved away", n)
	}
}

// Report 39, second half: N goroutines clone and write, and each clone sees
// its own writes and nobody else's.
func TestClonesInManyGoroutinesSeeOnlyTheirOwnWrites(t *testing.T) {
	const goroutines, rounds = 16, 60
	for name, open := range memories {
		t.Run(name, func(t *testing.T) {
			want := count(257)
			s := open(t, want)
			var wg sync.WaitGroup
			for g := range goroutines {
				wg.Go(func() {
					for i := range rounds {
						if err := cloneAndWrite(s, want, byte(g), i); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			wantBytes(t, "the original", s, want)
		})
	}
}

func cloneAndWrite(s *fuel.Storage, want []byte, mark byte, i int) error {
	c, err := s.Clone()
	if err != nil {
		return err
	}
	defer c.Close()
	off := i % len(want)
	if _, err := c.WriteAt([]byte{mark}, int64(off)); err != nil {
		return err
	}
	mine := bytes.Clone(want)
	mine[off] = mark
	return c.Use(func(b []byte) error {
		if !bytes.Equal(b, mine) {
			return fmt.Errorf("a clone saw another's write")
		}
		return nil
	})
}

func TestBundlesAreInsideDisjointAndAligned(t *testing.T) {
	specs := []fuel.SlotSpec{
		{Name: "values", DType: fuel.F32, Len: 3},
		{Name: "none", DType: fuel.F64, Len: 0},
		{Name: "bits", DType: fuel.U1, Len: 13},
		{Name: "blocks", DType: fuel.F32, Len: 64, Encoding: fuel.GGMLBlock(fuel.GGMLQ8_0)},
		{Name: "nibbles", DType: fuel.F4E2M1, Len: 129},
	}
	s := must(t)(fuel.Compose(cpu, specs))
	b := s.Bundle()
	end := 0
	for i, spec := range specs {
		slot := b.Slot(i)
		size, err := spec.Encoding.Bytes(spec.DType, spec.Len)
		if err != nil {
			t.Fatal(err)
		}
		if slot.SlotSpec != spec || slot.Bytes != size || slot.Offset < end || slot.Offset%64 != 0 || slot.Offset+size > s.LenBytes() {
			t.Errorf("slot %d: %+v, the one before ends at %d, all %d bytes", i, slot, end, s.LenBytes())
		}
		end = slot.Offset + slot.Bytes
		h := must(t)(s.Slot(spec.Name))
		if h.DType() != spec.DType || h.Encoding() != spec.Encoding || h.Len() != spec.Len || h.LenBytes() != size || h.Alignment() < 64 {
			t.Errorf("slot %q: %d %s %s in %d bytes, aligned to %d", spec.Name, h.Len(), h.Encoding(), h.DType(), h.LenBytes(), h.Alignment())
		}
		if err := h.Fill(t.Context(), []byte{byte(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	all := contents(t, s)
	for i := range specs {
		slot := b.Slot(i)
		for _, v := range all[slot.Offset:][:slot.Bytes] {
			if v != byte(i+1) {
				t.Fatalf("slot %d was written by a neighbour", i)
			}
		}
	}
	clone := must(t)(s.Clone())
	if clone.Bundle() != b {
		t.Error("the clone of a bundle is none")
	}
	first := must(t)(clone.SlotAt(0))
	if v, err := fuel.Slice[float32](first); len(v) != 3 || err != nil {
		t.Error(v, err)
	}
	taken := must(t)(must(t)(s.Clone()).Take())
	if taken.Bundle() != b {
		t.Error("the taken bundle is none")
	}
}

func TestBadBundlesAreRefused(t *testing.T) {
	for what, specs := range map[string][]fuel.SlotSpec{
		"a name twice":    {{Name: "a", DType: fuel.U8, Len: 1}, {Name: "a", DType: fuel.U8, Len: 1}},
		"no name":         {{DType: fuel.U8, Len: 1}},
		"part of a block": {{Name: "a", DType: fuel.F32, Len: 1, Encoding: fuel.GGMLBlock(fuel.GGMLQ8_0)}},
	} {
		_, err := fuel.Compose(cpu, specs)
		wantErr(t, what, err, fuel.ErrMismatch)
	}
	_, err := fuel.Compose(cpu, []fuel.SlotSpec{{Name: "a", Len: 1}})
	wantErr(t, "no dtype", err, fuel.ErrUnknownDType)
	s := must(t)(fuel.Compose(cpu, []fuel.SlotSpec{{Name: "a", DType: fuel.U8, Len: 1}}))
	_, err = s.Slot("b")
	wantErr(t, "no such slot", err, fuel.ErrMismatch)
	_, err = s.SlotAt(1)
	wantErr(t, "no slot 1", err, fuel.ErrRange)
	plain := must(t)(fuel.Alloc(cpu, fuel.U8, 1, nil))
	_, err = plain.SlotAt(0)
	wantErr(t, "no bundle", err, fuel.ErrRange)
	if plain.Bundle().Len() != 0 {
		t.Error("a plain storage has slots")
	}
}

package fueltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/check"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
)

// The tests of this file are named after what they forbid: faults that users
// of other libraries reported.

// TestZeroLengthNeverReachesTheDriver: drivers refuse 0 bytes (candle#2034,
// candle#2327, cudarc#194, dfdx#870).
func TestZeroLengthNeverReachesTheDriver(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{})
	dev := f.Device(0)
	x := &subject{TB: t, dev: dev, ctx: ctx}
	empty := x.must(fuel.Compose(dev, []fuel.SlotSpec{{Name: "all", DType: fuel.U8, Len: 0}}))
	other := x.must(fuel.Compose(dev, []fuel.SlotSpec{{Name: "all", DType: fuel.U8, Len: 0}}))
	for name, use := range x.uses() {
		err := use(empty, other)
		if err != nil && err != io.EOF && !errors.Is(err, fuel.ErrRange) { // some use the first element
			t.Errorf("%s of an empty Storage: %v", name, err)
		}
	}
	x.close(empty, other)
	for op := range numOps {
		if n := f.Calls(op); n > 0 && op != OpProbe && op != OpOpen {
			t.Errorf("the driver got %d calls of %s", n, op)
		}
	}
	if n := f.ZeroLength(); n > 0 {
		t.Errorf("the driver got %d calls of length zero", n)
	}
}

// TestEmptyTensorIsNoError: tensors with a dimension of zero must load
// (llama.cpp#25596, llama.cpp#9466) and be transferred (tinygrad#1498,
// pytorch#159892, onnxruntime#27450).
func TestEmptyTensorIsNoError(t *testing.T) {
	LeakCheck(t)
	for _, opt := range []FakeOptions{{Devices: 2}, {Devices: 2, NonCoherent: true}, {Devices: 2, Unified: true}} {
		t.Run(describe(opt), func(t *testing.T) {
			f := Register(t, fuel.Metal, opt)
			for _, from := range []fuel.Device{{}, f.Device(0)} {
				for _, to := range []fuel.Device{{}, f.Device(0), f.Device(1)} {
					s := must[*fuel.Storage](t)(fuel.FromSlice(from, []float32{}))
					var report fuel.CopyReport
					there, err := s.To(ctx, to, &fuel.CopyOptions{Report: &report})
					if err != nil {
						t.Fatalf("an empty tensor from %s to %s: %v", from, to, err)
					}
					if there.Device() != to || there.Len() != 0 || there.DType() != fuel.F32 || report.Bytes != 0 {
						t.Errorf("an empty tensor from %s to %s: %d %s on %s, %+v", from, to, there.Len(), there.DType(), there.Device(), report)
					}
					if err := errors.Join(s.Close(), there.Close()); err != nil {
						t.Error(err)
					}
				}
			}
			if n, _ := f.Live(); n != 0 || f.Calls(OpAlloc) != 0 {
				t.Errorf("%d allocations for empty tensors", f.Calls(OpAlloc))
			}
		})
	}
}

// TestPrivateCopyNeverGoesThroughTheHost: copy-on-write did a host memcpy on a
// device pointer (pytorch#100818).
func TestPrivateCopyNeverGoesThroughTheHost(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{})
	s := bytesOn(t, f.Device(0), 10000, 1)
	c := must[*fuel.Storage](t)(s.Clone())
	defer c.Close()
	for _, op := range []Op{OpAlloc, OpUpload} {
		if n := f.Calls(op); n != 1 {
			t.Errorf("%d calls of %s before the write, want 1: Clone is O(1)", n, op)
		}
	}
	if err := c.FillRange(ctx, 5, 1, []byte{2}); err != nil {
		t.Fatal(err)
	}
	for op, want := range map[Op]int{OpAlloc: 2, OpCopy: 1, OpFill: 1, OpUpload: 1, OpDownload: 0} {
		if n := f.Calls(op); n != want {
			t.Errorf("%d calls of %s, want %d", n, op, want)
		}
	}
	mustHold(t, s, 1)
}

// TestCloneWorksForEveryKindOfMemory: lazy clones failed for pinned memory
// (pytorch#132485).
func TestCloneWorksForEveryKindOfMemory(t *testing.T) {
	LeakCheck(t)
	f := Register(t, fuel.CUDA, FakeOptions{})
	released := 0
	x := &subject{TB: t, dev: f.Device(0), ctx: ctx, rng: newRand(1)}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, bytes.Repeat([]byte{7}, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	kinds := map[fuel.MemoryKind]func() *fuel.Storage{
		fuel.MemoryAnonymous: func() *fuel.Storage {
			return x.must(fuel.FromBytes(fuel.Device{}, fuel.U8, bytes.Repeat([]byte{7}, 1<<20)))
		},
		fuel.MemoryMapped: func() *fuel.Storage {
			f, err := os.Open(file)
			x.ok(err)
			defer f.Close()
			return x.must(fuel.Map(f, fuel.U8, 1, 999))
		},
		fuel.MemoryWrapped: func() *fuel.Storage {
			return x.must(fuel.Wrap(fuel.U8, bytes.Repeat([]byte{7}, 1000), func() { released++ }))
		},
		fuel.MemoryDevice: func() *fuel.Storage { return x.from(bytes.Repeat([]byte{7}, 1000)) },
	}
	for kind, open := range kinds {
		s := open()
		got := s.Region().Memory
		switch { // where there is but one kind of memory
		case race.Enabled && kind == fuel.MemoryAnonymous:
			kind = fuel.MemoryHeap
		case check.On() && kind == fuel.MemoryHeap:
			kind = fuel.MemoryAnonymous
		}
		if got != kind && kind != fuel.MemoryMapped {
			t.Errorf("memory is %s, want %s", got, kind)
		}
		c, err := s.Clone()
		if err != nil {
			t.Errorf("Clone of %s memory: %v", kind, err)
			continue
		}
		if c.Region() != s.Region() || c.Region().Owners != 2 {
			t.Errorf("Clone of %s memory copied: %+v and %+v", kind, s.Region(), c.Region())
		}
		x.ok(c.Zero(ctx))
		mustHold(t, s, 7)
		mustHold(t, c, 0)
		d := x.must(s.Clone())
		x.ok(s.Fill(ctx, []byte{9})) // the original writes
		mustHold(t, d, 7)
		mustHold(t, s, 9)
		x.close(s, c, d)
	}
	if released != 1 {
		t.Errorf("wrapped memory was released %d times", released)
	}
}

// TestMemoryIsNotReusedBeforeItsPoint: a pool gave out a buffer that the GPU
// still read (mlx#3868).
func TestMemoryIsNotReusedBeforeItsPoint(t *testing.T) {
	const n = 4096
	for _, opt := range []FakeOptions{{Memory: 3 * n}, {Memory: 3 * n, Lazy: true}, {Memory: 3 * n, NonCoherent: true}} {
		t.Run(describe(opt), func(t *testing.T) {
			f := Register(t, fuel.CUDA, opt)
			dev := f.Device(0)
			src, dst, seen := bytesOn(t, dev, n, 1), bytesOn(t, dev, n, 2), bytesOn(t, dev, n, 3)
			at := must[place](t)(fuel.Visit(src, places{})).address
			q := must[*fuel.Queue](t)(fuel.QueueOf(dev))

			f.Hold()
			p := must[fuel.Point](t)(q.Copy(dst, src))
			if err := errors.Join(src.Close(), seen.UsedUntil(p), seen.Close()); err != nil {
				t.Fatal(err)
			}
			if _, used := f.Live(); used != 3*n {
				t.Errorf("%d bytes are live while queued work uses %d", used, 3*n)
			}
			if _, err := fuel.AllocUninit(dev, fuel.U8, n, nil); !errors.Is(err, fuel.ErrOutOfMemory) {
				t.Fatalf("memory that queued work uses was given out, or: %v", err)
			}
			f.Release()

			if err := q.Wait(ctx, p); err != nil {
				t.Fatal(err)
			}
			mustHold(t, dst, 1)
			// Now it is free, and reused.
			addresses := map[uint64]bool{}
			for range 2 {
				s := must[*fuel.Storage](t)(fuel.AllocUninit(dev, fuel.U8, n, nil))
				defer s.Close()
				addresses[must[place](t)(fuel.Visit(s, places{})).address] = true
			}
			if !addresses[at] {
				t.Errorf("memory at %#x was not reused: the test proves nothing", at)
			}
		})
	}
}

// TestWrappedMemoryIsNotReleasedBeforeItsPoint is the same on the CPU, where
// memory is given back by a callback.
func TestWrappedMemoryIsNotReleasedBeforeItsPoint(t *testing.T) {
	LeakCheck(t)
	q := must[*fuel.Queue](t)(fuel.QueueOf(fuel.Device{}))
	var released atomic.Int32
	s := must[*fuel.Storage](t)(fuel.Wrap(fuel.U8, bytes.Repeat([]byte{7}, 100), func() { released.Add(1) }))
	dst := bytesOn(t, fuel.Device{}, 100, 0)
	start := make(chan struct{})
	must[fuel.Point](t)(q.WaitExternal(fuel.External{Done: start}))
	p := must[fuel.Point](t)(q.Copy(dst, s))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Millisecond)
	if released.Load() != 0 {
		t.Error("memory was released that queued work reads")
	}
	close(start)
	if err := q.Wait(ctx, p); err != nil {
		t.Fatal(err)
	}
	mustHold(t, dst, 7)
	if !patiently(func() bool { return released.Load() == 1 }) {
		t.Errorf("memory was released %d times", released.Load())
	}
}

// TestClosedDriverIsATypedError: a pool outlived its context
// (stark-backend#388).
func TestClosedDriverIsATypedError(t *testing.T) {
	LeakCheck(t)
	f := Register(t, fuel.Vulkan, FakeOptions{})
	dev := f.Device(0)
	x := &subject{TB: t, dev: dev, ctx: ctx}
	model := bytes.Repeat([]byte{1}, 64)
	slot := []fuel.SlotSpec{{Name: "all", DType: fuel.U8, Len: 64}}
	s, other := x.must(fuel.Compose(dev, slot)), x.must(fuel.Compose(dev, slot))
	view, clone := x.must(s.View(1, 3)), x.must(s.Clone())
	host := x.must(fuel.FromBytes(fuel.Device{}, fuel.U8, model))
	uses := x.uses()
	q := x.queue()
	p := x.queued(q.Zero(other))

	restore := backend.Replace(backend.Vulkan, nil) // closes the driver
	defer restore()
	if n := f.Calls(OpClose); n != 1 {
		t.Fatalf("the device was closed %d times", n)
	}
	typed := func(err error) bool {
		return errors.Is(err, fuel.ErrDeviceLost) || errors.Is(err, fuel.ErrUnavailable)
	}
	// These need no device.
	bookkeeping := map[string]bool{
		"Clone": true, "View": true, "View of nothing": true, "Reinterpret": true, "ReinterpretAs": true,
		"To the same": true, "Slot": true, "SlotAt": true, "ReadAt of nothing": true, "WriteAt of nothing": true,
		"FillRange of nothing": true, "CopyRange of nothing": true, "UsedUntil": true, "Visit": true,
	}
	for name, use := range uses {
		if err := use(s, other); !typed(err) && !(err == nil && bookkeeping[name]) {
			t.Errorf("%s after the driver was closed: %v", name, err)
		}
	}
	if err := host.CopyFrom(ctx, clone, nil); !typed(err) {
		t.Errorf("download after the driver was closed: %v", err)
	}
	mustHold(t, host, 1) // not zeros
	if err := q.Wait(ctx, p); err != nil && !typed(err) {
		t.Errorf("Wait after the driver was closed: %v", err)
	}
	_, err := fuel.Alloc(dev, fuel.U8, 1, nil)
	x.is(err, fuel.ErrUnavailable, "Alloc after the driver was closed")
	for _, h := range []*fuel.Storage{s, other, view, clone, host} {
		if err := h.Close(); err != nil {
			t.Errorf("Close after the driver was closed: %v", err)
		}
	}
	if n, _ := f.Live(); n != 0 {
		t.Errorf("%d allocations after all was closed", n)
	}
}

// TestSecondCloseIsAnErrorAndFreesNothing: ownership was unclear (dlpack#51,
// pytorch#9297), and over-release was silent (arrow#35232, arrow#43791).
func TestSecondCloseIsAnErrorAndFreesNothing(t *testing.T) {
	f := Register(t, fuel.Vulkan, FakeOptions{})
	for _, dev := range []fuel.Device{{}, f.Device(0)} {
		s := must[*fuel.Storage](t)(fuel.FromBytes(dev, fuel.U8, bytes.Repeat([]byte{5}, 100)))
		v := must[*fuel.Storage](t)(s.View(0, 100))
		c := must[*fuel.Storage](t)(s.Clone())
		var closed atomic.Int32
		each(8, func(int) {
			switch err := s.Close(); {
			case err == nil:
				closed.Add(1)
			case !errors.Is(err, fuel.ErrClosed):
				t.Errorf("Close: %v", err)
			}
		})
		if closed.Load() != 1 {
			t.Errorf("%d of 8 calls of Close on one handle succeeded", closed.Load())
		}
		mustHold(t, v, 5)
		mustHold(t, c, 5)
		if err := errors.Join(v.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		for _, h := range []*fuel.Storage{s, v, c} {
			if err := h.Close(); !errors.Is(err, fuel.ErrClosed) {
				t.Errorf("second Close: %v", err)
			}
		}
	}
	if frees, allocs := f.Calls(OpFree), f.Calls(OpAlloc); frees != allocs {
		t.Errorf("%d frees for %d allocations", frees, allocs)
	}
}

// TestFailedCallLeavesEverythingAsItWas: a failed allocation led to a double
// free (llama.cpp#15256). Every call of every operation fails once.
func TestFailedCallLeavesEverythingAsItWas(t *testing.T) {
	LeakCheck(t)
	const n = 1000
	old := bytes.Repeat([]byte{1}, n)
	type state struct {
		f              *Fake
		q              *fuel.Queue
		dev            fuel.Device
		src, host, big *fuel.Storage
	}
	// An operation gets a Storage that shares its memory, and leaves nothing
	// but that.
	closing := func(s *fuel.Storage, err error) error {
		if err != nil {
			return err
		}
		return s.Close()
	}
	queued := func(st *state, p fuel.Point, err error) error {
		if err != nil {
			return err
		}
		return st.q.Wait(ctx, p)
	}
	operations := map[string]func(st *state, s *fuel.Storage) error{
		"Alloc":       func(st *state, _ *fuel.Storage) error { return closing(fuel.Alloc(st.dev, fuel.F32, n, nil)) },
		"AllocUninit": func(st *state, _ *fuel.Storage) error { return closing(fuel.AllocUninit(st.dev, fuel.U1, 13, nil)) },
		"FromBytes":   func(st *state, _ *fuel.Storage) error { return closing(fuel.FromBytes(st.dev, fuel.U8, old)) },
		"Compose": func(st *state, _ *fuel.Storage) error {
			return closing(fuel.Compose(st.dev, []fuel.SlotSpec{{Name: "a", DType: fuel.U8, Len: 9}}))
		},
		"Clone":          func(st *state, s *fuel.Storage) error { return closing(s.Clone()) },
		"To the CPU":     func(st *state, s *fuel.Storage) error { return closing(s.To(ctx, fuel.Device{}, nil)) },
		"To a device":    func(st *state, _ *fuel.Storage) error { return closing(st.big.To(ctx, st.dev, nil)) },
		"To a neighbour": func(st *state, s *fuel.Storage) error { return closing(s.To(ctx, st.f.Device(1), nil)) },
		"WriteAt":        func(st *state, s *fuel.Storage) error { _, err := s.WriteAt([]byte{9}, 7); return err },
		"WriteAt all":    func(st *state, s *fuel.Storage) error { _, err := s.WriteAt(make([]byte, n), 0); return err },
		"ReadFrom": func(st *state, s *fuel.Storage) error {
			_, err := s.ReadFrom(bytes.NewReader(make([]byte, n)))
			return err
		},
		"WriteTo":         func(st *state, s *fuel.Storage) error { _, err := s.WriteTo(new(bytes.Buffer)); return err },
		"Zero":            func(st *state, s *fuel.Storage) error { return s.Zero(ctx) },
		"FillRange":       func(st *state, s *fuel.Storage) error { return s.FillRange(ctx, 3, 5, []byte{9}) },
		"CopyFrom":        func(st *state, s *fuel.Storage) error { return s.CopyFrom(ctx, st.src, nil) },
		"CopyFrom CPU":    func(st *state, s *fuel.Storage) error { return s.CopyFrom(ctx, st.host, nil) },
		"CopyFrom to CPU": func(st *state, s *fuel.Storage) error { return st.host.CopyFrom(ctx, s, nil) },
		"CopyRange":       func(st *state, s *fuel.Storage) error { return s.CopyRange(ctx, 1, st.src, 2, 3, nil) },
		"Checksum":        func(st *state, s *fuel.Storage) error { _, err := s.Checksum(ctx); return err },
		"Equal":           func(st *state, s *fuel.Storage) error { _, err := s.Equal(ctx, st.src); return err },
		"VisitMutable":    func(st *state, s *fuel.Storage) error { _, err := fuel.VisitMutable(s, sizes{}); return err },
		"Queue.Copy":      func(st *state, s *fuel.Storage) error { p, err := st.q.Copy(s, st.src); return queued(st, p, err) },
		"Queue.Zero":      func(st *state, s *fuel.Storage) error { p, err := st.q.Zero(s); return queued(st, p, err) },
	}
	const most = 12 // calls of an operation, at most
	for name, operation := range operations {
		for _, late := range []bool{false, true} {
			f := fmt.Sprintf("%s/late=%v", name, late)
			t.Run(f, func(t *testing.T) {
				f := Register(t, fuel.Vulkan, FakeOptions{Devices: 2, FailLate: late})
				st := &state{f: f, dev: f.Device(0)}
				st.q = must[*fuel.Queue](t)(fuel.QueueOf(st.dev))
				original := bytesOn(t, st.dev, n, 1)
				st.src, st.host = bytesOn(t, st.dev, n, 2), bytesOn(t, fuel.Device{}, n, 3)
				st.big = bytesOn(t, fuel.Device{}, 3<<20, 4)
				failed := 0
				for k := 1; k <= most; k++ {
					s := must[*fuel.Storage](t)(original.Clone())
					allocs, live := f.Live()
					before := must[fuel.Stats](t)(fuel.MemStats(st.dev))

					f.FailEvery(k)
					err := operation(st, s)
					f.FailEvery(0)

					if err != nil {
						failed++
						if !errors.Is(err, errInjected) {
							t.Errorf("call %d fails: got another error, %v", k, err)
						}
						mustBeUsable(t, s)
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
					if !patiently(func() bool { a, b := f.Live(); return a == allocs && b == live }) {
						a, b := f.Live()
						t.Errorf("every %d. call fails: %d allocations of %d bytes are live, and before %d of %d", k, a, b, allocs, live)
					}
					if now := must[fuel.Stats](t)(fuel.MemStats(st.dev)); now.InUse != before.InUse || now.Regions != before.Regions {
						t.Errorf("every %d. call fails: %+v, and before %+v", k, now, before)
					}
					mustHold(t, original, 1)
					mustHold(t, st.src, 2)
				}
				if failed == 0 && name != "Clone" {
					t.Error("nothing failed: the test proves nothing")
				}
				if failed == most {
					t.Errorf("it makes over %d calls", most)
				}
			})
		}
	}
}

// mustBeUsable looks that a handle works after a failure.
func mustBeUsable(t *testing.T, s *fuel.Storage) {
	t.Helper()
	if err := s.Fill(ctx, []byte{0x77}); err != nil {
		t.Fatalf("Fill after a failure: %v", err)
	}
	mustHold(t, s, 0x77)
}

// TestFailedPrivateCopyLeavesTheSharing: a write that gets no memory must not
// half-separate two that share.
func TestFailedPrivateCopyLeavesTheSharing(t *testing.T) {
	for _, op := range []Op{OpAlloc, OpCopy, OpWait} {
		f := Register(t, fuel.Vulkan, FakeOptions{FailLate: op == OpWait})
		s := bytesOn(t, f.Device(0), 100, 1)
		c := must[*fuel.Storage](t)(s.Clone())
		id := c.ID()
		what := op
		if op == OpWait {
			what = OpCopy // late
		}
		f.Fail(what, 1, nil)
		if _, err := c.WriteAt([]byte{2}, 0); !errors.Is(err, errInjected) {
			t.Errorf("write that needs a private copy, and %s fails: %v", op, err)
		}
		mustHold(t, c, 1)
		if c.ID() != id || c.Region() != s.Region() || c.Region().Owners != 2 {
			t.Errorf("after %s failed: %+v and %+v, ID %d and %d", op, s.Region(), c.Region(), id, c.ID())
		}
		if err := errors.Join(s.Close(), c.Close()); err != nil {
			t.Error(err)
		}
		f.stop()
	}
}

// TestOutOfDeviceMemoryIsTyped: a failed allocation aborted the process
// (llama.cpp#10130, ggml#1083).
func TestOutOfDeviceMemoryIsTyped(t *testing.T) {
	LeakCheck(t)
	f := Register(t, fuel.CUDA, FakeOptions{Memory: 1000, MaxAlloc: 900})
	dev := f.Device(0)
	s := bytesOn(t, dev, 600, 1)
	c := must[*fuel.Storage](t)(s.Clone())
	defer c.Close()
	big := bytesOn(t, fuel.Device{}, 500, 2)
	for name, use := range map[string]func() error{
		"Alloc":             func() error { _, err := fuel.Alloc(dev, fuel.U8, 500, nil); return err },
		"AllocUninit":       func() error { _, err := fuel.AllocUninit(dev, fuel.F32, 125, nil); return err },
		"FromBytes":         func() error { _, err := fuel.FromBytes(dev, fuel.U8, make([]byte, 500)); return err },
		"To":                func() error { _, err := big.To(ctx, dev, nil); return err },
		"a write to shared": func() error { return c.Zero(ctx) },
	} {
		err := use()
		var oom *fuel.OutOfMemoryError
		if !errors.As(err, &oom) || !errors.Is(err, fuel.ErrOutOfMemory) {
			t.Errorf("%s without room: %v", name, err)
			continue
		}
		want := int64(500)
		if name == "a write to shared" {
			want = 600
		}
		if oom.Device != dev || oom.Requested != want || oom.Free != 400 || oom.InUse != 600 {
			t.Errorf("%s without room: %+v", name, oom)
		}
		mustHold(t, s, 1)
		mustHold(t, c, 1)
	}
	if _, err := fuel.Alloc(dev, fuel.U8, 901, nil); !errors.Is(err, fuel.ErrTooLarge) {
		t.Errorf("Alloc above the device's largest: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Zero(ctx); err != nil { // the last owner needs no copy
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	mustHold(t, bytesOn(t, dev, 900, 3), 3)
}

// TestFailedTransferIsNeverSilent: command buffers failed and the numbers were
// wrong (candle#3850); a failed slice gave zeros.
func TestFailedTransferIsNeverSilent(t *testing.T) {
	for _, late := range []bool{false, true} {
		for _, opt := range []FakeOptions{{}, {NonCoherent: true}, {Unified: true}, {Lazy: true}} {
			opt.FailLate, opt.Devices = late, 2
			t.Run(fmt.Sprintf("late=%v%s", late, describe(opt)), func(t *testing.T) {
				f := Register(t, fuel.Metal, opt)
				dev := f.Device(0)
				s, u := bytesOn(t, dev, 100, 1), bytesOn(t, dev, 100, 2)
				far, host := bytesOn(t, f.Device(1), 100, 3), bytesOn(t, fuel.Device{}, 100, 4)
				other := bytesOn(t, dev, 10, 5)
				q := must[*fuel.Queue](t)(fuel.QueueOf(dev))
				for _, c := range []struct {
					name string
					op   Op
					do   func() error
				}{
					{"upload", OpUpload, func() error { return u.CopyFrom(ctx, host, nil) }},
					{"download", OpDownload, func() error { return host.CopyFrom(ctx, s, nil) }},
					{"copy", OpCopy, func() error { return u.CopyFrom(ctx, s, nil) }},
					{"fill", OpFill, func() error { return u.Fill(ctx, []byte{1}) }},
					{"bounce, reading", OpDownload, func() error { return u.CopyFrom(ctx, far, nil) }},
					{"bounce, writing", OpUpload, func() error { return u.CopyFrom(ctx, far, nil) }},
					{"queue", OpCopy, func() error {
						p, err := q.Copy(u, s)
						if err != nil {
							return err
						}
						if after := must[fuel.Point](t)(q.Zero(other)); q.Wait(ctx, after) != nil {
							t.Error("the work after failed work failed too")
						}
						return q.Wait(ctx, p)
					}},
					{"To", OpDownload, func() error { _, err := s.To(ctx, fuel.Device{}, nil); return err }},
					{"Equal", OpDownload, func() error {
						same, err := s.Equal(ctx, u)
						if same {
							t.Error("Equal says yes beside an error")
						}
						return err
					}},
					{"Checksum", OpDownload, func() error { _, err := s.Checksum(ctx); return err }},
					{"ReadAt", OpDownload, func() error {
						b := bytes.Repeat([]byte{9}, 100)
						n, err := s.ReadAt(b, 0)
						if n != 0 {
							t.Errorf("ReadAt says %d bytes beside an error", n)
						}
						if len(bytes.Trim(b, "\x09")) != 0 {
							t.Errorf("ReadAt changed what it could not read to: %x", b[:4])
						}
						return err
					}},
					{"WriteTo", OpDownload, func() error {
						n, err := s.WriteTo(failingWriter{t})
						if n != 0 {
							t.Errorf("WriteTo says %d bytes beside an error", n)
						}
						return err
					}},
				} {
					f.Fail(c.op, 1, nil)
					err := c.do()
					var op *fuel.OpError
					if !errors.Is(err, errInjected) || !errors.As(err, &op) {
						t.Errorf("%s that fails: %v", c.name, err)
					}
					f.FailEvery(0)
					mustHold(t, s, 1)
				}
				mustHold(t, host, 4) // two downloads to it failed
			})
		}
	}
}

// A failingWriter fails the test when it gets anything.
type failingWriter struct{ t *testing.T }

func (w failingWriter) Write(b []byte) (int, error) {
	w.t.Errorf("%d bytes were written though they could not be read", len(b))
	return len(b), nil
}

// TestOddSizesNeverWriteBeyond: sizes had to be multiples of four
// (gpuweb#5062, cubecl#564), and rounding up wrote too much.
func TestOddSizesNeverWriteBeyond(t *testing.T) {
	for _, opt := range []FakeOptions{{}, {NonCoherent: true}, {Unified: true}} {
		t.Run(describe(opt), func(t *testing.T) {
			f := Register(t, fuel.Vulkan, opt)
			dev := f.Device(0)
			for _, n := range []int{1, 2, 3, 5, 7, 13, 63, 65, 1001, 4097} {
				// In the middle of another, where a byte too many is seen, and
				// at the end of an allocation, which the fake watches.
				for _, before := range []int{0, 1, 3} {
					whole := bytesOn(t, dev, before+n+9, 7)
					mid := must[*fuel.Storage](t)(whole.View(before, n))
					end := must[*fuel.Storage](t)(whole.View(before+9, n))
					src := bytesOn(t, dev, n, 1)
					far := bytesOn(t, fuel.Device{}, n, 1)
					for name, write := range map[string]func(s *fuel.Storage) error{
						"Fill":          func(s *fuel.Storage) error { return s.Fill(ctx, []byte{1}) },
						"copy":          func(s *fuel.Storage) error { return s.CopyFrom(ctx, src, nil) },
						"upload":        func(s *fuel.Storage) error { return s.CopyFrom(ctx, far, nil) },
						"private write": func(s *fuel.Storage) error { return writeShared(s, n) },
					} {
						for _, s := range []*fuel.Storage{mid, end} {
							if err := errors.Join(whole.Fill(ctx, []byte{7}), write(s)); err != nil {
								t.Fatalf("%s of %d bytes: %v", name, n, err)
							}
							mustHold(t, s, 1)
							b := make([]byte, whole.LenBytes())
							if _, err := whole.ReadAt(b, 0); err != nil {
								t.Fatal(err)
							}
							if got := bytes.Count(b, []byte{7}); got != before+9 {
								t.Errorf("%s of %d bytes left %d of %d others", name, n, got, before+9)
							}
						}
					}
					for _, s := range []*fuel.Storage{whole, mid, end, src, far} {
						if err := s.Close(); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			if n, _ := f.Live(); n != 0 && !opt.Lazy {
				t.Errorf("%d allocations are left", n)
			}
		})
	}
}

// writeShared writes ones to memory that a Clone shares.
func writeShared(s *fuel.Storage, n int) error {
	c, err := s.Clone()
	if err != nil {
		return err
	}
	_, err = s.WriteAt(bytes.Repeat([]byte{1}, n), 0)
	return errors.Join(err, c.Close())
}

// TestFirstUseFromManyGoroutinesDoesNotDeadlock: a cold start with 24 threads
// or more hung.
func TestFirstUseFromManyGoroutinesDoesNotDeadlock(t *testing.T) {
	for _, opt := range []FakeOptions{{}, {ProbeDelay: 30 * time.Millisecond}} {
		f := Register(t, fuel.CUDA, opt)
		dev := f.Device(0)
		done := make(chan struct{})
		go func() {
			defer close(done)
			each(64, func(i int) {
				var err error
				switch i % 6 {
				case 0:
					var s *fuel.Storage
					if s, err = fuel.Alloc(dev, fuel.F32, 100, nil); err == nil {
						err = s.Close()
					}
				case 1:
					row := fuel.Probe(ctx)[fuel.CUDA]
					if row.State != fuel.Available {
						err = errors.New(row.Reason)
					}
				case 2:
					_, err = fuel.Devices(ctx)
				case 3:
					_, err = fuel.MemStats(dev)
				case 4:
					_, err = fuel.QueueOf(dev)
				case 5:
					row := fuel.Reprobe(ctx)[fuel.CUDA]
					if row.State != fuel.Available {
						err = errors.New(row.Reason)
					}
				}
				if err != nil {
					t.Errorf("first use %d: %v", i%6, err)
				}
			})
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			buf := make([]byte, 1<<20)
			t.Fatalf("deadlock:\n%s", buf[:runtime.Stack(buf, true)])
		}
		if n := f.Calls(OpOpen); n != 1 {
			t.Errorf("the device was opened %d times", n)
		}
		f.stop()
	}
}

// row returns what Probe says of a kind.
func row(t *testing.T, ctx context.Context, kind fuel.Kind) fuel.BackendStatus {
	t.Helper()
	for _, r := range fuel.Probe(ctx) {
		if r.Kind == kind {
			return r
		}
	}
	t.Fatalf("Probe has no row for %s", kind)
	return fuel.BackendStatus{}
}

// TestNoDeviceNeverGoesUnexplained: "no backends are loaded" (llama.cpp#20611,
// llama.cpp#22547), and nobody said why.
func TestNoDeviceNeverGoesUnexplained(t *testing.T) {
	for name, c := range map[string]struct {
		opt   FakeOptions
		words []string
	}{
		"no library":  {FakeOptions{ProbeError: "libcuda.so.1: no such file; tried libcuda.so.1, libcuda.so"}, []string{"libcuda.so.1: no such file", "tried libcuda.so.1, libcuda.so"}},
		"wrong class": {FakeOptions{ProbeError: "libcuda.so.1: wrong ELF class: ELFCLASS32"}, []string{"wrong ELF class: ELFCLASS32"}},
		"panic":       {FakeOptions{ProbePanic: "index out of range in the vendor's parser"}, []string{"BUG", "github.com/go-fuel/fuel/fueltest", "index out of range in the vendor's parser"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := Register(t, fuel.CUDA, c.opt)
			r := row(t, ctx, fuel.CUDA)
			if r.State != fuel.Unavailable || r.Err == nil || len(r.Devices) != 0 {
				t.Errorf("Probe says %s, error %v, %d devices", r.State, r.Err, len(r.Devices))
			}
			_, err := fuel.Alloc(f.Device(0), fuel.F32, 1, nil)
			if !errors.Is(err, fuel.ErrUnavailable) {
				t.Errorf("Alloc: %v", err)
			}
			for _, word := range c.words {
				if !strings.Contains(r.Reason, word) {
					t.Errorf("the reason does not say %q: %s", word, r.Reason)
				}
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the error does not say %q: %v", word, err)
				}
			}
			if list, err := fuel.Devices(ctx); err != nil || len(list) != 1 {
				t.Errorf("Devices beside a broken driver: %d, %v", len(list), err)
			}
			if n := f.Calls(OpProbe); n != 1 {
				t.Errorf("the driver was probed %d times", n)
			}
		})
	}
	// Without any driver, what to import.
	if r := row(t, ctx, fuel.Metal); r.State != fuel.NotLinked || r.Reason == "" {
		t.Errorf("Probe of a kind that is not linked: %s, %q", r.State, r.Reason)
	}
}

// TestMissingSymbolIsNamed: cuCtxCreate_v3 was missing, and the error did not
// say so, nor which driver it was (ollama#3417, ollama#5493, ollama#8791).
func TestMissingSymbolIsNamed(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{MissingSymbol: "cuCtxCreate_v3", Library: "libcuda.so.450", DriverVersion: "450.80"})
	r := row(t, ctx, fuel.CUDA)
	if r.State != fuel.Unavailable || r.Library != "libcuda.so.450" || r.DriverVersion != "450.80" {
		t.Errorf("Probe says %s, library %q, version %q", r.State, r.Library, r.DriverVersion)
	}
	_, err := fuel.Alloc(f.Device(0), fuel.F32, 1, nil)
	for _, text := range []string{r.Reason, err.Error()} {
		for _, word := range []string{"cuCtxCreate_v3", "libcuda.so.450", "450.80"} {
			if !strings.Contains(text, word) {
				t.Errorf("%q does not name %q", text, word)
			}
		}
	}
}

func TestProbeNamesWhatWorks(t *testing.T) {
	f := Register(t, fuel.Vulkan, FakeOptions{Devices: 2, Memory: 1 << 20, MaxAlloc: 1 << 19, Alignment: 128, Unified: true})
	r := row(t, ctx, fuel.Vulkan)
	if r.State != fuel.Available || r.Reason != "" || r.Err != nil || r.Library == "" || r.DriverVersion == "" || len(r.Devices) != 2 {
		t.Fatalf("Probe says %+v", r)
	}
	for i, d := range r.Devices {
		if d.Device != f.Device(i) || d.Memory.Total != 1<<20 || d.MaxAlloc != 1<<19 || d.Alignment != 128 || !d.Unified || d.UUID == "" {
			t.Errorf("device %d is %+v", i, d)
		}
	}
}

// TestHangingDriverHoldsNobodyUp: the contexts of those who ask count, not
// when the driver answers.
func TestHangingDriverHoldsNobodyUp(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{ProbeHang: true})
	s := bytesOn(t, fuel.Device{}, 10, 1)
	brief, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	if r := row(t, brief, fuel.CUDA); r.State != fuel.Probing || !errors.Is(r.Err, context.DeadlineExceeded) || r.Reason == "" {
		t.Errorf("Probe of a driver that hangs: %+v", r)
	}
	if list, err := fuel.Devices(brief); len(list) != 1 || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Devices beside a driver that hangs: %d, %v", len(list), err)
	}
	if _, err := s.To(brief, f.Device(0), nil); !errors.Is(err, fuel.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("To a device whose driver hangs: %v", err)
	}
	if c, err := s.Clone(); err != nil {
		t.Errorf("Clone beside a driver that hangs: %v", err)
	} else {
		_ = c.Close()
	}
}

// TestHeldQueueIsLeftByTheContext: a wait is given up, and not the work.
func TestHeldQueueIsLeftByTheContext(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{})
	s, u := bytesOn(t, f.Device(0), 100, 1), bytesOn(t, f.Device(0), 100, 2)
	shared := must[*fuel.Storage](t)(u.Clone())
	defer shared.Close()
	for name, do := range map[string]func(ctx context.Context) error{
		"private copy": func(ctx context.Context) error {
			c, err := shared.Clone()
			if err != nil {
				return err
			}
			return errors.Join(c.FillRange(ctx, 0, 1, []byte{5}), c.Close())
		},
		"Fill":      func(ctx context.Context) error { return s.Fill(ctx, []byte{5}) },
		"CopyFrom":  func(ctx context.Context) error { return s.CopyFrom(ctx, u, nil) },
		"FillRange": func(ctx context.Context) error { return s.FillRange(ctx, 0, 100, []byte{5}) },
	} {
		f.Hold()
		brief, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		err := do(brief)
		cancel()
		var op *fuel.OpError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &op) || op.Bytes != 0 {
			t.Errorf("%s in a queue that is held: %v", name, err)
		}
		f.Release()
		mustBeUsable(t, s)
		mustHold(t, u, 2)
		mustHold(t, shared, 2)
	}
	// Closed while the work that was given up is still there.
	f.Hold()
	brief, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	if err := s.CopyFrom(brief, u, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("CopyFrom in a queue that is held: %v", err)
	}
	if err := errors.Join(s.Close(), u.Close()); err != nil {
		t.Error(err)
	}
	if n, _ := f.Live(); n != 2 {
		t.Errorf("%d allocations while work uses two", n)
	}
	f.Release()
}

// TestMappedBytesNeverReachTheDriver: a driver that reads a mapping may fault.
func TestMappedBytesNeverReachTheDriver(t *testing.T) {
	LeakCheck(t)
	const n = 3<<20 + 5
	for _, opt := range []FakeOptions{{}, {NonCoherent: true}} {
		var seen [][]byte
		opt.wrap = func(d *fakeDevice) backend.Device {
			m := &mutant{Device: d, inner: d}
			m.upload = func(dst backend.Buffer, off int, src []byte) (backend.Point, bool, error) {
				seen = append(seen, src)
				return d.Upload(dst, off, src)
			}
			m.download = func(dst []byte, src backend.Buffer, off int) (bool, error) {
				seen = append(seen, dst)
				return d.Download(dst, src, off)
			}
			return m
		}
		f := Register(t, fuel.CUDA, opt)
		x := &subject{TB: t, dev: f.Device(0), ctx: ctx, rng: newRand(1)}
		m, want := x.mapped(n, 1)
		if m.Region().Memory != fuel.MemoryMapped {
			require.Skip(t, "mmap", "files are not mapped on "+runtime.GOOS)
		}
		s := x.must(m.To(ctx, x.dev, nil))
		x.holds(s, want, "a mapped file on a device")
		x.ok(s.CopyFrom(ctx, m, nil))
		x.equal(s, m, true, "a mapped file and its copy")
		x.ok(m.Use(func(file []byte) error {
			for _, b := range seen {
				if overlap(b, file) {
					t.Error("the driver got mapped bytes")
				}
			}
			return nil
		}))
		if len(seen) < 4 {
			t.Errorf("%d transfers: the test proves nothing", len(seen))
		}
		x.close(s, m)
		f.stop()
	}
}

// TestTruncatedFileIsAnErrorOfTheTransfer: the file shrinks after it was
// mapped.
func TestTruncatedFileIsAnErrorOfTheTransfer(t *testing.T) {
	if runtime.GOOS == "windows" {
		require.Skip(t, "truncation", "a mapped file cannot be truncated on "+runtime.GOOS)
	}
	LeakCheck(t)
	f := Register(t, fuel.CUDA, FakeOptions{})
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, bytes.Repeat([]byte{7}, 12<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	file := must[*os.File](t)(os.Open(name))
	defer file.Close()
	m := must[*fuel.Storage](t)(fuel.Map(file, fuel.U8, 0, 12<<20))
	defer m.Close()
	if m.Region().Memory != fuel.MemoryMapped {
		require.Skip(t, "mmap", "files are not mapped on "+runtime.GOOS)
	}
	s := bytesOn(t, f.Device(0), 12<<20, 1)
	if err := os.Truncate(name, 9<<20); err != nil {
		t.Fatal(err)
	}
	_, live := f.Live()
	err := s.CopyFrom(ctx, m, nil)
	var op *fuel.OpError
	if !errors.Is(err, fuel.ErrMapFault) || !errors.As(err, &op) || op.Bytes != 8<<20 {
		t.Errorf("CopyFrom a truncated file: %v", err)
	}
	if _, err := m.To(ctx, f.Device(0), nil); !errors.Is(err, fuel.ErrMapFault) {
		t.Errorf("To of a truncated file: %v", err)
	}
	if _, now := f.Live(); now != live {
		t.Errorf("%d bytes are live after a failed To, and before %d", now, live)
	}
	mustBeUsable(t, s)
}

// TestHandlesAreThoseOfTheDevice: what Visit gives for a View and a private
// copy.
func TestHandlesAreThoseOfTheDevice(t *testing.T) {
	for _, kind := range []fuel.Kind{fuel.CUDA, fuel.Vulkan, fuel.Metal} {
		f := Register(t, kind, FakeOptions{Devices: 2, Alignment: 512})
		s := bytesOn(t, f.Device(1), 1000, 1)
		if s.Alignment() < 512 {
			t.Errorf("alignment %d, want 512", s.Alignment())
		}
		v := must[*fuel.Storage](t)(s.View(24, 100))
		defer v.Close()
		if v.Alignment() != 8 {
			t.Errorf("alignment of a View of byte 24 is %d, want 8", v.Alignment())
		}
		a, b := must[place](t)(fuel.Visit(s, places{})), must[place](t)(fuel.Visit(v, places{}))
		if a.kind != kind || b.address != a.address+24 || b.buffer != a.buffer || (a.address|a.buffer)%512 != 0 {
			t.Errorf("a Storage is at %+v, a View of byte 24 at %+v", a, b)
		}
		got, err := fuel.Dispatch(v, fuel.Cases[[4]uint64]{
			CUDA: func(m fuel.CUDAMemory) ([4]uint64, error) {
				return [4]uint64{uint64(m.Context), uint64(m.Stream), 0, uint64(m.Bytes)}, nil
			},
			Vulkan: func(m fuel.VulkanMemory) ([4]uint64, error) {
				return [4]uint64{uint64(m.Device), uint64(m.Queue), uint64(m.Family), uint64(m.Bytes)}, nil
			},
			Metal: func(m fuel.MetalMemory) ([4]uint64, error) {
				return [4]uint64{uint64(m.Device), uint64(m.Queue), 0, uint64(m.Bytes)}, nil
			},
		})
		if want := [4]uint64{2, 1002, 0, 100}; got != want || err != nil {
			t.Errorf("handles %v, %v, want %v", got, err, want)
		}
		none := must[*fuel.Storage](t)(s.View(24, 0))
		if at := must[place](t)(fuel.Visit(none, places{})); at != (place{kind: kind}) {
			t.Errorf("a View of no bytes is at %+v", at)
		}
		_ = none.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		_ = v.Close()
		f.stop()
	}
}

// TestFailedQueueCopyLeavesHandlesUsable: an error of queued work must not
// stick to the Storage that it was to write.
func TestFailedQueueCopyLeavesHandlesUsable(t *testing.T) {
	if runtime.GOOS == "windows" {
		require.Skip(t, "truncation", "a mapped file cannot be truncated on "+runtime.GOOS)
	}
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, bytes.Repeat([]byte{7}, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	file := must[*os.File](t)(os.Open(name))
	defer file.Close()
	m := must[*fuel.Storage](t)(fuel.Map(file, fuel.U8, 0, 1<<20))
	defer m.Close()
	if m.Region().Memory != fuel.MemoryMapped {
		require.Skip(t, "mmap", "files are not mapped on "+runtime.GOOS)
	}
	dst := bytesOn(t, fuel.Device{}, 1<<20, 1)
	if err := os.Truncate(name, 0); err != nil {
		t.Fatal(err)
	}
	q := must[*fuel.Queue](t)(fuel.QueueOf(fuel.Device{}))
	p := must[fuel.Point](t)(q.Copy(dst, m))
	if err := q.Wait(ctx, p); !errors.Is(err, fuel.ErrMapFault) {
		t.Errorf("Wait: %v", err)
	}
	if err := dst.Zero(ctx); err != nil {
		t.Errorf("Zero after a Queue.Copy that failed: %v", err)
	}
	if _, err := dst.ReadAt(make([]byte, 1), 0); err != nil {
		t.Errorf("ReadAt after a Queue.Copy that failed, and Zero: %v", err)
	}
}

// TestFailedQueueWorkShowsInReads: nobody waited for the work, and the bytes
// are garbage.
func TestFailedQueueWorkShowsInReads(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{FailLate: true})
	s, u := bytesOn(t, f.Device(0), 10, 1), bytesOn(t, f.Device(0), 10, 2)
	q := must[*fuel.Queue](t)(fuel.QueueOf(f.Device(0)))
	f.Fail(OpCopy, 1, nil)
	must[fuel.Point](t)(q.Copy(u, s)) // nobody waits
	b := make([]byte, 10)
	if _, err := u.ReadAt(b, 0); err == nil {
		t.Errorf("a read after work that failed, which nobody waited for: %x and no error", b)
	}
}

// TestBytesOfAnOperationAreNotThoseOfItsPrivateCopy: the error counts the bytes
// that were asked for.
func TestBytesOfAnOperationAreNotThoseOfItsPrivateCopy(t *testing.T) {
	s := bytesOn(t, fuel.Device{}, 4<<20, 1)
	c := must[*fuel.Storage](t)(s.Clone())
	defer c.Close()
	err := c.FillRange(newCountdown(4), 0, 16, []byte{1})
	var op *fuel.OpError
	if !errors.Is(err, context.Canceled) || !errors.As(err, &op) || op.Bytes != 0 {
		t.Errorf("fill of 16 bytes that was stopped at its private copy: %v", err)
	}
}

// TestReprobeClosesTheLostDevice: a context that nobody closes.
func TestReprobeClosesTheLostDevice(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{})
	s := bytesOn(t, f.Device(0), 10, 1)
	f.Lose()
	_ = s.Zero(ctx) // notices
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	fuel.Reprobe(ctx)
	mustHold(t, bytesOn(t, f.Device(0), 10, 2), 2)
	if !patiently(func() bool { return f.Calls(OpClose) == 1 }) {
		t.Errorf("the lost device was closed %d times after Reprobe", f.Calls(OpClose))
	}
}

// TestOutOfMemoryOfAnyCallIsTyped: not only an allocation can need memory.
func TestOutOfMemoryOfAnyCallIsTyped(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{})
	s := bytesOn(t, f.Device(0), 10, 1)
	f.Fail(OpUpload, 1, fuel.ErrOutOfMemory)
	if _, err := s.WriteAt([]byte{1}, 0); !errors.Is(err, fuel.ErrOutOfMemory) {
		t.Errorf("an upload for which the driver has no memory: %v", err)
	}
}

// TestVisitOfALostDeviceIsAnError: its handles are dead.
func TestVisitOfALostDeviceIsAnError(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{})
	s := bytesOn(t, f.Device(0), 10, 1)
	f.Lose()
	_ = s.Zero(ctx)
	if _, err := fuel.Visit(s, sizes{}); !errors.Is(err, fuel.ErrDeviceLost) {
		t.Errorf("Visit on a lost device: %v", err)
	}
}

// TestReportIsFilledWhereToFails: "filled in, also where the copy fails".
func TestReportIsFilledWhereToFails(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{})
	host := bytesOn(t, fuel.Device{}, 10, 1)
	must[fuel.Stats](t)(fuel.MemStats(f.Device(0)))
	r := fuel.CopyReport{Bytes: 99, Staged: 99, Path: fuel.PathBounce}
	f.Fail(OpAlloc, 1, nil)
	if _, err := host.To(ctx, f.Device(0), &fuel.CopyOptions{Report: &r}); err == nil || r.Bytes != 0 || r.Staged != 0 {
		t.Errorf("To that fails at its allocation: %v, %+v", err, r)
	}
}

// TestFailedPrivateCopyIsNotCounted: PrivateCopies counts those that were made.
func TestFailedPrivateCopyIsNotCounted(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{})
	s := bytesOn(t, f.Device(0), 10, 1)
	c := must[*fuel.Storage](t)(s.Clone())
	defer c.Close()
	f.Fail(OpCopy, 1, nil)
	_, _ = c.WriteAt([]byte{1}, 0)
	if n := must[fuel.Stats](t)(fuel.MemStats(f.Device(0))).PrivateCopies; n != 0 {
		t.Errorf("%d private copies, and the only one failed", n)
	}
}

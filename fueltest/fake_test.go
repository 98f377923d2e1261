package fueltest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
)

var ctx = context.Background()

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// bytesOn returns a Storage of n bytes of value v that is closed with the test.
func bytesOn(t testing.TB, dev fuel.Device, n int, v byte) *fuel.Storage {
	t.Helper()
	b := make([]byte, n)
	scribble(b, v)
	s := must[*fuel.Storage](t)(fuel.FromBytes(dev, fuel.U8, b))
	t.Cleanup(func() { _ = s.Close() }) // may be closed by then
	return s
}

// mustHold fails the test unless all bytes of s are v.
func mustHold(t testing.TB, s *fuel.Storage, v byte) {
	t.Helper()
	b := make([]byte, s.LenBytes())
	if _, err := s.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	for i := range b {
		if b[i] != v {
			t.Fatalf("byte %d of %d is %#x, want %#x", i, len(b), b[i], v)
		}
	}
}

// pieces is host memory of n pieces of 4096 bytes.
func pieces(n int) []byte {
	b := make([]byte, (n+1)*4096)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & 4095
	return b[skip:][:n*4096]
}

// TestFakeFindsBreaches breaks the contract of drivers in every way that the
// fake looks for.
func TestFakeFindsBreaches(t *testing.T) {
	impatient(t)
	for _, breach := range []struct {
		name, text string
		do         func(f *Fake, d, other backend.Device, b backend.Buffer)
	}{
		{"alloc of nothing", "alloc of 0 bytes", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Alloc(0, true) }},
		{"fill of nothing", "fill of length zero", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Fill(b, 0, 0, []byte{1}) }},
		{"copy of nothing", "copy of length zero", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Copy(b, 0, b, 0, 0) }},
		{"upload of nothing", "upload of length zero", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Upload(b, 0, nil) }},
		{"download of nothing", "download of length zero", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Download(nil, b, 0) }},
		{"fill past the end", "fill of bytes 90 to 101 of an allocation of 100", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Fill(b, 90, 11, []byte{1}) }},
		{"copy before the begin", "copy of bytes -1", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Copy(b, -1, b, 0, 2) }},
		{"copy from past the end", "copy of bytes 100 to 101", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Copy(b, 0, b, 100, 1) }},
		{"upload past the end", "upload of bytes 0 to 101", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Upload(b, 0, make([]byte, 101)) }},
		{"download past the end", "download of bytes 1 to 101", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Download(make([]byte, 100), b, 1) }},
		{"pattern of three", "with a pattern of 3", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Fill(b, 0, 3, []byte{1, 2, 3}) }},
		{"pattern that does not divide", "fill of 6 bytes with a pattern of 4", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Fill(b, 0, 6, []byte{1, 2, 3, 4}) }},
		{"another device", "an allocation of device 0", func(f *Fake, d, other backend.Device, b backend.Buffer) { other.Fill(b, 0, 1, []byte{1}) }},
		{"a buffer that never was", "no allocation", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			d.Fill(backend.Buffer{Handle: 1 << 60, Size: 4}, 0, 1, []byte{1})
		}},
		{"host memory", "not as alloc returned it", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			b.Host = make([]byte, 100)
			d.Fill(b, 0, 1, []byte{1})
		}},
		{"use after free", "freed", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			d.Free(b, 0)
			d.Fill(b, 0, 1, []byte{1})
		}},
		{"use after free, with work that uses it", "memory that was freed", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			f.Hold()
			p, _ := d.Fill(b, 0, 1, []byte{1})
			d.Free(b, p)
			d.Download(make([]byte, 1), b, 0)
		}},
		{"double free", "freed twice", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			f.Hold()
			p, _ := d.Fill(b, 0, 1, []byte{1})
			d.Free(b, p)
			d.Free(b, p)
		}},
		{"free while used", "but work 2 uses it", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			f.Hold()
			d.Fill(b, 0, 1, []byte{1})
			d.Free(b, 0)
		}},
		{"free after work that never was", "there is none but", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Free(b, 1000) }},
		{"wait for work that never was", "wait for work 1000", func(f *Fake, d, _ backend.Device, b backend.Buffer) { d.Wait(ctx, 1000) }},
		{"a write beside", "wrote beside an allocation of 100 bytes", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			f.devices[0].live[b.Handle].mem[guardSize+100]++
			d.Free(b, 0)
		}},
		{"a write before", "wrote beside an allocation of 100 bytes", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			f.devices[0].live[b.Handle].mem[guardSize-1]++
		}},
		{"import of part of a piece", "import of 4095 bytes", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			d.(backend.Importer).Import(pieces(1)[:4095], false, func() {})
		}},
		{"import from within a piece", "no whole pieces of 4096", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			d.(backend.Importer).Import(pieces(2)[64:][:4096], false, func() {})
		}},
		{"a fill of imported memory", "fill of memory that was imported", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			host, _ := d.(backend.Importer).Import(pieces(1), false, func() {})
			d.Fill(host, 0, 1, []byte{1})
		}},
		{"a copy to imported memory", "copy of memory that was imported", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			host, _ := d.(backend.Importer).Import(pieces(1), false, func() {})
			d.Copy(host, 0, b, 0, 1)
		}},
		{"an upload to imported memory", "upload of memory that was imported", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			host, _ := d.(backend.Importer).Import(pieces(1), false, func() {})
			d.Upload(host, 0, []byte{1})
		}},
		{"imported memory freed while used", "but work 2 uses it", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			host, _ := d.(backend.Importer).Import(pieces(1), false, func() {})
			f.Hold()
			d.Copy(b, 0, host, 0, 1)
			d.Free(host, 0)
		}},
		{"imported memory that is left", "2 allocations of device 0, 100 bytes, are left", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			d.(backend.Importer).Import(pieces(1), false, func() {})
		}},
		{"second close", "closed twice", func(f *Fake, d, _ backend.Device, b backend.Buffer) {
			d.Close()
			d.Close()
		}},
		{"no close", "was not closed", func(f *Fake, d, _ backend.Device, b backend.Buffer) {}},
		{"leak", "1 allocations of device 0, 100 bytes, are left", func(f *Fake, d, _ backend.Device, b backend.Buffer) {}},
	} {
		t.Run(breach.name, func(t *testing.T) {
			failures := record(t, func(t testing.TB) {
				f := Register(t, fuel.CUDA, FakeOptions{Devices: 2, ImportAlign: 4096})
				d := must[backend.Device](t)(f.open(ctx, 0))
				other := must[backend.Device](t)(f.open(ctx, 1))
				b := must[backend.Buffer](t)(d.Alloc(100, true))
				if err := d.Wait(ctx, 1); err != nil {
					t.Fatal(err)
				}
				breach.do(f, d, other, b)
			})
			mustFail(t, failures, breach.text)
		})
	}
}

func TestRegisterRefuses(t *testing.T) {
	for _, kind := range []fuel.Kind{fuel.CPU, 77} {
		mustFail(t, record(t, func(t testing.TB) { Register(t, kind, FakeOptions{}) }), "there is no fake for")
	}
	mustFail(t, record(t, func(t testing.TB) {
		Register(t, fuel.CUDA, FakeOptions{})
		Register(t, fuel.CUDA, FakeOptions{})
	}), "there is a fake cuda already")
	mustFail(t, record(t, func(t testing.TB) {
		Register(t, fuel.CUDA, FakeOptions{}).Fail(OpFree, 1, nil)
	}), "cannot be made to fail")
	mustPass(t, record(t, func(t testing.TB) { Register(t, fuel.CUDA, FakeOptions{}) }))
}

func TestFakeIsGoneAfterTheTest(t *testing.T) {
	failures := record(t, func(t testing.TB) {
		dev := Register(t, fuel.Metal, FakeOptions{}).Device(0)
		if !fuel.Metal.Linked() {
			t.Error("a fake is not linked")
		}
		bytesOn(t, dev, 10, 1)
	})
	mustPass(t, failures)
	if fuel.Metal.Linked() {
		t.Error("the fake is there after its test")
	}
	if _, err := fuel.Alloc(fuel.Device{Kind: fuel.Metal}, fuel.U8, 1, nil); !errors.Is(err, fuel.ErrUnavailable) {
		t.Errorf("an allocation after the fake's end: %v", err)
	}
}

func TestStorageLeftOnFakeFails(t *testing.T) {
	impatient(t)
	var s *fuel.Storage
	failures := record(t, func(t testing.TB) {
		dev := Register(t, fuel.Metal, FakeOptions{}).Device(0)
		s = must[*fuel.Storage](t)(fuel.Alloc(dev, fuel.U8, 10, nil))
	})
	mustFail(t, failures, "1 allocations of device 0, 10 bytes, are left")
	// The test is over, and the fake forgives what comes late.
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestLazyWorkWaits looks that the options do something: a fake that works at
// once would pass all else.
func TestLazyWorkWaits(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{Lazy: true})
	s := bytesOn(t, f.Device(0), 8, 1)
	q := must[*fuel.Queue](t)(fuel.QueueOf(f.Device(0)))
	p := must[fuel.Point](t)(q.Zero(s))
	time.Sleep(10 * time.Millisecond)
	if q.Done(p) {
		t.Error("work was done that nobody waited for")
	}
	if err := q.Wait(ctx, p); err != nil || !q.Done(p) {
		t.Errorf("Wait: %v, done %v", err, q.Done(p))
	}
	mustHold(t, s, 0)
}

func TestDelayedWorkIsLate(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{Delay: 20 * time.Millisecond})
	s := bytesOn(t, f.Device(0), 8, 1)
	q := must[*fuel.Queue](t)(fuel.QueueOf(f.Device(0)))
	began := time.Now()
	p := must[fuel.Point](t)(q.Zero(s))
	if err := q.Wait(ctx, p); err != nil || time.Since(began) < 20*time.Millisecond {
		t.Errorf("Wait took %v: %v", time.Since(began), err)
	}
}

func TestUninitializedFakeMemoryIsGarbage(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{})
	s := must[*fuel.Storage](t)(fuel.AllocUninit(f.Device(0), fuel.U8, 100, nil))
	defer s.Close()
	mustHold(t, s, fresh)
}

func TestNonCoherentStagingIsUsed(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{NonCoherent: true})
	s := bytesOn(t, f.Device(0), 100, 7)
	mustHold(t, s, 7)
	if turns := f.devices[0].staging.turn; turns != 2 {
		t.Errorf("an upload and a download took %d turns in the staging memory", turns)
	}
}

func TestWholeAtoms(t *testing.T) {
	for _, c := range [][4]int{{0, 1, 0, 64}, {0, 64, 0, 64}, {63, 1, 0, 64}, {63, 2, 0, 128}, {64, 64, 64, 64}, {65, 63, 64, 64}, {65, 64, 64, 128}, {100, 1000, 64, 1088}} {
		if off, n := wholeAtoms(c[0], c[1]); off != c[2] || n != c[3] {
			t.Errorf("%d bytes at %d are atoms of %d bytes at %d, want %d at %d", c[1], c[0], n, off, c[3], c[2])
		}
	}
}

func TestFailHitsTheCallThatWasNamed(t *testing.T) {
	f := Register(t, fuel.Vulkan, FakeOptions{})
	s := bytesOn(t, f.Device(0), 8, 1)
	mine := errors.New("mine")
	f.Fail(OpDownload, 2, mine)
	mustHold(t, s, 1)
	if _, err := s.ReadAt(make([]byte, 1), 0); !errors.Is(err, mine) {
		t.Errorf("second download: %v", err)
	}
	mustHold(t, s, 1)
	f.Fail(OpFill, 1, nil)
	f.FailEvery(0) // forgets it
	if err := s.Zero(ctx); err != nil {
		t.Error(err)
	}
	f.FailEvery(2) // a fill is two calls: it and the wait
	for range 3 {
		if err := s.Zero(ctx); !errors.Is(err, errInjected) {
			t.Errorf("every second call fails, and a fill: %v", err)
		}
	}
	f.FailEvery(0)
	if n := f.Calls(OpFill); n != 4 {
		t.Errorf("%d fills, want 4", n)
	}
}

func TestFailedOpenIsTriedAgainByReprobe(t *testing.T) {
	f := Register(t, fuel.Vulkan, FakeOptions{})
	f.Fail(OpOpen, 1, errors.New("device is in use"))
	for range 2 {
		_, err := fuel.Alloc(f.Device(0), fuel.U8, 1, nil)
		if !errors.Is(err, fuel.ErrUnavailable) || !strings.Contains(err.Error(), "device is in use") {
			t.Fatalf("Alloc on a device that did not open: %v", err)
		}
	}
	if n := f.Calls(OpOpen); n != 1 {
		t.Errorf("the device was opened %d times", n)
	}
	fuel.Reprobe(ctx)
	mustHold(t, bytesOn(t, f.Device(0), 3, 4), 4)
}

func TestLostDevice(t *testing.T) {
	f := Register(t, fuel.Vulkan, FakeOptions{})
	dev := f.Device(0)
	s, u := bytesOn(t, dev, 100, 1), bytesOn(t, dev, 100, 2)
	c := must[*fuel.Storage](t)(s.Clone())
	q := must[*fuel.Queue](t)(fuel.QueueOf(dev))
	f.Hold()
	p := must[fuel.Point](t)(q.Copy(u, s))
	f.Lose()
	if err := q.Wait(ctx, p); !errors.Is(err, fuel.ErrDeviceLost) {
		t.Errorf("Wait for work of a lost device: %v", err)
	}
	f.Release()
	uses := map[string]func() error{
		"ReadAt":  func() error { _, err := s.ReadAt(make([]byte, 1), 0); return err },
		"WriteAt": func() error { _, err := s.WriteAt(make([]byte, 1), 0); return err },
		"Zero":    func() error { return s.Zero(ctx) },
		"To":      func() error { _, err := s.To(ctx, fuel.Device{}, nil); return err },
		"Alloc":   func() error { _, err := fuel.Alloc(dev, fuel.U8, 1, nil); return err },
		"QueueOf": func() error { _, err := fuel.QueueOf(dev); return err },
		"Queue":   func() error { _, err := q.Zero(u); return err },
	}
	for name, use := range uses {
		if err := use(); !errors.Is(err, fuel.ErrDeviceLost) {
			t.Errorf("%s on a lost device: %v", name, err)
		}
	}
	for _, h := range []*fuel.Storage{s, u, c} {
		if err := h.Close(); err != nil {
			t.Errorf("Close on a lost device: %v", err)
		}
	}
	if !patiently(func() bool { n, _ := f.Live(); return n == 0 }) {
		t.Error("memory is left after all was closed")
	}
}

func TestLostFromTheNthCall(t *testing.T) {
	for n := 1; n < 12; n++ {
		failures := record(t, func(t testing.TB) {
			LeakCheck(t)
			f := Register(t, fuel.CUDA, FakeOptions{LostFrom: n, FailLate: n%2 == 0})
			use := func() error {
				s, err := fuel.FromBytes(f.Device(0), fuel.U8, make([]byte, 100))
				if err != nil {
					return err
				}
				c, err := s.Clone()
				if err != nil {
					return errors.Join(err, s.Close())
				}
				return errors.Join(c.Zero(ctx), s.Close(), c.Close())
			}
			for range 12 {
				if err := use(); err != nil {
					if !errors.Is(err, fuel.ErrDeviceLost) {
						t.Errorf("device lost from call %d on: %v", n, err)
					}
					return
				}
			}
			t.Errorf("the device was not lost with call %d", n)
		})
		mustPass(t, failures)
	}
}

func TestHangingCallsEndWithTheTest(t *testing.T) {
	failures := record(t, func(t testing.TB) {
		f := Register(t, fuel.CUDA, FakeOptions{})
		q := must[*fuel.Queue](t)(fuel.QueueOf(f.Device(0)))
		s := bytesOn(t, f.Device(0), 10, 1)
		handle, _ := f.Event()
		must[fuel.Point](t)(q.WaitExternal(fuel.External{Handle: handle}))
		must[fuel.Point](t)(q.Zero(s))
		f.Hold()
	})
	mustPass(t, failures)
}

func TestUnknownEventIsRefused(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{})
	q := must[*fuel.Queue](t)(fuel.QueueOf(f.Device(0)))
	if _, err := q.WaitExternal(fuel.External{Handle: 5}); err == nil {
		t.Error("work waits for an event that there is not")
	}
}

// A wish for a direct copy that comes to nothing is told, and where there is
// none to tell of nothing is.
func TestRefusedPeerCopyIsNeverSilent(t *testing.T) {
	f := Register(t, fuel.CUDA, FakeOptions{Devices: 2})
	s := bytesOn(t, f.Device(0), 10, 1)
	var report fuel.CopyReport
	for dev, path := range map[fuel.Device]fuel.CopyPath{f.Device(1): fuel.PathBounce, {}: fuel.PathDownload} {
		c := must[*fuel.Storage](t)(s.To(t.Context(), dev, &fuel.CopyOptions{Peer: true, Report: &report}))
		if report.Path != path || (report.Note != "") != (path == fuel.PathBounce) {
			t.Errorf("%+v", report)
		}
		c.Close()
	}
	s.Close()
}

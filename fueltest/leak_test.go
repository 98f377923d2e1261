package fueltest

import (
	"runtime"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/check"
)

func TestLeakCheckPasses(t *testing.T) {
	mustPass(t, record(t, func(t testing.TB) {
		LeakCheck(t)
		s := must[*fuel.Storage](t)(fuel.Alloc(fuel.Device{}, fuel.U8, 100, nil))
		c := must[*fuel.Storage](t)(s.Clone())
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		t.Cleanup(func() { _ = c.Close() }) // before LeakCheck looks
	}))
}

// TestLeakCheckWaits leaves the last Close to a goroutine.
func TestLeakCheckWaits(t *testing.T) {
	mustPass(t, record(t, func(t testing.TB) {
		LeakCheck(t)
		s := must[*fuel.Storage](t)(fuel.Alloc(fuel.Device{}, fuel.U8, 100, nil))
		time.AfterFunc(50*time.Millisecond, func() { _ = s.Close() })
	}))
}

func TestLeakCheckNamesEveryLeak(t *testing.T) {
	impatient(t)
	var left []*fuel.Storage
	failures := record(t, func(t testing.TB) {
		f := Register(t, fuel.CUDA, FakeOptions{})
		LeakCheck(t)
		for i, dev := range []fuel.Device{{}, f.Device(0), {}} {
			left = append(left, must[*fuel.Storage](t)(fuel.Alloc(dev, fuel.U8, 1000+i, nil)))
		}
		// One is closed; a View of another keeps its memory.
		left = append(left, must[*fuel.Storage](t)(left[1].View(0, 1)))
		_ = left[1].Close()
		_ = left[0].Close()
	})
	mustFail(t, failures, "1001 bytes of device memory on cuda:0, allocated at")
	mustFail(t, failures, " memory on cpu, allocated at")
	mustFail(t, failures, "TestLeakCheckNamesEveryLeak")
	if len(failures) != 3 { // and the fake's own
		t.Errorf("%d failures, want 3: %q", len(failures), failures)
	}
	_ = left[2].Close()
	_ = left[3].Close()
}

func TestLeakCheckSeesOnlyWhatCameLater(t *testing.T) {
	s := must[*fuel.Storage](t)(fuel.Alloc(fuel.Device{}, fuel.U8, 100, nil))
	mustPass(t, record(t, func(t testing.TB) { LeakCheck(t) }))
	_ = s.Close()
}

func TestDroppedStorageOnFakeFails(t *testing.T) {
	failures := record(t, func(t testing.TB) {
		f := Register(t, fuel.CUDA, FakeOptions{})
		if _, err := fuel.Alloc(f.Device(0), fuel.U8, 1000, nil); err != nil {
			t.Fatal(err)
		}
		if !patiently(func() bool { runtime.GC(); n, _ := f.Live(); return n == 0 }) {
			t.Fatal("the collector did not find the Storage")
		}
	})
	mustFail(t, failures, "1 Storages on cuda:0, of 1000 bytes, were dropped without Close")
}

func TestCheckedIsForOneTest(t *testing.T) {
	before := check.On()
	t.Run("inner", func(t *testing.T) {
		Checked(t)
		if !check.On() {
			t.Error("checked mode is off")
		}
		s := must[*fuel.Storage](t)(fuel.AllocUninit(fuel.Device{}, fuel.U8, 10, nil))
		defer s.Close()
		mustHold(t, s, 0xFF)
	})
	if check.On() != before {
		t.Error("checked mode outlives the test")
	}
}

// TestLeakIsNamedThoughTheCollectorFreedIt drops a Storage that the collector
// then frees, so that nothing is left at the end.
func TestLeakIsNamedThoughTheCollectorFreedIt(t *testing.T) {
	failures := record(t, func(t testing.TB) {
		LeakCheck(t)
		before := dropped(t)
		if _, err := fuel.Alloc(fuel.Device{}, fuel.U8, 1<<20, nil); err != nil {
			t.Fatal(err)
		}
		if !patiently(func() bool { runtime.GC(); return dropped(t).Leaks > before.Leaks }) {
			t.Fatal("the collector did not find the Storage")
		}
	})
	mustFail(t, failures, "allocated at")
}

func dropped(t testing.TB) fuel.Stats {
	return must[fuel.Stats](t)(fuel.MemStats(fuel.Device{}))
}

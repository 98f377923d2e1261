package fuel_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	kernels "github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/fueltest"
	"github.com/go-fuel/fuel/internal/require"
)

// pinner registers a fake that can page-lock host memory.
func pinner(t *testing.T, opt fueltest.FakeOptions) (*fueltest.Fake, fuel.Device) {
	t.Helper()
	if !kernels.HaveReserve {
		require.Skip(t, "mmap", "memory is the Go heap's")
	}
	opt.ImportAlign = os.Getpagesize()
	fake := fueltest.Register(t, fuel.CUDA, opt)
	fueltest.LeakCheck(t)
	return fake, fake.Device(0)
}

func pinnedFor(t testing.TB, dev fuel.Device, b []byte) *fuel.Storage {
	t.Helper()
	s := value(fuel.Alloc(cpu, fuel.U8, len(b), &fuel.Options{Pinned: dev}))(t)
	if in := s.Region(); !in.Pinned || in.PinnedFor != dev || in.PinnedRefused != "" {
		t.Fatalf("%+v", in)
	}
	value(s.WriteAt(b, 0))(t)
	return s
}

// Report 68 of USER-REPORTS.md: without the device, or where it refuses, the
// memory is ordinary, which is said; PinnedOnly makes it an error.
func TestPinnedFallsBackAndSaysWhy(t *testing.T) {
	dead := errors.New("the system locks no more memory")
	for name, c := range map[string]struct {
		why string
		set func(t *testing.T) fuel.Device
	}{
		"no driver": {"not linked", func(*testing.T) fuel.Device { return fuel.Device{Kind: fuel.CUDA} }},
		"no device": {"the last one is cuda:0", func(t *testing.T) fuel.Device { f, _ := pinner(t, fueltest.FakeOptions{}); return f.Device(1) }},
		"no locking": {"does not page-lock", func(t *testing.T) fuel.Device {
			return fueltest.Register(t, fuel.CUDA, fueltest.FakeOptions{}).Device(0)
		}},
		"refused": {dead.Error(), func(t *testing.T) fuel.Device {
			f, d := pinner(t, fueltest.FakeOptions{})
			f.Fail(fueltest.OpPin, 1, dead)
			return d
		}},
		"lost device": {"lost", func(t *testing.T) fuel.Device { f, d := pinner(t, fueltest.FakeOptions{LostFrom: 1}); _ = f; return d }},
	} {
		t.Run(name, func(t *testing.T) {
			dev := c.set(t)
			before := inUse(t)
			s := value(fuel.Alloc(cpu, fuel.U8, 5000, &fuel.Options{Pinned: dev}))(t)
			if in := s.Region(); in.Pinned || !strings.Contains(in.PinnedRefused, c.why) || strings.HasPrefix(in.PinnedRefused, "fuel:") {
				t.Errorf("%+v", in)
			}
			wantBytes(t, "ordinary memory", s, make([]byte, 5000))
			if name == "refused" {
				succeeds(t, "the next one", s.Pin(t.Context(), dev))
			} else {
				_, err := fuel.Alloc(cpu, fuel.U8, 5000, &fuel.Options{Pinned: dev, PinnedOnly: true})
				wantErr(t, "PinnedOnly", err, fuel.ErrPinned)
				w := must(t)(fuel.Wrap(fuel.U8, value(kernels.Reserve(os.Getpagesize()))(t), nil))
				again := w.Pin(t.Context(), dev)
				closeAll(t, w)
				for _, err := range []error{err, again} { // the same, however it was asked for
					if text := err.Error(); !strings.Contains(text, c.why) || strings.Count(text, "fuel:") != 1 {
						t.Error(err)
					}
					if want := map[string]error{"no driver": fuel.ErrUnavailable, "no device": fuel.ErrUnavailable, "lost device": fuel.ErrDeviceLost}[name]; want != nil && !errors.Is(err, want) {
						t.Errorf("%v is no %v", err, want)
					}
				}
			}
			closeAll(t, s)
			if n := inUse(t); n != before {
				t.Errorf("%d bytes stay in use", n-before)
			}
		})
	}
	_, err := fuel.Alloc(cpu, fuel.U8, 1, &fuel.Options{PinnedOnly: true})
	wantErr(t, "PinnedOnly for no device", err, fuel.ErrMismatch)
	for _, dev := range []fuel.Device{{Kind: fuel.CPU, Index: 1}, {Kind: 99}} {
		_, err := fuel.Alloc(cpu, fuel.U8, 1, &fuel.Options{Pinned: dev, PinnedOnly: true})
		if err == nil {
			t.Errorf("page-locked for %s", dev)
		}
	}
	s := value(fuel.Alloc(cpu, fuel.U8, 0, &fuel.Options{PinnedOnly: true, Pinned: fuel.CUDA.Device(0)}))(t)
	if in := s.Region(); in.Pinned || in.PinnedRefused != "" {
		t.Errorf("%+v", in)
	}
	closeAll(t, s)
}

// Report 41 of USER-REPORTS.md (pytorch#132485): a Clone of page-locked memory is
// one, and the private copy is page-locked, too.
func TestCloneOfPinnedMemoryIsASnapshot(t *testing.T) {
	fake, dev := pinner(t, fueltest.FakeOptions{})
	b := count(10_000)
	s := pinnedFor(t, dev, b)
	clone := must(t)(s.Clone())
	if in := clone.Region(); !in.Pinned || in.Owners != 2 || fake.Calls(fueltest.OpPin) != 1 {
		t.Errorf("%+v, %d calls", in, fake.Calls(fueltest.OpPin))
	}
	fill(t, s, 9)
	wantBytes(t, "the clone", clone, b)
	if in := s.Region(); !in.Pinned || fake.Calls(fueltest.OpPin) != 2 {
		t.Errorf("the private copy is %+v", in)
	}
	// A refusal is no failure of the write.
	fake.Fail(fueltest.OpPin, 1, errors.New("no more"))
	again := must(t)(s.Clone())
	fill(t, s, 8)
	if in := s.Region(); in.Pinned || !strings.HasSuffix(in.PinnedRefused, "no more") {
		t.Errorf("the private copy is %+v", in)
	}
	wantBytes(t, "the clone", again, bytes.Repeat([]byte{9}, len(b)))
	// On the way to the device and back.
	there := must(t)(again.To(t.Context(), dev, nil))
	back := must(t)(there.To(t.Context(), cpu, nil))
	if in := back.Region(); !in.Pinned || there.Region().Pinned {
		t.Errorf("back from the device it is %+v", in)
	}
	closeAll(t, s, clone, again, there, back)
}

// PlanCopy and CopyReport say that nothing is staged, and it is so.
func TestPinnedMemoryIsPlannedWithoutStaging(t *testing.T) {
	for name, opt := range map[string]fueltest.FakeOptions{"staged": {}, "non-coherent": {NonCoherent: true, Lazy: true}} {
		t.Run(name, func(t *testing.T) {
			_, dev := pinner(t, opt)
			b := count(100_000)
			s := pinnedFor(t, dev, b)
			ordinary := must(t)(fuel.FromBytes(cpu, fuel.U8, b))
			there := must(t)(fuel.Alloc(dev, fuel.U8, len(b), nil))
			for _, c := range []struct {
				dst, src *fuel.Storage
				staged   int
			}{{there, ordinary, len(b)}, {there, s, 0}, {s, there, 0}, {ordinary, there, len(b)}} {
				plan := value(fuel.PlanCopy(c.dst, c.src))(t)
				var r fuel.CopyReport
				succeeds(t, "copy", c.dst.CopyFrom(t.Context(), c.src, &fuel.CopyOptions{Report: &r}))
				if plan.Staged != c.staged || r.Staged != c.staged || strings.Contains(plan.Reason, "page-locked for cuda:0") != (c.staged == 0) {
					t.Errorf("planned %+v, went %+v, want %d staged", plan, r, c.staged)
				}
				wantBytes(t, "copy", c.dst, b)
			}
			closeAll(t, s, ordinary, there)
		})
	}
}

// Whoever pins first pins for all, and every loser leaves no trace.
func TestConcurrentPinsAreOne(t *testing.T) {
	fuel.ForcePool(t)
	fake, dev := pinner(t, fueltest.FakeOptions{Devices: 2})
	s := must(t)(fuel.FromBytes(cpu, fuel.U8, count(large)))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := s.Pin(context.Background(), dev); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantErr(t, "Pin for another device", s.Pin(t.Context(), fake.Device(1)), fuel.ErrPinned)
	if in := s.Region(); !in.Pinned {
		t.Errorf("%+v", in)
	}
	closeAll(t, s)
}

// Queued work that reads page-locked memory ends before the driver is told to let
// go, and that before the memory goes: the fake looks.
func TestPinnedMemoryOutlivesItsWork(t *testing.T) {
	_, dev := pinner(t, fueltest.FakeOptions{Lazy: true})
	b := count(10_000)
	s := pinnedFor(t, dev, b)
	to := must(t)(fuel.Alloc(cpu, fuel.U8, len(b), nil))
	q := value(fuel.QueueOf(cpu))(t)
	gate := make(chan struct{})
	value(q.WaitExternal(fuel.External{Done: gate}))(t)
	p := value(q.Copy(to, s))(t)
	before := value(fuel.MemStats(cpu))(t).Allocated
	closeAll(t, s)
	time.AfterFunc(5*time.Millisecond, func() { close(gate) })
	succeeds(t, "Wait", q.Wait(t.Context(), p))
	wantBytes(t, "the copy", to, b)
	eventually(t, "the memory is not given back", func() bool { return value(fuel.MemStats(cpu))(t).Allocated <= before-int64(len(b)) })
	closeAll(t, to)
}

// Pin of memory of the caller's own: it is his again only after the driver has
// let go.
func TestPinOfWrappedMemory(t *testing.T) {
	fake, dev := pinner(t, fueltest.FakeOptions{})
	mem := value(kernels.Reserve(4 * os.Getpagesize()))(t)
	released := false
	s := must(t)(fuel.Wrap(fuel.U8, mem, func() { released = true; succeeds(t, "release", kernels.Release(mem)) }))
	succeeds(t, "Pin", s.Pin(t.Context(), dev))
	if fake.Calls(fueltest.OpPin) != 1 || !s.Region().Pinned {
		t.Errorf("%+v", s.Region())
	}
	odd := must(t)(fuel.Wrap(fuel.U8, mem[1:], nil))
	wantErr(t, "Pin of parts of pages", odd.Pin(t.Context(), dev), fuel.ErrPinned)
	closeAll(t, odd, s)
	if !released {
		t.Error("not released")
	}
}

func succeeds(t testing.TB, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// The driver's own reasons are found by errors.Is.
func TestRefusalToPinIsTheErrorBehindIt(t *testing.T) {
	fake, dev := pinner(t, fueltest.FakeOptions{})
	for _, c := range []struct {
		want error
		says string
	}{{os.ErrPermission, "permission"}, {fuel.ErrOutOfMemory, "locks no more"}, {fuel.ErrDeviceLost, "lost"}} {
		want, says := c.want, c.says
		fake.Fail(fueltest.OpPin, 1, want)
		_, err := fuel.Alloc(cpu, fuel.U8, 100, &fuel.Options{Pinned: dev, PinnedOnly: true})
		if !errors.Is(err, fuel.ErrPinned) || !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v", want, err)
		}
	}
}

// A device whose granule is above the host's page gets whole ones, whatever the
// length.
func TestPinnedMemoryIsOfTheDevicesGranule(t *testing.T) {
	if !kernels.HaveReserve {
		require.Skip(t, "mmap", "memory is the Go heap's")
	}
	const granule = 64 << 10
	fake := fueltest.Register(t, fuel.Vulkan, fueltest.FakeOptions{ImportAlign: granule})
	dev := fake.Device(0)
	if d := value(fuel.Devices(t.Context()))(t); d[len(d)-1].HostAlign != granule || !d[len(d)-1].Pinned {
		t.Errorf("%+v", d)
	}
	for range 3 {
		before := value(fuel.MemStats(cpu))(t)
		var list []*fuel.Storage
		locked := int64(0)
		for _, n := range []int{1, 5000, granule, granule + 1, 1 << 20, 4<<20 + 5} {
			list = append(list, pinnedFor(t, dev, count(n)))
			locked += int64(n+granule-1) / granule * granule
		}
		now := value(fuel.MemStats(cpu))(t)
		if pieces, bytes := fake.Pinned(); pieces != len(list) || bytes != locked || now.Pinned-before.Pinned != locked || now.Padding-before.Padding != locked-(now.InUse-before.InUse) {
			t.Errorf("%d pieces of %d bytes, of %d, %+v after %+v", pieces, bytes, locked, now, before)
		}
		closeAll(t, list...)
		if now := value(fuel.MemStats(cpu))(t); now.Pinned != before.Pinned || now.Padding != before.Padding {
			t.Errorf("%+v after %+v", now, before)
		}
		if pieces, _ := fake.Pinned(); pieces != 0 {
			t.Errorf("%d pieces are left", pieces)
		}
	}
}

// What Pin has locked the private copy is, too, or says why not.
func TestPrivateCopyNeverLosesAPinSilently(t *testing.T) {
	fuel.ForcePool(t)
	fake, dev := pinner(t, fueltest.FakeOptions{})
	s := must(t)(fuel.FromBytes(cpu, fuel.U8, count(large)))
	succeeds(t, "Pin", s.Pin(t.Context(), dev))
	for _, want := range []string{"", "no more"} {
		if want != "" {
			fake.Fail(fueltest.OpPin, 1, errors.New(want))
		}
		clone := must(t)(s.Clone())
		fill(t, s, 7)
		if in := s.Region(); in.Pinned != (want == "") || !strings.HasSuffix(in.PinnedRefused, want) {
			t.Errorf("%+v", in)
		}
		closeAll(t, clone)
	}
	closeAll(t, s)
}

// The reason that lies in the memory comes first: it is the same without a GPU.
func TestPinSaysWhatIsWrongWithTheMemory(t *testing.T) {
	_, dev := pinner(t, fueltest.FakeOptions{})
	page := os.Getpagesize()
	mem := value(kernels.Reserve(4 * page))(t)
	small := must(t)(fuel.FromBytes(cpu, fuel.U8, count(100)))
	begins := must(t)(fuel.Wrap(fuel.U8, mem[64:], nil))
	ends := must(t)(fuel.Wrap(fuel.U8, mem[:page+5], nil))
	for s, says := range map[*fuel.Storage]string{begins: "begins 64 after a multiple", ends: "are no multiple", small: ""} {
		err := s.Pin(t.Context(), dev)
		if small := says == ""; !errors.Is(err, fuel.ErrPinned) || !strings.Contains(err.Error(), says) || small && !strings.Contains(err.Error(), "Go heap") && !strings.Contains(err.Error(), "small block") {
			if os.Getenv("FUEL_CHECK") == "" || !small {
				t.Errorf("want %q: %v", says, err)
			}
		}
	}
	err := small.Pin(t.Context(), fuel.Metal.Device(9))
	if os.Getenv("FUEL_CHECK") == "" && errors.Is(err, fuel.ErrUnavailable) {
		t.Error(err)
	}
	closeAll(t, small, begins, ends)
	succeeds(t, "release", kernels.Release(mem))
}

// Pin for a device that was lost is not Pin for the one that Reprobe opened.
func TestPinIsNeverOfADeviceThatIsLost(t *testing.T) {
	fake, dev := pinner(t, fueltest.FakeOptions{})
	s := pinnedFor(t, dev, count(10_000))
	before := value(fuel.MemStats(cpu))(t).Pinned
	there := must(t)(fuel.Alloc(dev, fuel.U8, 10, nil))
	fake.Lose()
	if _, err := there.WriteAt([]byte{1}, 0); !errors.Is(err, fuel.ErrDeviceLost) {
		t.Fatal(err)
	}
	fuel.Reprobe(t.Context())
	now := must(t)(fuel.Alloc(dev, fuel.U8, 10_000, nil))
	eventually(t, "Pin never succeeds", func() bool { return s.Pin(t.Context(), dev) == nil }) // the lost one is being closed
	if fake.Calls(fueltest.OpPin) < 2 {
		t.Error("Pin for a device that is lost succeeded")
	}
	var r fuel.CopyReport
	succeeds(t, "copy", now.CopyFrom(t.Context(), s, &fuel.CopyOptions{Report: &r}))
	if r.Staged != 0 {
		t.Errorf("%+v", r)
	}
	if n := value(fuel.MemStats(cpu))(t).Pinned; n != before {
		t.Errorf("%d bytes count as page-locked, and %d did", n, before)
	}
	closeAll(t, s, there, now)
}

package fuel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/check"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
	"github.com/go-fuel/fuel/internal/track"
)

// forcePool makes a race build use the pool until the test ends.
func forcePool(t *testing.T) {
	t.Helper()
	if !cpu.HaveReserve {
		require.Skip(t, "mmap", "memory is the Go heap's")
	}
	before := poolUnderRace
	poolUnderRace = true
	t.Cleanup(func() { poolUnderRace = before })
}

// unchecked turns checked mode off until the test ends: in it nothing is
// cached.
func unchecked(t *testing.T) {
	before := check.Set(false)
	t.Cleanup(func() { check.Set(before) })
}

func limit(t *testing.T, dev Device, n int64) {
	t.Helper()
	if err := SetLimit(dev, n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := SetLimit(dev, -1); err != nil {
			t.Error(err)
		}
	})
}

func stats(t *testing.T, dev Device) Stats {
	t.Helper()
	s, err := MemStats(dev)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newOf(t *testing.T, n int, opt *Options) *Storage {
	t.Helper()
	s, err := Alloc(Device{}, U8, n, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeAll(t *testing.T, ss ...*Storage) {
	t.Helper()
	for _, s := range ss {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Only a limit of the user's refuses before the system does, and its error has
// the numbers.
func TestLimitRefusesWithItsNumbers(t *testing.T) {
	base := stats(t, Device{}).Allocated
	limit(t, Device{}, base+10<<20)
	a := newOf(t, 6<<20, nil)
	check := func(what string, err error, n int64) {
		t.Helper()
		var oom *OutOfMemoryError
		if !errors.Is(err, ErrOutOfMemory) || !errors.As(err, &oom) {
			t.Fatalf("%s: %v", what, err)
		}
		if oom.Device != (Device{}) || oom.Requested != n || oom.Limit != base+10<<20 || oom.InUse != base+6<<20 || oom.Err != nil || oom.Scope != "" {
			t.Errorf("%s: %+v", what, oom)
		}
		if oom.Requested+oom.InUse <= oom.Limit {
			t.Errorf("%s: it would have fitted: %+v", what, oom)
		}
		if s := stats(t, Device{}); s.Allocated != base+6<<20 || s.Limit != base+10<<20 {
			t.Errorf("%s: %+v", what, s)
		}
	}
	_, err := Alloc(Device{}, U8, 4<<20+1, nil)
	check("Alloc", err, 4<<20+1)
	most := int64(min(40<<30, math.MaxInt/2))
	_, err = Alloc(Device{}, U8, int(most), nil)
	check("40 GiB", err, most)
	c, err := a.Clone()
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.WriteAt([]byte{1}, 0) // a private copy counts
	check("a private copy", err, 6<<20)
	w, err := Wrap(U8, make([]byte, 50<<20), nil) // what others allocated does not
	if err != nil {
		t.Fatal(err)
	}
	b := newOf(t, 4<<20, nil) // exactly
	closeAll(t, a, b, c, w)
	limit(t, Device{}, 0)
	if _, err = Alloc(Device{}, U8, 1, nil); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("a limit of 0: %v", err)
	}
	closeAll(t, newOf(t, 0, nil)) // takes nothing
	limit(t, Device{}, -1)
	closeAll(t, newOf(t, 20<<20, nil))
	if s := stats(t, Device{}); s.Allocated != base || s.Limit != -1 {
		t.Errorf("%+v", s)
	}
}

// What is kept for reuse and what is in use stay below the limit together.
func TestCacheStaysBelowTheLimit(t *testing.T) {
	forcePool(t)
	unchecked(t)
	base := stats(t, Device{}).Allocated
	var ss []*Storage
	for range 8 {
		s := newOf(t, 3<<20, nil)
		if err := s.Fill(context.Background(), []byte{1}); err != nil {
			t.Fatal(err)
		}
		ss = append(ss, s)
	}
	closeAll(t, ss...)
	if s := stats(t, Device{}); s.Cached < 24<<20 || s.LargestCached < 3<<20 {
		t.Fatalf("nothing is kept: %+v", s)
	}
	limit(t, Device{}, base+12<<20)
	if s := stats(t, Device{}); s.Cached > 12<<20 {
		t.Errorf("after SetLimit: %+v", s)
	}
	s := newOf(t, 10<<20, nil)
	if s := stats(t, Device{}); s.Cached > 2<<20 {
		t.Errorf("after Alloc: %+v", s)
	}
	closeAll(t, s)
}

// Refusing and counting hold when many allocate at once.
func TestLimitIsNeverPassedInParallel(t *testing.T) {
	forcePool(t)
	base := stats(t, Device{}).Allocated
	const most = 1 << 20
	limit(t, Device{}, base+most)
	scope := NewScope("some", most/2)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			var opt *Options
			if i%2 == 0 {
				opt = &Options{Scope: scope}
			}
			for range 500 {
				s, err := Alloc(Device{}, U8, 200_000, opt)
				if err != nil {
					if !errors.Is(err, ErrOutOfMemory) {
						t.Error(err)
					}
					continue
				}
				if n := hostDevice.quota.used.Load(); n > base+most {
					t.Errorf("%d bytes", n-base)
				}
				if n := scope.Stats().InUse; n > most/2 {
					t.Errorf("%d bytes in the scope", n)
				}
				closeAll(t, s)
			}
		})
	}
	wg.Wait()
	if s := scope.Stats(); s.InUse != 0 || s.Regions != 0 || s.Peak > most/2 || s.Peak == 0 {
		t.Errorf("%+v", s)
	}
	if n := stats(t, Device{}).Allocated; n != base {
		t.Errorf("%d bytes are left", n-base)
	}
}

func TestScopeCountsWhatIsItsOwn(t *testing.T) {
	base := stats(t, Device{}).Allocated
	scope := NewScope("model", 10<<20)
	opt := &Options{Scope: scope}
	a := newOf(t, 4<<20, opt)
	other := newOf(t, 30<<20, nil)
	if got, want := scope.Stats(), (ScopeStats{Name: "model", InUse: 4 << 20, Peak: 4 << 20, Limit: 10 << 20, Regions: 1}); got != want {
		t.Errorf("%+v", got)
	}
	if i := a.Region(); i.Scope != "model" {
		t.Errorf("%+v", i)
	}
	if i := other.Region(); i.Scope != "" {
		t.Errorf("%+v", i)
	}
	closeAll(t, newOf(t, 8<<20, nil)) // is kept
	_, err := Alloc(Device{}, U8, 7<<20, opt)
	var oom *OutOfMemoryError
	if c := hostDevice.cache(); !errors.As(err, &oom) || oom.Scope != "model" || oom.Limit != 10<<20 || oom.InUse != 4<<20 || oom.Requested != 7<<20 || oom.Cached != c.Bytes || oom.LargestCached != c.Largest {
		t.Errorf("%+v", err)
	} else if text := oom.Error(); !strings.Contains(text, `limit 10485760 of scope "model"`) {
		t.Error(text)
	}
	c, err := a.Clone()
	if err != nil {
		t.Fatal(err)
	}
	if scope.Stats().InUse != 4<<20 {
		t.Error("a clone counts")
	}
	if _, err := c.WriteAt([]byte{1}, 0); err != nil {
		t.Fatal(err)
	}
	if s := scope.Stats(); s.InUse != 8<<20 || s.Regions != 2 {
		t.Errorf("after a private copy: %+v", s)
	}
	d, err := a.Clone()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.WriteAt([]byte{1}, 0); !errors.As(err, &oom) || oom.Scope != "model" {
		t.Errorf("a private copy beyond the limit: %v", err)
	}
	// The device's limit comes after the scope's and leaves it as it was.
	limit(t, Device{}, base+1)
	if _, err := Alloc(Device{}, U8, 1<<20, opt); !errors.As(err, &oom) || oom.Scope != "" {
		t.Errorf("%+v", err)
	}
	scope.SetLimit(-1)
	limit(t, Device{}, -1)
	closeAll(t, newOf(t, 20<<20, opt), a, c, d, other)
	if got, want := scope.Stats(), (ScopeStats{Name: "model", Peak: 28 << 20, Limit: -1, Refused: 2}); got != want {
		t.Errorf("%+v", got)
	}
}

// nil is no Scope, and no place to put a limit that nobody would hold.
func TestNilScopeTakesNoLimit(t *testing.T) {
	var none *Scope
	if none.Name() != "" || none.Stats() != (ScopeStats{Limit: -1}) {
		t.Errorf("%q, %+v", none.Name(), none.Stats())
	}
	closeAll(t, newOf(t, 100, &Options{Scope: none}))
	defer func() {
		if r := recover(); r != "fuel.Scope.SetLimit: the Scope is nil" {
			t.Errorf("recovered %v", r)
		}
	}()
	none.SetLimit(1)
}

// What queued work gives up when it has passed is kept within the limit too.
func TestQueuedFreeNeverCachesBeyondTheLimit(t *testing.T) {
	forcePool(t)
	unchecked(t)
	base := stats(t, Device{}).Allocated
	limit(t, Device{}, base+8<<20)
	a, b := newOf(t, 5<<20, nil), newOf(t, 3<<20, nil)
	q, err := QueueOf(Device{})
	if err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	if _, err := q.WaitExternal(External{Done: gate}); err != nil {
		t.Fatal(err)
	}
	p, err := q.Zero(a)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(t, a) // given up after p, and before what is queued now
	if p, err = q.Zero(b); err != nil {
		t.Fatal(err)
	}
	c := newOf(t, 4<<20, nil)
	open()
	if err := q.Wait(context.Background(), p); err != nil {
		t.Error(err)
	}
	if s := stats(t, Device{}); s.Cached > 1<<20 {
		t.Errorf("%+v", s)
	}
	closeAll(t, b, c)
}

// What is closed counts no more, also while queued work keeps it.
func TestQueuedWorkIsNotHeldAgainstALimit(t *testing.T) {
	base := stats(t, Device{}).Allocated
	scope := NewScope("queued", 6<<20)
	limit(t, Device{}, base+6<<20)
	a, b := newOf(t, 3<<20, &Options{Scope: scope}), newOf(t, 3<<20, &Options{Scope: scope})
	q, err := QueueOf(Device{})
	if err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	if _, err := q.WaitExternal(External{Done: gate}); err != nil {
		t.Fatal(err)
	}
	p, err := q.Copy(b, a)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(t, a)
	if n := scope.Stats().InUse; n != 3<<20 || stats(t, Device{}).Allocated != base+3<<20 {
		t.Errorf("%d bytes in the scope", n)
	}
	closeAll(t, newOf(t, 3<<20, &Options{Scope: scope}))
	open()
	if err := q.Wait(context.Background(), p); err != nil {
		t.Error(err)
	}
	closeAll(t, b)
	if n := scope.Stats().InUse; n != 0 || stats(t, Device{}).Allocated != base {
		t.Errorf("%d bytes are left in the scope", n)
	}
}

// tight is host memory that refuses until it was trimmed.
type tight struct {
	host
	kept, refuse int64
	trims, tries int
}

func (d *tight) Alloc(n int, zero bool) (backend.Buffer, error) {
	d.tries++
	if d.refuse > 0 && d.kept > 0 || d.refuse > 1 {
		return backend.Buffer{}, fmt.Errorf("full: %w", backend.ErrNoMemory)
	}
	return d.host.Alloc(n, zero)
}

func (d *tight) Trim(target int64) int64 {
	d.trims++
	freed := max(0, d.kept-target)
	d.kept -= freed
	return freed
}

func (d *tight) Cache() backend.CacheInfo {
	return backend.CacheInfo{Bytes: d.kept, Largest: d.kept / 2}
}
func (d *tight) Cached() int64                 { return d.kept }
func (d *tight) Memory() backend.MemInfo       { return backend.MemInfo{Total: 1000, Free: 500} }
func (d *tight) SetCache(int64, time.Duration) {}
func (d *tight) openIt(t *testing.T) (at Device) {
	drv := stub(CUDA)
	drv.Probe = oneDevice
	drv.Open = func(context.Context, int) (backend.Device, error) { return d, nil }
	install(t, drv)
	return Device{CUDA, 0}
}

// Report 58: an error though the cache held free memory. On every device: trim,
// ask once more, then the error.
func TestOutOfMemoryIsNotRaisedWhileTheCacheHoldsMemory(t *testing.T) {
	d := &tight{kept: 100, refuse: 1}
	dev := d.openIt(t)
	s, err := Alloc(dev, U8, 64, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAll(t, s)
	if d.trims != 1 || d.tries != 2 {
		t.Errorf("%d trims, %d tries", d.trims, d.tries)
	}
	d.refuse, d.kept, d.trims, d.tries = 2, 100, 0, 0
	if _, err = Alloc(dev, U8, 64, nil); !errors.Is(err, ErrOutOfMemory) || d.trims != 1 || d.tries != 2 {
		t.Errorf("%v, %d trims, %d tries", err, d.trims, d.tries)
	}
	d.trims, d.tries = 0, 0 // nothing to trim: nothing to ask again
	if _, err = Alloc(dev, U8, 64, nil); !errors.Is(err, ErrOutOfMemory) || d.tries != 1 {
		t.Errorf("%v, %d tries", err, d.tries)
	}
	if n := stats(t, dev).Allocated; n != 0 {
		t.Errorf("%d bytes counted of what was refused", n)
	}
}

// Report 55: users ask to free memory themselves, on every device.
func TestTrimIsNotMissingOnAnyDevice(t *testing.T) {
	d := &tight{kept: 100}
	dev := d.openIt(t)
	if freed, err := Trim(dev, 30); freed != 70 || err != nil {
		t.Error(freed, err)
	}
	if s := stats(t, dev); s.Cached != 30 || s.LargestCached != 15 {
		t.Errorf("%+v", s)
	}
	if _, err := Trim(Device{Kind: Metal}, 0); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	if !cpu.HaveReserve {
		return
	}
	forcePool(t)
	unchecked(t)
	closeAll(t, newOf(t, 5<<20, nil))
	before := stats(t, Device{}).Cached
	if freed, err := Trim(Device{}, 0); freed < 5<<20 || freed < before || err != nil {
		t.Errorf("%d of %d bytes, %v", freed, before, err)
	}
	if after := stats(t, Device{}).Cached; after != 0 && canTrimAll {
		t.Errorf("%d bytes are kept", after)
	}
	if err := SetCache(Device{}, CacheOptions{MaxBytes: -1}); err != nil {
		t.Error(err)
	}
	closeAll(t, newOf(t, 5<<20, nil))
	if after := stats(t, Device{}).Cached; after >= 5<<20 {
		t.Errorf("%d bytes are kept without a cache", after)
	}
	if err := SetCache(Device{}, CacheOptions{}); err != nil {
		t.Error(err)
	}
}

// In checked mode what is closed keeps its addresses and no memory: Trim must
// not count it, nor give it up for a target that it has nothing to do with.
func TestTrimCountsNoQuarantine(t *testing.T) {
	forcePool(t)
	before := check.Set(true)
	defer check.Set(before)
	h := hostDevice.be.(*host)
	kept := func() int {
		h.dead.mu.Lock()
		defer h.dead.mu.Unlock()
		return len(h.dead.blocks)
	}
	h.Trim(0)
	closeAll(t, newOf(t, 5<<20, nil))
	if s := stats(t, Device{}); s.Cached != 0 || kept() != 1 {
		t.Errorf("%d blocks in quarantine, %+v", kept(), s)
	}
	if freed, err := Trim(Device{}, 1<<20); freed != 0 || err != nil || kept() != 1 {
		t.Errorf("Trim to 1 MiB: %d bytes, %v, %d blocks in quarantine", freed, err, kept())
	}
	if freed, err := Trim(Device{}, 0); freed != 0 || err != nil || kept() != 0 {
		t.Errorf("Trim to 0: %d bytes, %v, %d blocks in quarantine", freed, err, kept())
	}
}

// What Leaks counts was freed; a small block that nobody looks after is not
// counted, and stays in InUse, so that MemStats tells of it all the same.
func TestLeaksCountNothingThatIsNotFreed(t *testing.T) {
	for _, c := range []struct {
		size    int
		checked bool
		found   bool
	}{{100, false, false}, {hookedFrom - 1, false, false}, {hookedFrom, false, true}, {100, true, true}} {
		before := check.Set(c.checked)
		base := stats(t, Device{})
		var m *memory
		func() {
			s := newOf(t, c.size, nil)
			m = loadRegion(&s.own.r).mem
		}()
		tries := 5
		if c.found { // by another goroutine
			tries = 1000
		}
		for i := 0; i < tries && stats(t, Device{}).InUse != base.InUse; i++ {
			runtime.GC()
			time.Sleep(time.Millisecond)
		}
		s := stats(t, Device{})
		want := base
		if c.found {
			want.Leaks++
			want.Leaked += int64(c.size)
		} else {
			want.InUse += int64(c.size)
			want.Regions++
		}
		if s.Leaks != want.Leaks || s.Leaked != want.Leaked || s.InUse != want.InUse || s.Regions != want.Regions {
			t.Errorf("%d bytes, checked %v: %+v, want %+v", c.size, c.checked, s, want)
		}
		if !c.found {
			m.release()
		}
		check.Set(before)
	}
}

// Report 59: an error that helps nobody.
func TestOutOfMemoryErrorHidesNothing(t *testing.T) {
	defer track.Start()()
	d := &tight{}
	dev := d.openIt(t)
	limit(t, dev, 100)
	var ss []*Storage
	for range 3 {
		s, err := Alloc(dev, U8, 20, nil) // one place
		if err != nil {
			t.Fatal(err)
		}
		ss = append(ss, s)
	}
	s, err := Alloc(dev, U8, 30, nil) // another
	if err != nil {
		t.Fatal(err)
	}
	d.kept = 8
	_, err = Alloc(dev, U8, 11, nil)
	var oom *OutOfMemoryError
	if !errors.As(err, &oom) {
		t.Fatal(err)
	}
	if oom.Requested != 11 || oom.Limit != 100 || oom.InUse != 90 || oom.Free != 500 || oom.Cached != 8 || oom.LargestCached != 4 {
		t.Errorf("%+v", oom)
	}
	if n := len(oom.TopSites); n != 2 || oom.TopSites[0].Bytes != 60 || oom.TopSites[0].Regions != 3 || oom.TopSites[1].Bytes != 30 {
		t.Errorf("%+v", oom.TopSites)
	}
	for _, part := range []string{"11 bytes", "limit 100", "90 in use", "8 cached (largest 4)", "500 free", "60 bytes in 3 by"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in: %v", part, err)
		}
	}
	closeAll(t, append(ss, s)...)
}

// Memory that a limit does not count is no reason for its refusal.
func TestSitesNeverHoldWhatTheLimitDoesNotCount(t *testing.T) {
	defer track.Start()()
	dev := (&tight{}).openIt(t)
	mine, other := NewScope("mine", 100), NewScope("other", -1)
	// held is what places in this test hold, by the error of n bytes more.
	held := func(n int, opt *Options) (sum int64) {
		t.Helper()
		var oom *OutOfMemoryError
		if _, err := Alloc(Device{}, U8, n, opt); !errors.As(err, &oom) {
			t.Fatal(err)
		}
		for _, s := range oom.TopSites {
			if strings.Contains(s.At, t.Name()) {
				sum += s.Bytes
			}
		}
		return sum
	}
	base := stats(t, Device{}).Allocated
	wrapped, err := Wrap(U8, make([]byte, 1<<20), nil)
	if err != nil {
		t.Fatal(err)
	}
	onDevice, err := Alloc(dev, U8, 10, &Options{Scope: mine})
	if err != nil {
		t.Fatal(err)
	}
	all := []*Storage{wrapped, onDevice, newOf(t, 50, nil), newOf(t, 60, &Options{Scope: other}), newOf(t, 70, &Options{Scope: mine})}
	if n := held(21, &Options{Scope: mine}); n != 80 {
		t.Errorf("a Scope that has 80 bytes: %d", n)
	}
	limit(t, Device{}, base+200)
	if n := held(21, nil); n != 180 {
		t.Errorf("a device that has 180 bytes: %d", n)
	}
	if n := held(21, &Options{Scope: other}); n != 180 { // the Scope has room
		t.Errorf("a device that has 180 bytes, in a Scope: %d", n)
	}
	closeAll(t, all...)
	if n := held(101, &Options{Scope: mine}); n != 0 {
		t.Errorf("an empty Scope: %d", n)
	}
	if n := held(201, nil); n != 0 {
		t.Errorf("an empty device: %d", n)
	}
}

// Report 60: free memory of the host, in a container that may have a quarter
// of it, until the kernel ends the process.
func TestWouldFitIsNotFooledByTheHost(t *testing.T) {
	unchecked(t)
	if _, err := Trim(Device{}, 0); err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for name, s := range map[string]string{
		"proc/meminfo":                     "MemTotal: 450800000 kB\nMemAvailable: 440000000 kB\n",
		"proc/self/cgroup":                 "0::/pod/box\n",
		"proc/self/mountinfo":              "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/pod/box/memory.max": "max\n",
		"sys/fs/cgroup/pod/memory.max":     "107374182400\n", // 100 GiB
		"sys/fs/cgroup/pod/memory.current": "64424509440\n",  // 60 GiB
	} {
		files[name] = &fstest.MapFile{Data: []byte(s)}
	}
	before := hostBudget
	hostBudget = func() cpu.Budget { return cpu.ReadBudget(files) }
	defer func() { hostBudget = before }()
	const gib = int64(1 << 30)
	slack := stats(t, Device{}).Cached // counts as available
	if f := WouldFit(Device{}, 40*gib); f.State != Fits || f.Available != 40*gib+slack || f.By != "cgroup /sys/fs/cgroup/pod" {
		t.Errorf("%+v", f)
	}
	if f := WouldFit(Device{}, 41*gib); f.State != FitsNot {
		t.Errorf("%+v", f)
	}
	limit(t, Device{}, stats(t, Device{}).Allocated+gib)
	if f := WouldFit(Device{}, 2*gib); f.State != FitsNot || f.Available != gib || f.By != "limit" {
		t.Errorf("%+v", f)
	}
	if f := WouldFit(Device{}, gib); f.State != Fits {
		t.Errorf("%+v", f)
	}
	hostBudget = func() cpu.Budget { return cpu.Budget{Total: -1, Free: -1} }
	if f := WouldFit(Device{}, 1); f.State != FitUnknown || f.Available != gib {
		t.Errorf("below the limit, on a host that does not tell: %+v", f)
	}
	if f := WouldFit(Device{}, 2*gib); f.State != FitsNot {
		t.Errorf("above the limit, on a host that does not tell: %+v", f)
	}
	limit(t, Device{}, -1)
	if f := WouldFit(Device{}, 1); f.State != FitUnknown || f.Available != -1 || f.By == "" {
		t.Errorf("%+v", f)
	}
	if f := WouldFit(Device{Kind: Metal}, 1); f.State != FitUnknown || f.By == "" {
		t.Errorf("%+v", f)
	}
	d := &tight{kept: 100}
	dev := d.openIt(t)
	if f := WouldFit(dev, 600); f.State != Fits || f.Available != 600 || f.By != "device" {
		t.Errorf("%+v", f)
	}
	if f := WouldFit(dev, 601); f.State != FitsNot {
		t.Errorf("%+v", f)
	}
}

// Report 70: huge pages are for those who ask, and who asks hears what came of
// it.
func TestHugePagesAreNotSilent(t *testing.T) {
	for _, c := range []struct {
		n    int
		ask  bool
		want []HugePages
	}{
		{8 << 20, false, []HugePages{HugePagesNotAsked}},
		{8 << 20, true, []HugePages{HugePagesRequested, HugePagesRefused}},
		{4096, true, []HugePages{HugePagesRefused}},
	} {
		s := newOf(t, c.n, &Options{HugePages: c.ask})
		i := s.Region()
		if ok := i.HugePages == c.want[0] || i.HugePages == c.want[len(c.want)-1]; !ok || (i.HugePages == HugePagesRefused) != (i.HugePagesRefused != "") {
			t.Errorf("%d bytes, asked %v: %+v", c.n, c.ask, i)
		}
		if race.Enabled && c.ask && i.HugePages != HugePagesRefused {
			t.Errorf("the Go heap: %+v", i)
		}
		t.Logf("%d bytes, asked %v: %s %s", c.n, c.ask, i.HugePages, i.HugePagesRefused)
		closeAll(t, s)
	}
	d := &tight{}
	s, err := Alloc(d.openIt(t), U8, 4<<20, &Options{HugePages: true})
	if err != nil {
		t.Fatal(err)
	}
	if i := s.Region(); i.HugePages != HugePagesRefused || i.HugePagesRefused != "not host memory" {
		t.Errorf("%+v", i)
	}
	closeAll(t, s)
}

// Report 67: a new Storage holds garbage of an old one, or AllocUninit looks
// zeroed.
func TestNewStorageHoldsNoGarbage(t *testing.T) {
	forcePool(t)
	alone := &hostDevice.be.(*host).alone
	for _, mode := range []string{"plain", "checked", "checked, with as many mappings as may be"} {
		checked := mode != "plain"
		before := check.Set(checked)
		if strings.Contains(mode, "many") {
			alone.Add(maxAlone)
			defer alone.Add(-maxAlone)
		}
		for _, n := range []int{1, 100, 5000, 100_000, 3 << 20} {
			for range 3 {
				s, err := AllocUninit(Device{}, U8, n, nil)
				if err != nil {
					t.Fatal(err)
				}
				if checked && !holds(t, s, 0xFF) {
					t.Errorf("%s: %d bytes of AllocUninit are not poisoned", mode, n)
				}
				if err := s.Fill(context.Background(), []byte{0xA5}); err != nil {
					t.Fatal(err)
				}
				closeAll(t, s)
				s = newOf(t, n, nil)
				if !holds(t, s, 0) {
					t.Errorf("%s: %d bytes of Alloc are not zero", mode, n)
				}
				closeAll(t, s)
			}
		}
		check.Set(before)
	}
}

func holds(t *testing.T, s *Storage, v byte) bool {
	t.Helper()
	ok := true
	if err := s.Use(func(b []byte) error {
		ok = len(strings.Trim(string(b), string([]byte{v}))) == 0
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return ok
}

// More live blocks than mappings that a process may have, also in checked mode,
// where each would like one of its own.
func TestManyStoragesInCheckedMode(t *testing.T) {
	forcePool(t)
	if race.Enabled {
		require.Skip(t, "norace", "slow")
	}
	if runtime.GOOS != "linux" {
		require.Skip(t, "linux", "about vm.max_map_count")
	}
	before := check.Set(true)
	defer check.Set(before)
	ss := make([]*Storage, 140_000)
	for i := range ss {
		ss[i] = newOf(t, 64, nil)
	}
	most := 0
	for i := range ss { // every other one first: as many holes as there can be
		closeAll(t, ss[(i*2+i/(len(ss)/2))%len(ss)])
		if i == len(ss)/2 {
			maps, err := os.ReadFile("/proc/self/maps")
			if err != nil {
				t.Fatal(err)
			}
			most = strings.Count(string(maps), "\n")
		}
	}
	if most > 45_000 {
		t.Errorf("%d mappings, and 65,530 are allowed", most)
	}
	if n := hostDevice.be.(*host).alone.Load(); n != 0 {
		t.Errorf("%d mappings are counted", n)
	}
	if _, err := Trim(Device{}, 0); err != nil {
		t.Error(err)
	}
}

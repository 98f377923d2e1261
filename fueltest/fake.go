package fueltest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
)

// FakeOptions say what a fake is like. The zero value is one device of
// 256 MiB on which everything works.
type FakeOptions struct {
	Devices   int   // number of devices; 0 means 1
	Memory    int64 // bytes that each device has; 0 means 256 MiB. Only what is allocated costs host memory.
	MaxAlloc  int   // largest allocation in bytes; 0 means no limit but Memory
	Alignment int   // of every allocation, in bytes, a power of two; 0 means 256

	// Unified makes the device report that its memory is the host's. Transfers
	// then go there directly and wait for their turn, unless NonCoherent is
	// set; else they count as staged.
	Unified bool

	// ImportAlign makes the device able to use host memory as its own and to
	// page-lock it, see fuel.CopyOptions.Import and fuel.Options.Pinned: whole
	// pieces of so many bytes, a power of two (4096 on most GPUs). 0 means that
	// it cannot. To make it refuse, fail OpImport or OpPin.
	ImportAlign int

	// NonCoherent makes transfers go through host memory that the device sees
	// only after a flush, and the host only after an invalidation, both of
	// whole atoms of 64 bytes: as on many phones.
	NonCoherent bool

	// Delay is slept before each piece of queued work. Work runs in a
	// goroutine of its own, in order, also where Delay is zero.
	Delay time.Duration

	// Lazy makes queued work stay in the queue until somebody waits for it,
	// or for later work. Queue.Done alone never gets it going.
	Lazy bool

	// FailEvery makes every k-th call that can fail do so; 0 means none. See
	// Fake.FailEvery.
	FailEvery int

	// FailLate makes the failures of fills, copies and uploads come from the
	// wait for the work, after the call itself succeeded. The destination then
	// holds garbage.
	FailLate bool

	// LostFrom makes the devices lost with the n-th call that can fail, from
	// 1; 0 means never. See Fake.Lose.
	LostFrom int

	// The rest is what Probe shows. A fake with one of the four below has no
	// device.
	ProbeError    string // what a driver says that finds no library or device
	MissingSymbol string // a function that the library lacks
	ProbePanic    string // the driver panics with this text
	ProbeHang     bool   // the driver does not answer as long as the test runs

	ProbeDelay    time.Duration // before the driver answers
	Library       string        // the library that it loads; "" means "libfake.so.1"
	DriverVersion string        // "" means "1.0"

	// wrap, if not nil, replaces an opened device: for tests of this package.
	wrap func(*fakeDevice) backend.Device
}

func (o FakeOptions) withDefaults() FakeOptions {
	def := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	def(&o.Library, "libfake.so.1")
	def(&o.DriverVersion, "1.0")
	if o.Devices == 0 {
		o.Devices = 1
	}
	if o.Memory == 0 {
		o.Memory = 256 << 20
	}
	if o.Alignment == 0 {
		o.Alignment = 256
	}
	return o
}

// A Fake is a driver for tests, with devices that keep their bytes where the
// host cannot reach them.
//
// It is strict, and fails the test where fuel breaks the contract with its
// drivers: a length of zero, a range outside of an allocation, memory that was
// freed or is another device's, memory given back while queued work uses it,
// host memory that faults, a write to imported memory. Memory that was not asked to be zeroed holds 0xA5.
// Bytes around each allocation must stay as they were. An allocation that is
// there at the end of the test fails it too, as does host memory that is page-
// locked then: some Storage was not closed.
//
// Its methods are safe for use by several goroutines.
type Fake struct {
	t    testing.TB
	kind fuel.Kind
	opt  FakeOptions
	over chan struct{} // closed at the end: whatever hangs gives up
	stop func()        // ends the fake, once

	mu      sync.Mutex
	wake    sync.Cond // of mu: held, or a device's wanted, lost or closing changed
	devices []*fakeDevice
	held    bool
	ended   bool // t must not be used any more
	events  map[uint64]chan struct{}

	calls      [numOps]int
	zeroLength int
	failable   int // calls that can fail, for LostFrom
	every      int
	sinceEvery int
	faults     []fault
}

// A fault is one failure to come.
type fault struct {
	op   Op
	left int // calls until then
	err  error
}

// fakes holds the fake of each kind that has one now.
var fakes struct {
	sync.Mutex
	of map[fuel.Kind]*Fake
}

// Register makes a fake the driver of a Kind until the test ends: what a
// plugin registered before is out of the way so long, and its open devices are
// closed. Storages on the fake must be closed before the test ends.
//
// kind must not be CPU, and no other fake of that kind be there, else the test
// fails at once.
func Register(t testing.TB, kind fuel.Kind, opt FakeOptions) *Fake {
	t.Helper()
	if kind == fuel.CPU || int(kind) >= len(fuel.Kinds()) {
		t.Fatalf("fueltest.Register: there is no fake for %s", kind)
	}
	f := &Fake{
		t: t, kind: kind, opt: opt.withDefaults(), every: opt.FailEvery,
		over: make(chan struct{}), events: map[uint64]chan struct{}{},
	}
	f.wake.L = &f.mu
	fakes.Lock()
	defer fakes.Unlock()
	if fakes.of[kind] != nil {
		t.Fatalf("fueltest.Register: there is a fake %s already: parallel tests cannot have one each", kind)
	}
	if fakes.of == nil {
		fakes.of = map[fuel.Kind]*Fake{}
	}
	fakes.of[kind] = f
	restore := backend.Replace(backend.Kind(kind), &backend.Driver{
		Kind:    backend.Kind(kind),
		Package: "github.com/go-fuel/fuel/fueltest",
		Probe:   f.probe,
		Open:    f.open,
	})
	f.stop = sync.OnceFunc(func() { f.end(restore) })
	t.Cleanup(f.stop)
	return f
}

// fakeOf returns the fake of a kind, nil where there is none.
func fakeOf(kind fuel.Kind) *Fake {
	fakes.Lock()
	defer fakes.Unlock()
	return fakes.of[kind]
}

func (f *Fake) probe(context.Context) (backend.Info, error) {
	f.count(OpProbe)
	if f.opt.ProbeDelay > 0 {
		select {
		case <-time.After(f.opt.ProbeDelay):
		case <-f.over:
		}
	}
	if f.opt.ProbeHang {
		<-f.over
		return backend.Info{}, errors.New("the test is over")
	}
	if f.opt.ProbePanic != "" {
		panic(f.opt.ProbePanic)
	}
	if f.opt.ProbeError != "" {
		return backend.Info{}, errors.New(f.opt.ProbeError)
	}
	info := backend.Info{Library: f.opt.Library, DriverVersion: f.opt.DriverVersion}
	if f.opt.MissingSymbol != "" {
		return info, fmt.Errorf("%s, driver version %s, lacks the function %s: the driver is too old or too new",
			info.Library, info.DriverVersion, f.opt.MissingSymbol)
	}
	for i := range f.opt.Devices {
		info.Devices = append(info.Devices, backend.DeviceInfo{
			Name:      fmt.Sprintf("fake %s device %d", f.kind, i),
			UUID:      fmt.Sprintf("00000000-0000-0000-0000-%012d", i),
			Memory:    backend.MemInfo{Total: f.opt.Memory, Free: f.opt.Memory},
			MaxAlloc:  f.opt.MaxAlloc,
			Alignment: f.opt.Alignment,
			Unified:   f.opt.Unified,

			Pinned:     f.opt.ImportAlign > 0,
			HostImport: f.opt.ImportAlign > 0,
			HostAlign:  f.opt.ImportAlign,
		})
	}
	return info, nil
}

func (f *Fake) open(_ context.Context, index int) (backend.Device, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[OpOpen]++
	if err := f.due(OpOpen); err != nil {
		return nil, err
	}
	if index < 0 || index >= f.opt.Devices {
		f.violate("open of device %d of %d", index, f.opt.Devices)
	}
	d := newFakeDevice(f, index)
	f.devices = append(f.devices, d)
	if f.opt.wrap != nil {
		return f.opt.wrap(d), nil
	}
	return d, nil
}

// end takes the fake out again and says what was left behind.
func (f *Fake) end(restore func()) {
	f.Release()
	close(f.over)
	f.reportDropped()
	restore()
	fakes.Lock()
	delete(fakes.of, f.kind)
	fakes.Unlock()
	if !f.t.Failed() {
		patiently(func() bool { n, _ := f.Live(); return n == 0 })
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.devices {
		d.finish()
	}
	f.ended = true
}

// reportDropped fails the test for Storages that the collector had to free.
func (f *Fake) reportDropped() {
	f.mu.Lock()
	opened := map[int]bool{}
	for _, d := range f.devices {
		opened[d.index] = opened[d.index] || !d.lost
	}
	f.mu.Unlock()
	for i, ok := range opened {
		if !ok {
			continue
		}
		if s, err := fuel.MemStats(f.Device(i)); err == nil && s.Leaks > 0 {
			f.t.Errorf("fueltest: %d Storages on %s, of %d bytes, were dropped without Close", s.Leaks, f.Device(i), s.Leaked)
		}
	}
}

// violate fails the test for a breach of the contract. f.mu is held.
func (f *Fake) violate(format string, args ...any) {
	if !f.ended {
		f.t.Errorf("fueltest: fake %s: %s", f.kind, fmt.Sprintf(format, args...))
	}
}

// Device returns the fuel.Device with the given index.
func (f *Fake) Device(index int) fuel.Device { return fuel.Device{Kind: f.kind, Index: index} }

// Calls returns how often fuel asked for op so far, on all devices, whatever
// came of it.
func (f *Fake) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// ZeroLength returns how many calls had a length of zero. Each has failed the
// test.
func (f *Fake) ZeroLength() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.zeroLength
}

// Live returns the allocations of all devices that exist now, and their bytes.
// One that was given back counts until the work that uses it has passed.
func (f *Fake) Live() (allocations int, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.devices {
		d.reap()
		allocations += len(d.live)
		bytes += d.used
	}
	return allocations, bytes
}

// Pinned returns the pieces of host memory that are page-locked for a device of
// the fake now, and their bytes.
func (f *Fake) Pinned() (pieces int, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.devices {
		pieces += len(d.pins)
		for _, x := range d.pins {
			bytes += int64(len(x.mem))
		}
	}
	return pieces, bytes
}

// Hold stops the queues before their next piece of work, until Release. What
// waits for work waits so long.
func (f *Fake) Hold() { f.setHeld(true) }

// Release lets the queues run again.
func (f *Fake) Release() { f.setHeld(false) }

func (f *Fake) setHeld(held bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held = held
	f.wake.Broadcast()
}

// Lose makes all devices that are open now lost: their bytes are gone, the
// work in their queues fails, and so does every call but freeing and closing.
// After fuel.Reprobe the devices work anew.
func (f *Fake) Lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.devices {
		d.lose()
	}
}

// Fail makes the n-th call of op from now on fail, from 1. err is what the
// driver finds: fuel.ErrOutOfMemory, fuel.ErrDeviceLost (the device is lost
// then), fuel.ErrTooLarge, or any other error; nil is one that means nothing
// in particular. Several failures may be to come. It fails the test where op
// cannot fail.
func (f *Fake) Fail(op Op, n int, err error) {
	f.t.Helper()
	if n < 1 || !op.canFail() && op != OpOpen {
		f.t.Fatalf("fueltest: call %d of %s cannot be made to fail", n, op)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, fault{op, n, err})
}

// FailEvery makes every k-th call from now on fail, among those that can:
// allocations, fills, copies, uploads, downloads, waits, imports and page-locking.
// 0 ends that, and forgets what Fail said.
func (f *Fake) FailEvery(k int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.every, f.sinceEvery = k, 0
	if k == 0 {
		f.faults = nil
	}
}

// Event returns a handle for fuel.External, and the function that makes work
// which waits for it go on. signal may be called more than once.
func (f *Fake) Event() (handle uint64, signal func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := make(chan struct{})
	handle = uint64(len(f.events) + 1)
	f.events[handle] = c
	return handle, sync.OnceFunc(func() { close(c) })
}

func (f *Fake) count(op Op) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
}

// due returns the failure of this call of op, nil where it is none's turn.
// f.mu is held.
func (f *Fake) due(op Op) error {
	var err error
	left := f.faults[:0]
	for _, t := range f.faults {
		if t.op == op {
			t.left--
		}
		if t.left == 0 {
			err = injected(t.err)
			continue
		}
		left = append(left, t)
	}
	f.faults = left
	if op.canFail() && f.every > 0 {
		if f.sinceEvery++; f.sinceEvery%f.every == 0 && err == nil {
			err = injected(nil)
		}
	}
	return err
}

// errInjected is the failure that means nothing in particular.
var errInjected = errors.New("fueltest: injected failure")

// injected is what a driver says where fuel is to find err.
func injected(err error) error {
	for public, theirs := range map[error]error{
		fuel.ErrOutOfMemory: backend.ErrNoMemory,
		fuel.ErrDeviceLost:  backend.ErrLost,
		fuel.ErrTooLarge:    backend.ErrTooLarge,
	} {
		if errors.Is(err, public) {
			return fmt.Errorf("%w: %w", errInjected, theirs)
		}
	}
	if err == nil {
		return errInjected
	}
	return fmt.Errorf("%w: %w", errInjected, err)
}

// patience is how long to wait for what happens asynchronously. A variable for
// tests of what never happens.
var patience = 3 * time.Second

// patiently waits until done is true, for some seconds, and returns what it
// was last.
func patiently(done func() bool) bool {
	for end := time.Now().Add(patience); !done(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			return done()
		}
	}
	return true
}

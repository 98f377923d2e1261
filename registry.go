package fuel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/go-fuel/fuel/internal/backend"
)

// registry is the closed set of drivers: one slot a Kind, filled by Register
// in the init of a plugin. Its lock is never held while a driver runs.
var registry struct {
	mu    sync.Mutex
	slots [backend.NumKinds]slot
}

type slot struct {
	driver *backend.Driver
	probe  *probing         // nil before the first Probe and after Register
	open   map[int]*opening // devices that were asked for
}

// A probing is one run of a driver's Probe, shared by all who ask meanwhile
// and by all who ask afterwards.
type probing struct {
	done chan struct{} // closed when info and err are set
	info backend.Info
	err  error
}

// An opening is one run of a driver's Open.
type opening struct {
	done chan struct{}
	dev  *device
	err  error
}

// Register adds the driver of a Kind. Plugins of this module call it from
// init; the type of driver is internal, so nobody else can.
//
// It panics where the program is put together wrongly, with a text that says
// what to do: an unknown Kind, no driver, a second driver for a Kind, a driver
// of another Kind, a driver that lacks an operation.
func Register(kind Kind, driver *backend.Driver) {
	if err := register(kind, driver); err != nil {
		panic(err.Error())
	}
}

func register(kind Kind, d *backend.Driver) error {
	if err := checkDriver(kind, d); err != nil {
		return err
	}
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if old := registry.slots[kind].driver; old != nil {
		return fmt.Errorf("fuel.Register: two drivers for %s: %s and %s. Import one of them; if both have the same path, two copies of one module are vendored", kind, old.Package, d.Package)
	}
	registry.slots[kind] = slot{driver: d}
	return nil
}

func checkDriver(kind Kind, d *backend.Driver) error {
	switch {
	case !kind.known():
		return fmt.Errorf("fuel.Register: unknown kind %d: the plugin is of another version of fuel than the program", kind)
	case d == nil:
		return fmt.Errorf("fuel.Register: nil driver for %s", kind)
	case d.Package == "":
		return fmt.Errorf("fuel.Register: the driver for %s does not name its package", kind)
	case Kind(d.Kind) != kind:
		return fmt.Errorf("fuel.Register: %s registers for %s a driver of %s", d.Package, kind, Kind(d.Kind))
	case d.Probe == nil:
		return fmt.Errorf("fuel.Register: the driver of %s lacks Probe", d.Package)
	case d.Open == nil:
		return fmt.Errorf("fuel.Register: the driver of %s lacks Open", d.Package)
	}
	return nil
}

func init() {
	Register(CPU, hostDriver)
	backend.Replace = replace
}

// replace is backend.Replace: for tests, through fueltest.
func replace(k backend.Kind, d *backend.Driver) (restore func()) {
	if d != nil {
		if err := checkDriver(Kind(k), d); err != nil {
			panic(err.Error())
		}
	}
	swap := func(s slot) slot {
		registry.mu.Lock()
		old := registry.slots[k]
		registry.slots[k] = s
		registry.mu.Unlock()
		for _, o := range old.open {
			<-o.done
			if o.dev != nil {
				o.dev.close()
			}
		}
		return slot{driver: old.driver}
	}
	before := swap(slot{driver: d})
	return sync.OnceFunc(func() { swap(before) })
}

// start returns the probing of a Kind, running it where there was none, and
// nil where no driver is linked.
func start(k Kind) *probing {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	s := &registry.slots[k]
	if s.driver == nil {
		return nil
	}
	if s.probe == nil {
		p := &probing{done: make(chan struct{})}
		s.probe = p
		d := s.driver
		go func() {
			defer close(p.done)
			p.err = protect(d, "Probe", func() (err error) {
				// Shared by callers with contexts of their own, so no one
				// caller's context may end it.
				p.info, err = d.Probe(context.Background())
				return err
			})
		}()
	}
	return s.probe
}

// protect makes an error of a panic in a driver: a broken GPU stack must not
// take a program down that can go on without it.
func protect(d *backend.Driver, what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			buf := make([]byte, 4<<10)
			err = fmt.Errorf("BUG: %s of %s panicked: %v\n%s", what, d.Package, r, buf[:runtime.Stack(buf, false)])
		}
	}()
	return f()
}

// openDevice returns a device, probing and opening it at its first use. The
// CPU is there at once.
func openDevice(ctx context.Context, id Device) (*device, error) {
	if id == (Device{}) {
		return hostDevice, nil
	}
	if !id.Kind.known() || id.Index < 0 {
		return nil, fmt.Errorf("%w: there is no %s", ErrUnavailable, id)
	}
	p := start(id.Kind)
	if p == nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrUnavailable, id, notLinked(id.Kind))
	}
	if err := await(ctx, p.done); err != nil {
		return nil, fmt.Errorf("%w: %s: probing has not ended: %w", ErrUnavailable, id, err)
	}
	if n := len(p.info.Devices); id.Index >= n {
		switch {
		case p.err != nil:
			return nil, fmt.Errorf("%w: %s: %w", ErrUnavailable, id, p.err)
		case n == 0:
			return nil, fmt.Errorf("%w: %s: no device found", ErrUnavailable, id)
		}
		return nil, fmt.Errorf("%w: %s: the last one is %s", ErrUnavailable, id, Device{id.Kind, n - 1})
	}
	if err := p.info.Devices[id.Index].Broken; err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnavailable, id, err)
	}
	o := startOpen(id, p)
	if err := await(ctx, o.done); err != nil {
		return nil, fmt.Errorf("%w: %s: opening has not ended: %w", ErrUnavailable, id, err)
	}
	return o.dev, o.err
}

// await returns when c is closed, which counts first, or with ctx's error.
func await(ctx context.Context, c chan struct{}) error {
	if closed(c) {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func startOpen(id Device, p *probing) *opening {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	s := &registry.slots[id.Kind]
	if o := s.open[id.Index]; o != nil {
		return o
	}
	o := &opening{done: make(chan struct{})}
	if s.open == nil {
		s.open = map[int]*opening{}
	}
	s.open[id.Index] = o
	d := s.driver
	if d == nil { // a test took the driver away meanwhile
		o.err = fmt.Errorf("%w: %s: %s", ErrUnavailable, id, notLinked(id.Kind))
		close(o.done)
		return o
	}
	go func() {
		defer close(o.done)
		err := protect(d, "Open", func() error {
			be, err := d.Open(context.Background(), id.Index)
			if err == nil && be == nil {
				err = fmt.Errorf("BUG: Open of %s returned no device", d.Package)
			}
			if err == nil {
				o.dev = newDevice(id, be, p.info.Devices[id.Index])
			}
			return err
		})
		if err != nil {
			o.err = fmt.Errorf("%w: %s: %w", ErrUnavailable, id, err)
		}
	}()
	return o
}

func notLinked(k Kind) string {
	return fmt.Sprintf("not linked: add import _ %q to the program", k.Import())
}

// A State says how far a Kind can be used.
type State uint8

// The states.
const (
	NotLinked   State = iota // no driver in the program
	Unavailable              // a driver, but no library, hardware or permission
	Probing                  // the driver has not answered yet
	Available                // at least one device
)

var stateNames = []string{"not linked", "unavailable", "probing", "available"}

// String returns the state in lower case words.
func (s State) String() string { return name(s, stateNames, "state") }

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(text []byte) error { return unname(s, text, stateNames, "state") }

// BackendStatus tells of one Kind whether it can be used, and if not, why.
type BackendStatus struct {
	Kind  Kind  `json:"kind"`
	State State `json:"state"`

	// Reason is a sentence for a person: why the Kind is not available, or
	// what is unusual though it is. Empty where all is well.
	Reason string `json:"reason,omitempty"`

	// Err is the error behind Reason, nil where there is none.
	Err error `json:"-"`

	Import        string       `json:"import,omitempty"`  // the package that provides the Kind
	Library       string       `json:"library,omitempty"` // the vendor library that was loaded
	DriverVersion string       `json:"driverVersion,omitempty"`
	Tier          string       `json:"tier,omitempty"` // CPU: the implementation of the kernels in use
	Devices       []DeviceInfo `json:"devices,omitempty"`
}

// Probe finds out what every Kind can do, and returns one row for each, in the
// order of their values. The first call loads vendor libraries and may take
// seconds; its findings are kept until Reprobe.
//
// It never panics. It blocks until every driver has answered or ctx is done;
// a driver that has not answered by then is in state Probing, and goes on. Any
// number of goroutines may call it at once.
func Probe(ctx context.Context) []BackendStatus {
	var waits [backend.NumKinds]*probing
	for k := range waits {
		waits[k] = start(Kind(k))
	}
	rows := make([]BackendStatus, len(waits))
	for k, p := range waits {
		rows[k] = p.status(ctx, Kind(k))
	}
	return rows
}

// Reprobe forgets what earlier probes found and probes again: a device may
// have been plugged in, or lost. Devices that work stay open.
func Reprobe(ctx context.Context) []BackendStatus {
	var lost []*device
	registry.mu.Lock()
	for k := range registry.slots {
		s := &registry.slots[k]
		if s.probe != nil && s.probe.ended() {
			s.probe = nil
		}
		for i, o := range s.open {
			if !o.ended() || o.err == nil && !o.dev.lost.Load() {
				continue
			}
			delete(s.open, i)
			if o.dev != nil {
				lost = append(lost, o.dev)
			}
		}
	}
	registry.mu.Unlock()
	for _, d := range lost {
		go d.close() // a driver that lost its device may well hang
	}
	return Probe(ctx)
}

func (p *probing) ended() bool { return closed(p.done) }
func (o *opening) ended() bool { return closed(o.done) }

func closed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (p *probing) status(ctx context.Context, k Kind) BackendStatus {
	row := BackendStatus{Kind: k, Import: k.Import()}
	if p == nil {
		row.Reason = notLinked(k)
		return row
	}
	if err := await(ctx, p.done); err != nil {
		row.State, row.Err = Probing, err
		row.Reason = "the driver has not answered yet: " + err.Error()
		return row
	}
	row.Err = p.err
	row.Library, row.DriverVersion, row.Tier = p.info.Library, p.info.DriverVersion, p.info.Tier
	row.Reason = p.info.Note
	var left []string
	for i, d := range p.info.Devices {
		if d.Broken != nil {
			left = append(left, fmt.Sprintf("left out: %s: %v", Device{k, i}, d.Broken))
			continue
		}
		row.Devices = append(row.Devices, publicInfo(Device{k, i}, d))
	}
	row.State = Available
	if len(row.Devices) == 0 {
		row.State = Unavailable
		if row.Reason == "" {
			row.Reason = "no device found"
		}
	}
	if p.err != nil {
		row.Reason = p.err.Error()
	}
	if left != nil {
		row.Reason = strings.Join(append(left, slices.DeleteFunc([]string{row.Reason}, func(s string) bool { return s == "" })...), "; ")
	}
	return row
}

func publicInfo(id Device, d backend.DeviceInfo) DeviceInfo {
	return DeviceInfo{
		Device: id, Name: d.Name, UUID: d.UUID, Memory: MemoryInfo(d.Memory),
		MaxAlloc: d.MaxAlloc, Alignment: d.Alignment,
		Unified: d.Unified, Pinned: d.Pinned, Peer: d.Peer, HostImport: d.HostImport, HostAlign: d.HostAlign,
	}
}

// Devices lists every device that can be used now, the CPU first, without
// saying which to choose. The error joins those of the drivers that have not
// answered when ctx is done; the list is right without them. For the reason
// why a device is missing see Probe.
func Devices(ctx context.Context) ([]DeviceInfo, error) {
	var list []DeviceInfo
	var errs []error
	for _, row := range Probe(ctx) {
		list = append(list, row.Devices...)
		if row.State == Probing {
			errs = append(errs, fmt.Errorf("fuel: %s: %s: %w", row.Kind, row.Reason, row.Err))
		}
	}
	return list, errors.Join(errs...)
}

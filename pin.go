package fuel

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/go-fuel/fuel/internal/backend"
)

// A pinning is what came of a wish to page-lock memory. It does not change; nil
// is that nobody wished it.
type pinning struct {
	dev    Device
	d      *device      // which has it; nil where it was refused
	pin    backend.Pin  // nil where it was refused
	err    error        // then
	before *pinning     // that the driver ended: it may not have let go
	bytes  atomic.Int64 // that count as page-locked
}

var errNotWanted = errors.New("nobody asked for it")

// held is nil while the memory is page-locked.
func (p *pinning) held() error {
	switch {
	case p == nil:
		return errNotWanted
	case p.pin == nil:
		return p.err
	case !p.pin.Held():
		return fmt.Errorf("%s was closed: Pin locks it again", p.dev)
	}
	return nil
}

// end calls gone when no driver has to do with the memory any more.
func (p *pinning) end(gone func()) {
	switch {
	case p == nil:
		gone()
	case p.pin == nil:
		p.before.end(gone)
	default:
		p.pin.Unpin(func() {
			p.uncount()
			p.before.end(gone)
		})
	}
}

// uncount ends that its bytes count.
func (p *pinning) uncount() { hostDevice.be.(*host).pinned.Add(-p.bytes.Swap(0)) }

// notPinned is an ErrPinned that says why.
func notPinned(err error) error { return &pinError{err} }

type pinError struct{ err error }

func (e *pinError) Error() string   { return ErrPinned.Error() + ": " + text(e.err) }
func (e *pinError) Unwrap() []error { return []error{ErrPinned, e.err} }

// Pin page-locks the host memory that s has now for a GPU, as Options.Pinned
// does for new memory: copies between it and that device go directly then. All
// of the memory is page-locked, also where s is a View of a part, and stays so
// until its last Storage is closed, or the device is lost and Reprobe has closed
// it. To pin it again for the same device does nothing; no bytes is no error.
//
// It is for memory of whole pages (DeviceInfo.HostAlign): what Wrap got from mmap
// or its like, at the border of a page and of whole pages, that can be written
// and is in no other Storage; and Storages above 1 MiB, in checked mode all, in
// race builds none. Go's heap should not be pinned: a device would read and
// write there, and Go knows of none. All else, and what the driver refuses, is
// ErrPinned, with the reason, and s is as it was: a mapped file above all, whose
// pages drivers take badly (llama.cpp#6206), and shared memory, which could not
// be sealed then. Memory is page-locked for one device at a time.
//
// Private copies are page-locked as well where they can be; RegionInfo tells.
//
// ctx bounds the wait for a device that is not open yet. The page-locking itself
// takes about as long as writing to all of the memory. Other goroutines may use
// s meanwhile, and it may be called from within Mutate. An ErrPinned is the
// error behind it as well: ErrUnavailable, ErrDeviceLost, ErrOutOfMemory where
// the system locks no more. Other errors: ErrClosed, ErrNotHost, ErrMismatch for
// the CPU.
func (s *Storage) Pin(ctx context.Context, dev Device) error {
	return s.fail("Pin", s.pinFor(ctx, dev))
}

func (s *Storage) pinFor(ctx context.Context, dev Device) error {
	r, err := s.pin()
	if err != nil {
		return err
	}
	defer r.unpin()
	switch {
	case dev.Kind == CPU:
		return fmt.Errorf("%w: memory is page-locked for a GPU, and not for %s", ErrMismatch, dev)
	case !r.host():
		return ErrNotHost
	case s.size == 0:
		return nil
	}
	return r.mem.pinFor(ctx, dev)
}

// pinFor page-locks m.
func (m *memory) pinFor(ctx context.Context, dev Device) error {
	all, err := m.pages()
	if err != nil {
		return notPinned(err)
	}
	l, err := lockOf(ctx, dev)
	if err != nil {
		return notPinned(err)
	}
	for {
		before := m.pinning.Load()
		if before.held() == nil {
			switch {
			case before.dev != dev:
				return notPinned(fmt.Errorf("it is page-locked for %s", before.dev))
			case before.d != l.d:
				return notPinned(fmt.Errorf("it is page-locked for %s as that was before Reprobe, which is being closed", dev))
			}
			return nil
		}
		p, err := l.pin(m, all)
		if err != nil {
			return notPinned(err)
		}
		p.before = before
		if m.pinning.CompareAndSwap(before, p) {
			if before != nil {
				before.uncount()
			}
			return nil
		}
		p.before = nil
		p.end(func() {}) // another goroutine was faster
	}
}

// A lock is a device that can page-lock memory, or why there is none.
type lock struct {
	dev Device
	d   *device
	p   backend.Pinner
	err error
}

// wanted is what to page-lock new memory on a device with, nil where nobody
// wishes it.
func wanted(ctx context.Context, on *device, dev Device) *lock {
	if on.id.Kind != CPU || dev == (Device{}) {
		return nil
	}
	l, err := lockOf(ctx, dev)
	if err != nil {
		return &lock{dev: dev, err: err}
	}
	return l
}

func lockOf(ctx context.Context, dev Device) (*lock, error) {
	d, err := openDevice(ctx, dev)
	if err == nil {
		err = d.usable()
	}
	if err != nil {
		return nil, err
	}
	p, ok := d.be.(backend.Pinner)
	if !ok || p.PinAlign() == 0 {
		return nil, fmt.Errorf("%s does not page-lock host memory", dev)
	}
	return &lock{dev: dev, d: d, p: p}, nil
}

// unit is what address and length of memory must be multiples of, in bytes, 0
// where there is no device for it.
func (l *lock) unit() int {
	if l == nil || l.err != nil {
		return 0
	}
	return l.p.PinAlign()
}

// tryPin page-locks m, which is new, or notes why it is not.
func (m *memory) tryPin(l *lock) {
	err := l.err
	if err == nil {
		var all []byte
		if all, err = m.pages(); err == nil {
			var p *pinning
			if p, err = l.pin(m, all); err == nil {
				m.pinning.Store(p)
				return
			}
		}
	}
	m.pinning.Store(&pinning{dev: l.dev, err: err})
}

// pin page-locks m, around which are all.
func (l *lock) pin(m *memory, all []byte) (*pinning, error) {
	unit := l.p.PinAlign()
	mem, _, ok := around(all, m.buf.Host, unit)
	if !ok {
		if at := uintptr(unsafe.Pointer(unsafe.SliceData(all))) % uintptr(unit); at != 0 {
			return nil, fmt.Errorf("%s page-locks whole %d bytes, and it begins %d after a multiple of that", l.dev, unit, at)
		}
		return nil, fmt.Errorf("%s page-locks whole %d bytes, and its %d bytes are no multiple of that", l.dev, unit, len(all))
	}
	pin, err := l.p.Pin(mem)
	switch {
	case errors.Is(err, backend.ErrLost):
		return nil, l.d.noted(err, len(mem))
	case err != nil && noMemory(err):
		return nil, fmt.Errorf("%w: the system or the driver locks no more: %w", ErrOutOfMemory, err)
	case err != nil:
		return nil, fromDriver(err)
	}
	x := &pinning{dev: l.dev, d: l.d, pin: pin}
	x.bytes.Store(int64(len(mem)))
	hostDevice.be.(*host).pinned.Add(int64(len(mem)))
	return x, nil
}

// pages returns the memory around m that is nobody else's, or says why there is
// none that can be page-locked.
func (m *memory) pages() ([]byte, error) {
	switch m.kind {
	case MemoryHeap, MemoryAnonymous:
		all, why := m.dev.be.(*host).extent(m.buf)
		if why != "" {
			return nil, errors.New(why)
		}
		return all, nil
	case MemoryWrapped:
		return m.buf.Host, nil
	}
	return nil, fmt.Errorf("%s memory cannot be: copy it to memory of Options.Pinned", m.kind)
}

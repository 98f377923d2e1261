package fuel

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-fuel/fuel/internal/backend"
)

// A pinning is what came of a wish to page-lock memory. It does not change; nil
// is that nobody wished it.
type pinning struct {
	dev     Device
	pin     backend.Pin // nil where it was refused
	refused string
	before  *pinning // that the driver ended: it may not have let go
}

// outcome is what RegionInfo says.
func (p *pinning) outcome() (pinned bool, refused string) {
	switch {
	case p == nil:
		return false, ""
	case p.pin == nil:
		return false, p.refused
	case !p.pin.Held():
		return false, fmt.Sprintf("%s was closed", p.dev)
	}
	return true, ""
}

// end calls gone when no driver has to do with the memory any more.
func (p *pinning) end(gone func()) {
	switch {
	case p == nil:
		gone()
	case p.pin == nil:
		p.before.end(gone)
	default:
		p.pin.Unpin(func() { p.before.end(gone) })
	}
}

// Pin page-locks the host memory that s has now for a GPU, as Options.Pinned
// does for new memory: copies between it and that device go directly then. All
// of the memory is page-locked, also where s is a View of a part, and stays so
// until its last Storage is closed or the device is. To pin it again for the
// same device does nothing; no bytes is no error.
//
// It is for memory that is whole pages of the host's (4096 bytes mostly): what
// Wrap got from mmap or its like, at the border of a page and of whole pages,
// and Storages above 1 MiB, in checked mode all. Memory of Go's heap should not
// be pinned. All else, and what the driver refuses, is ErrPinned, with the
// reason, and s is as it was: a mapped file above all, whose pages drivers take
// badly (llama.cpp#6206), and shared memory, which could not be sealed then.
// Memory is page-locked for one device at a time.
//
// A private copy that a write makes is not page-locked, unless Options.Pinned
// asked for it.
//
// ctx bounds the wait for a device that is not open yet. The page-locking itself
// takes about as long as writing to all of the memory. Other goroutines may use
// s meanwhile. Other errors: ErrClosed, ErrNotHost, ErrMismatch for the CPU.
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
	for {
		before := m.pinning.Load()
		if pinned, _ := before.outcome(); pinned {
			if before.dev != dev {
				return fmt.Errorf("%w: it is page-locked for %s", ErrPinned, before.dev)
			}
			return nil
		}
		pin, err := m.pinTo(ctx, dev)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrPinned, err)
		}
		if m.pinning.CompareAndSwap(before, &pinning{dev: dev, pin: pin, before: before}) {
			return nil
		}
		pin.Unpin(func() {}) // another goroutine was faster
	}
}

// tryPinFor page-locks m, which is new, or notes why it is not.
func (m *memory) tryPinFor(dev Device) {
	p := &pinning{dev: dev}
	var err error
	if p.pin, err = m.pinTo(context.Background(), dev); err != nil {
		p.refused = text(err)
	}
	m.pinning.Store(p)
}

func (m *memory) pinTo(ctx context.Context, dev Device) (backend.Pin, error) {
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
	all, why := m.pages()
	if why != "" {
		return nil, errors.New(why)
	}
	mem, _, ok := around(all, m.buf.Host, p.PinAlign())
	if !ok {
		return nil, fmt.Errorf("%s page-locks whole %d bytes, and not all around it are its own", dev, p.PinAlign())
	}
	pin, err := p.Pin(mem)
	if errors.Is(err, backend.ErrLost) {
		return nil, d.noted(err, len(mem))
	}
	return pin, err
}

// pages returns the memory around m that is nobody else's, or says why there is
// none that can be page-locked.
func (m *memory) pages() (all []byte, why string) {
	switch m.kind {
	case MemoryHeap, MemoryAnonymous:
		return m.dev.be.(*host).extent(m.buf)
	case MemoryWrapped:
		return m.buf.Host, ""
	}
	return nil, fmt.Sprintf("%s memory is not page-locked", m.kind)
}

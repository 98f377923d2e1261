package gpu

import (
	"fmt"

	"github.com/go-fuel/fuel/internal/backend"
)

// An Importer is a Port that can make a Block of host memory. Device asks it
// where a user wants a copy to be none.
type Importer interface {
	// ImportAlign is the unit of what can be imported, in bytes, a power of
	// two; 0 where the device cannot.
	ImportAlign() int

	// Import makes a Block of mem, without a copy. Address and length are
	// multiples of ImportAlign, and work only reads it. What the host wrote
	// before work is submitted that work sees: a Port refuses where it does
	// not. Release gives the Block back, and lets go of mem.
	Import(mem []byte) (Block, error)
}

// ImportAlign implements backend.Importer.
func (d *Device) ImportAlign() int {
	if p, ok := d.port.(Importer); ok {
		return p.ImportAlign()
	}
	return 0
}

// Import implements backend.Importer.
func (d *Device) Import(mem []byte, mayFault bool, release func()) (backend.Buffer, error) {
	if err := d.enter(); err != nil {
		return backend.Buffer{}, err
	}
	defer d.leave()
	if err := d.q.lost.Load(); err != nil {
		return backend.Buffer{}, *err
	}
	b, err := d.mem.adopt(mem, mayFault, release)
	return b, d.q.note(err)
}

// adopt gets a Block of host memory, which is in no space.
func (m *memory) adopt(mem []byte, mayFault bool, release func()) (backend.Buffer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return backend.Buffer{}, backend.ErrClosed
	}
	if m.lim.MaxBlock > 0 && len(mem) > m.lim.MaxBlock {
		return backend.Buffer{}, fmt.Errorf("%w: %d bytes, and one allocation has %d at most", backend.ErrTooLarge, len(mem), m.lim.MaxBlock)
	}
	if err := m.room(Storage); err != nil {
		return backend.Buffer{}, err
	}
	b, err := m.port.(Importer).Import(mem)
	if err != nil {
		return backend.Buffer{}, err
	}
	m.count++
	// The host reads its own memory itself, unless that may fault.
	b.Host, b.Coherent, b.Cached = mem, true, true
	if mayFault {
		b.Host = nil
	}
	s := &span{slab: &slab{block: b}, size: len(mem), live: true, release: release}
	return backend.Buffer{Handle: m.name(s), Size: len(mem)}, nil
}

// adopted reports whether a Buffer is host memory.
func (m *memory) adopted(b backend.Buffer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.closed && m.spans[b.Handle-1].release != nil
}

// disown gives host memory back after the Point and what is known of its use.
// Somebody waits for that, so that it does not stay until the next call.
func (d *Device) disown(b backend.Buffer, after backend.Point) {
	m := d.mem
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return
	}
	s := m.forget(b)
	after = max(after, backend.Point(s.used.Load()))
	m.leaving[s] = true
	passed := m.passed(after)
	m.mu.Unlock()
	if passed {
		m.leave(s)
		return
	}
	go func() {
		if d.enter() != nil {
			return // closing gave it back
		}
		d.q.settle(after)
		d.leave()
		m.leave(s)
	}()
}

// leave gives a span of host memory back, unless that was done.
func (m *memory) leave(s *span) {
	m.mu.Lock()
	mine := m.leaving[s]
	if mine {
		m.let(s)
	}
	m.mu.Unlock()
	if mine {
		s.release() // not under the lock: what it ends may be anything
	}
}

// let gives the Block of an adopted span back. m.mu is held.
func (m *memory) let(s *span) {
	delete(m.leaving, s)
	m.port.Release(s.slab.block)
	m.count--
}

// disownAll gives all host memory back, when no work uses it any more, and
// returns what is to be called then.
func (m *memory) disownAll() (release []func()) {
	for _, s := range m.spans {
		if s != nil && s.release != nil {
			m.leaving[s] = true
		}
	}
	for s := range m.leaving {
		m.let(s)
		release = append(release, s.release)
	}
	return release
}

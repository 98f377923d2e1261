package gpu

import (
	"fmt"

	"github.com/go-fuel/fuel/internal/backend"
)

// An Importer is a Port that can make a Block of host memory. Device asks it
// where a user wants a copy to be none, and for host memory that transfers use
// where it is.
type Importer interface {
	// ImportAlign is the unit of what can be imported, in bytes, a power of
	// two; 0 where the device cannot.
	ImportAlign() int

	// Import makes a Block of mem, without a copy. Address and length are
	// multiples of ImportAlign. Where fixed is set mem cannot be written, and
	// work only reads it. What the host wrote before work is submitted that work
	// sees, and the host what work wrote, when it has passed: a Port refuses
	// where that is not so. One memory may be in several Blocks, unless the Port
	// refuses.
	Import(mem []byte, fixed bool) (Block, error)

	// LetGo is Release of such a Block, and reports whether the driver has let
	// go of its memory. Where it has not, the Port calls later when it has:
	// from a later call, or Close, or never.
	LetGo(b Block, later func()) bool
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

// adopt gets a Buffer of host memory, which is in no space.
func (m *memory) adopt(mem []byte, mayFault bool, release func()) (backend.Buffer, error) {
	b, err := m.bring(mem, mayFault)
	if err != nil {
		return backend.Buffer{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// The host reads its own memory itself, unless that may fault.
	b.Host, b.Coherent, b.Cached = mem, true, true
	if mayFault {
		b.Host = nil
	}
	s := &span{slab: &slab{block: b}, size: len(mem), live: true, release: release}
	return backend.Buffer{Handle: m.name(s), Size: len(mem)}, nil
}

// bring gets a Block of host memory, for a call that is in the device. The driver
// takes its time, so m.mu is not held meanwhile.
func (m *memory) bring(mem []byte, fixed bool) (Block, error) {
	if err := m.charge(len(mem)); err != nil {
		return Block{}, err
	}
	b, err := m.port.(Importer).Import(mem, fixed)
	if err != nil {
		m.discharge()
	}
	return b, err
}

// charge counts one more driver allocation, of n bytes, where it is allowed. A
// driver that does not count its own has none for host memory.
func (m *memory) charge(n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lim.MaxBlock > 0 && n > m.lim.MaxBlock {
		return fmt.Errorf("%w: %d bytes, and one allocation has %d at most", backend.ErrTooLarge, n, m.lim.MaxBlock)
	}
	if m.lim.MaxAllocations == 0 {
		return nil
	}
	if err := m.room(Storage); err != nil {
		return err
	}
	m.count.Add(1)
	return nil
}

// discharge undoes charge.
func (m *memory) discharge() {
	if m.lim.MaxAllocations > 0 {
		m.count.Add(-1)
	}
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
	leave := func() {
		if d.enter() != nil {
			return // closing gave it back
		}
		d.q.settle(after)
		gone := m.leave(s)
		d.leave()
		if gone {
			s.release() // not in the device: what it ends may be anything
		}
	}
	if passed {
		leave()
		return
	}
	go leave()
}

// leave gives a span of host memory back, unless that was done, and reports
// whether its memory may be let go of now.
func (m *memory) leave(s *span) bool {
	m.mu.Lock()
	mine := m.leaving[s]
	delete(m.leaving, s)
	m.mu.Unlock()
	return mine && m.let(s)
}

// let gives the Block of an adopted span back, and reports whether its memory
// may be let go of now.
func (m *memory) let(s *span) bool {
	return m.letGo(s.slab.block, func() { go s.release() })
}

// letGo gives a Block of host memory back. The device cannot be closed
// meanwhile.
func (m *memory) letGo(b Block, later func()) bool {
	m.discharge()
	return m.port.(Importer).LetGo(b, later)
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
		delete(m.leaving, s)
		if m.let(s) {
			release = append(release, s.release)
		}
	}
	return release
}

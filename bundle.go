package fuel

import (
	"fmt"

	"github.com/go-fuel/fuel/cpu"
)

// A SlotSpec asks Compose for one slot.
type SlotSpec struct {
	Name     string // unique within the bundle, not empty
	DType    DType
	Len      int      // elements; may be zero
	Encoding Encoding // the zero value is plain
}

// A SlotInfo is one slot of a Bundle.
type SlotInfo struct {
	SlotSpec
	Offset int // bytes from the start of the Storage, a multiple of 64
	Bytes  int
}

// A Bundle is the table of named slots inside one Storage: the outputs of an
// operation that has several. Slots do not overlap, begin at multiples of 64
// bytes and lie inside the Storage. It cannot be changed.
type Bundle struct {
	slots []SlotInfo
	names map[string]int
}

// Len returns the number of slots. A nil Bundle has none.
func (b *Bundle) Len() int {
	if b == nil {
		return 0
	}
	return len(b.slots)
}

// Slot returns slot i, 0 ≤ i < Len, in the order of Compose.
func (b *Bundle) Slot(i int) SlotInfo { return b.slots[i] }

// Lookup returns the index of the slot with the given name.
func (b *Bundle) Lookup(name string) (i int, ok bool) {
	if b == nil {
		return 0, false
	}
	i, ok = b.names[name]
	return i, ok
}

// Compose returns one zeroed Storage on dev, of dtype U8, with a slot for each
// of specs. The Storage is a bundle: Slot gives its slots. A name that is
// empty or there twice is ErrMismatch; for the other errors see Alloc.
func Compose(dev Device, specs []SlotSpec) (*Storage, error) {
	b, size, err := layOut(specs)
	if err != nil {
		return nil, opError("Compose", dev, 0, err)
	}
	r, err := allocOn(dev, size, true, wishes{})
	if err != nil {
		return nil, opError("Compose", dev, size, err)
	}
	return newStorage(r, 0, size, size, U8, Plain(), b), nil
}

func layOut(specs []SlotSpec) (*Bundle, int, error) {
	b := &Bundle{names: make(map[string]int, len(specs))}
	end := 0
	for i, s := range specs {
		if s.Name == "" {
			return nil, 0, fmt.Errorf("%w: slot %d has no name", ErrMismatch, i)
		}
		if _, twice := b.names[s.Name]; twice {
			return nil, 0, fmt.Errorf("%w: two slots are named %q", ErrMismatch, s.Name)
		}
		size, err := s.Encoding.Bytes(s.DType, s.Len)
		if err != nil {
			return nil, 0, fmt.Errorf("slot %q: %w", s.Name, err)
		}
		off, ok := cpu.AlignUp(end, cpu.Align)
		if !ok || off+size < off {
			return nil, 0, fmt.Errorf("slot %q: %w", s.Name, ErrOverflow)
		}
		b.names[s.Name] = i
		b.slots = append(b.slots, SlotInfo{SlotSpec: s, Offset: off, Bytes: size})
		end = off + size
	}
	return b, end, nil
}

// Slot returns a View of the slot with the given name, with the slot's dtype
// and encoding. A Storage that is no bundle, or has no such slot, is
// ErrMismatch. It must be closed on its own.
func (s *Storage) Slot(name string) (*Storage, error) {
	if s.bundle == nil {
		return nil, s.fail("Slot", s.orClosed(fmt.Errorf("%w: slot %q of a storage that is no bundle", ErrMismatch, name)))
	}
	i, ok := s.bundle.Lookup(name)
	if !ok {
		return nil, s.fail("Slot", s.orClosed(fmt.Errorf("%w: no slot %q among %d", ErrMismatch, name, s.bundle.Len())))
	}
	return s.SlotAt(i)
}

// SlotAt is Slot by index, 0 ≤ i < Bundle().Len(), else ErrRange.
func (s *Storage) SlotAt(i int) (*Storage, error) {
	if i < 0 || i >= s.bundle.Len() {
		return nil, s.fail("Slot", s.orClosed(fmt.Errorf("%w: slot %d of %d", ErrRange, i, s.bundle.Len())))
	}
	slot := s.bundle.slots[i]
	return s.alias("Slot", s.off+slot.Offset, slot.Bytes, slot.Len, slot.DType, slot.Encoding)
}

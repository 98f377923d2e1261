package fuel

import (
	"context"
	"fmt"
	"unsafe"
)

// View returns a handle on n elements from element off on. It aliases, as a
// sub-slice does: a write through either is seen by both, also after a private
// copy was made. It must be closed on its own and may outlive s. n may be zero.
//
// Where elements are smaller than a byte, off must fall on a byte border, and
// so must off+n unless it is the end; where they are in blocks, both fall on
// block borders. Else it is ErrMismatch. Outside of s it is ErrRange.
func (s *Storage) View(off, n int) (*Storage, error) {
	at, size, err := s.window(off, n)
	if err != nil {
		return nil, s.fail("View", s.orClosed(err))
	}
	return s.alias("View", s.off+at, size, n, s.dtype, s.enc)
}

// Reinterpret returns a handle on the same bytes as plain elements of another
// type; it aliases, as View does. The bytes must be a whole number of
// elements, else it is ErrMismatch. Nothing is converted.
func (s *Storage) Reinterpret(d DType) (*Storage, error) { return s.ReinterpretAs(d, Plain()) }

// ReinterpretAs is Reinterpret to another encoding as well.
func (s *Storage) ReinterpretAs(d DType, e Encoding) (*Storage, error) {
	n, err := e.Len(d, s.size)
	if err != nil {
		return nil, s.fail("Reinterpret", s.orClosed(err))
	}
	return s.alias("Reinterpret", s.off, s.size, n, d, e)
}

// alias makes another handle of the owner.
func (s *Storage) alias(op string, off, size, n int, d DType, e Encoding) (*Storage, error) {
	if !s.own.hold() {
		return nil, s.fail(op, ErrClosed)
	}
	if s.closed.Load() {
		s.own.letGo()
		return nil, s.fail(op, ErrClosed)
	}
	return s.own.handle(off, size, n, d, e), nil
}

// window turns a range of elements into one of bytes, relative to s.
func (s *Storage) window(off, n int) (at, size int, err error) {
	if off < 0 || n < 0 || off > s.n || n > s.n-off {
		return 0, 0, fmt.Errorf("%w: %d elements at %d of %d", ErrRange, n, off, s.n)
	}
	if off == 0 && n == s.n {
		return 0, s.size, nil
	}
	if at, err = s.border(off); err != nil {
		return 0, 0, err
	}
	end, err := s.border(off + n)
	return at, end - at, err
}

// border is the byte at which element i begins, or that i is at the end of.
func (s *Storage) border(i int) (int, error) {
	if i == s.n {
		return s.size, nil
	}
	per, size, err := s.enc.Granule(s.dtype)
	if err != nil {
		return 0, err
	}
	if i%per != 0 {
		return 0, fmt.Errorf("%w: element %d of %s %s is on no byte or block border", ErrMismatch, i, s.enc, s.dtype)
	}
	return i / per * size, nil
}

// Bytes returns the bytes, without a copy. They must not be written to. The
// slice is valid until Close or the next mutation through the owner, which may
// move it to other memory; Use is the safe form. It is ErrNotHost on a GPU.
func (s *Storage) Bytes() ([]byte, error) {
	b, err := s.rawRead(1)
	return b, s.fail("Bytes", err)
}

// rawRead is Bytes at an address that is a multiple of align.
func (s *Storage) rawRead(align uintptr) ([]byte, error) {
	r, err := s.pin()
	if err != nil {
		return nil, err
	}
	defer r.unpin()
	b, err := s.addressable(r)
	if err != nil {
		return nil, err
	}
	if err := s.suits(b, align); err != nil {
		return nil, err
	}
	r.escape()
	s.own.touchRead(s.off, s.size)
	return b, nil
}

// addressable returns the bytes, in r, for reading when queued work has written
// them. It fails on a device.
func (s *Storage) addressable(r *region) ([]byte, error) {
	if !r.host() {
		return nil, ErrNotHost
	}
	if s.size > 0 {
		if err := r.settle(context.Background()); err != nil {
			return nil, err
		}
	}
	return r.bytes(s.off, s.size), nil
}

// escape notes that a raw slice is out, so that the collector frees nothing
// under it.
func (r *region) escape() {
	if !r.mem.escaped.Load() {
		r.mem.escaped.Store(true)
	}
}

// MutableBytes returns the bytes for writing, after making them private where
// they are shared or read-only. The slice is valid until the next Clone or
// Close of the owner: a later write through it may show in the clone. Mutate is
// the safe form. It is ErrNotHost on a GPU, *OutOfMemoryError where the
// private copy does not fit, ErrMapFault where a mapped file cannot be read.
//
// For the race detector the call is a write of all of the bytes, where they
// are wrapped or shared memory.
func (s *Storage) MutableBytes() ([]byte, error) {
	b, err := s.rawWrite(1)
	return b, s.fail("MutableBytes", err)
}

// rawWrite is MutableBytes at an address that is a multiple of align.
func (s *Storage) rawWrite(align uintptr) ([]byte, error) {
	if s.Device().Kind != CPU {
		return nil, s.orClosed(ErrNotHost)
	}
	if s.size == 0 {
		if s.closed.Load() {
			return nil, ErrClosed
		}
		return []byte{}, nil
	}
	r, err := s.startRaw()
	if err != nil {
		return nil, err
	}
	defer s.endWrite(r)
	b := r.bytes(s.off, s.size)
	if err := s.suits(b, align); err != nil {
		return nil, err
	}
	r.escape()
	if r.mem.shared != nil {
		r.mem.shared.mutable.Store(true)
	}
	return b, nil
}

// startRaw is startWrite for access through a raw slice of the whole window,
// which the race detector sees itself where it is Go memory: so it is told of
// other memory only.
func (s *Storage) startRaw() (*region, error) {
	n := 0
	if m := loadRegion(&s.own.r).mem; m.kind == MemoryWrapped || m.kind == MemoryAnonymous && m.wishes.pinned != (Device{}) || m.kind == MemoryShared && !m.ro.Load() {
		n = s.size
	}
	r, err := s.beginWrite(context.Background(), 0, n, false)
	if err != nil {
		return nil, err
	}
	if err := r.settleWrite(context.Background(), s.size == s.own.size); err != nil {
		s.endWrite(r)
		return nil, err
	}
	return r, nil
}

// Use calls f with the bytes, which f must not write to nor keep. They stay
// where they are until f returns, whatever else happens to the handle. The
// error of f comes back as it is. It is ErrNotHost on a GPU.
func (s *Storage) Use(f func([]byte) error) error { return s.use("Use", f) }

func (s *Storage) use(op string, f func([]byte) error) error {
	r, err := s.pin()
	if err != nil {
		return s.fail(op, err)
	}
	defer r.unpin()
	b, err := s.addressable(r)
	if err != nil {
		return s.fail(op, err)
	}
	s.own.touchRead(s.off, s.size)
	return f(b)
}

// Mutate calls f with the bytes for writing, after making them private where
// they are shared or read-only. f must not keep them. Until f returns, Clone
// waits; Close does not, but the memory stays. f must not Clone a handle of
// the same owner: it would wait for itself. The error of f comes back as it
// is. For the other errors see MutableBytes.
func (s *Storage) Mutate(f func([]byte) error) error { return s.mutate("Mutate", f) }

func (s *Storage) mutate(op string, f func([]byte) error) error {
	if s.Device().Kind != CPU {
		return s.fail(op, s.orClosed(ErrNotHost))
	}
	if s.size == 0 {
		if s.closed.Load() {
			return s.fail(op, ErrClosed)
		}
		return f([]byte{})
	}
	r, err := s.startRaw()
	if err != nil {
		return s.fail(op, err)
	}
	defer s.endWrite(r)
	return f(r.bytes(s.off, s.size))
}

// orClosed is ErrClosed for a closed handle, else err.
func (s *Storage) orClosed(err error) error {
	if s.closed.Load() {
		return ErrClosed
	}
	return err
}

// Slice returns the elements, without a copy. T must be the type of s.DType()
// (Reinterpret first where it is not) and s plain, else it is ErrMismatch. An
// address that does not suit T is ErrMisaligned. Otherwise it is as Bytes.
func Slice[T Elem](s *Storage) ([]T, error) {
	v, err := typed[T](s, s.rawRead)
	return v, s.fail("Slice", err)
}

// MutableSlice returns the elements for writing, as Slice and MutableBytes
// together.
func MutableSlice[T Elem](s *Storage) ([]T, error) {
	v, err := typed[T](s, s.rawWrite)
	return v, s.fail("MutableSlice", err)
}

// UseSlice is Use with the elements, as Slice has them.
func UseSlice[T Elem](s *Storage, f func([]T) error) error {
	return within(s, "UseSlice", s.use, f)
}

// MutateSlice is Mutate with the elements, as MutableSlice has them.
func MutateSlice[T Elem](s *Storage, f func([]T) error) error {
	return within(s, "MutateSlice", s.mutate, f)
}

func within[T Elem](s *Storage, op string, use func(op string, f func([]byte) error) error, f func([]T) error) error {
	if err := matches[T](s); err != nil {
		return s.fail(op, err)
	}
	return use(op, func(b []byte) error {
		if err := s.suits(b, alignOf[T]()); err != nil {
			return s.fail(op, err)
		}
		return f(elements[T](b))
	})
}

// matches is nil where the elements of s are of type T.
func matches[T Elem](s *Storage) error {
	if d := DTypeOf[T](); s.dtype != d || s.enc != Plain() {
		return s.orClosed(fmt.Errorf("%w: a slice of %s, and the storage is %s %s", ErrMismatch, d, s.enc, s.dtype))
	}
	return nil
}

func typed[T Elem](s *Storage, raw func(align uintptr) ([]byte, error)) ([]T, error) {
	if err := matches[T](s); err != nil {
		return nil, err
	}
	b, err := raw(alignOf[T]())
	if err != nil {
		return nil, err
	}
	return elements[T](b), nil
}

func alignOf[T Elem]() uintptr {
	var t T
	return unsafe.Alignof(t)
}

// suits is nil where b, bytes of s, are at a multiple of align.
func (s *Storage) suits(b []byte, align uintptr) error {
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(b))); len(b) > 0 && at%align != 0 {
		return fmt.Errorf("%w: %s at an address that is %d mod %d", ErrMisaligned, s.dtype, at%64, 64)
	}
	return nil
}

// elements is b, whose address suits T, as elements.
func elements[T Elem](b []byte) []T {
	if len(b) == 0 {
		return []T{}
	}
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

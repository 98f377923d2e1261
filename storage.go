// Package fuel keeps tensor bytes for programs that run models: one Storage
// type, whatever memory the bytes are in, with clones that cost nothing until
// somebody writes, and without cgo.
//
// A [Storage] is untyped bytes with a [DType], an [Encoding] and a place: a
// [Device]. Shapes and strides belong to the tensor that uses it. Import this
// package, and safetensors to read files, and the program is a static binary;
// GPU support comes with a blank import of a plugin.
//
// The build tag purego leaves assembly out; nothing else changes. FUEL_CHECK=1
// in the environment turns on checked mode: freed memory becomes unreadable,
// leaks are printed with the stack that allocated them.
package fuel

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
)

// A Storage is a handle on bytes: a window on an owner, with the DType and
// Encoding of what is in it. Make one with Alloc, FromSlice, Map and their
// like; every handle must be closed, once, and no copy of the struct made. The
// zero value and nil are no Storage: do not use them. A method of nil panics, as
// that of any nil pointer.
//
// # Views and clones
//
// A View aliases: a write through one handle of an owner is seen through all.
// A Clone is an independent copy, made in O(1): the bytes are shared until
// somebody writes, and then the writer gets a private copy of its own.
//
// # Goroutines
//
// Reading, Clone, View and Close are safe together on one handle, from any
// number of goroutines. WriteAt, CopyRange and FillRange to disjoint ranges are
// safe in parallel with each other. To read what another goroutine writes at
// the same time is a race, as it is with a slice. Close may come at any time:
// running operations finish first, then the memory goes.
//
// Methods block until they are done; Queue is the asynchronous form. A context
// ends a method between the pieces of its work, and wherever it waits for others:
// for queued work, for a mutation, for another private copy.
//
// # Errors
//
// Every error of an operation is an *OpError around one of the errors of this
// package, the context's, or one of the reader's or writer's; ReadAt's io.EOF
// and what a callback returns come as they are. A closed handle answers
// ErrClosed, always.
type Storage struct {
	own    *owner
	off    int // of the window, in owner coordinates, bytes
	size   int // of the window, bytes
	n      int // elements
	dtype  DType
	enc    Encoding
	bundle *Bundle
	closed atomic.Bool

	first owner // the owner itself, in the handle that began it
}

// newStorage makes the first handle of a new owner of r.
func newStorage(r *region, off, size, n int, d DType, e Encoding, b *Bundle) *Storage {
	s := &Storage{off: off, size: size, n: n, dtype: d, enc: e, bundle: b}
	s.first.r, s.first.off, s.first.size = r, off, size
	s.own = &s.first
	return s
}

// handle makes another handle of the owner, which the caller has held for it.
func (o *owner) handle(off, size, n int, d DType, e Encoding) *Storage {
	return &Storage{own: o, off: off, size: size, n: n, dtype: d, enc: e}
}

// Alloc returns n zeroed elements on dev. The bytes begin at a multiple of 64
// on the CPU, and of DeviceInfo.Alignment elsewhere. opt may be nil. n may be
// zero. Memory that the system gives zeroed is not touched and costs nothing
// before use; memory that was used before is cleared.
//
// Errors: ErrUnknownDType, ErrMismatch (encoding and dtype, or no whole number
// of blocks), ErrOverflow, ErrTooLarge, *OutOfMemoryError, ErrUnavailable,
// ErrDeviceLost; ErrPinned as Options.PinnedOnly has it. Only on wasm and in race builds memory comes from the Go heap,
// where running out ends the program.
//
// The first use of a device loads its vendor library and waits for it. To
// bound that wait, Probe with a context before.
func Alloc(dev Device, d DType, n int, opt *Options) (*Storage, error) {
	return alloc("Alloc", dev, d, n, opt, true)
}

// AllocUninit is Alloc without the zeroing: the bytes are unspecified, on the
// CPU 0xFF in checked mode. It is for callers that write every byte before any is
// read. Pad bits of sub-byte types are zero as long as nobody writes them.
func AllocUninit(dev Device, d DType, n int, opt *Options) (*Storage, error) {
	return alloc("AllocUninit", dev, d, n, opt, false)
}

func alloc(op string, dev Device, d DType, n int, opt *Options, zero bool) (*Storage, error) {
	enc := opt.encoding()
	size, err := enc.Bytes(d, n)
	if err != nil {
		return nil, opError(op, dev, 0, err)
	}
	if opt != nil && (opt.Pinned != Device{} || opt.PinnedOnly) {
		switch {
		case dev.Kind != CPU:
			return nil, opError(op, dev, size, fmt.Errorf("%w: only memory on the CPU is page-locked", ErrMismatch))
		case opt.Pinned.Kind == CPU: // of the CPU itself, and PinnedOnly
			return nil, opError(op, dev, size, fmt.Errorf("%w: Options.Pinned is %s, and no GPU", ErrMismatch, opt.Pinned))
		}
	}
	r, err := allocOn(dev, size, zero, opt.wishes())
	if err != nil {
		return nil, opError(op, dev, size, err)
	}
	if opt != nil && opt.PinnedOnly && size > 0 {
		if err := r.mem.pinning.Load().held(); err != nil {
			r.dropOwner()
			return nil, opError(op, dev, size, notPinned(err))
		}
	}
	s := newStorage(r, 0, size, n, d, enc, nil)
	if !zero {
		if err := s.clearPad(); err != nil {
			_ = s.Close() // cannot fail, and err is what matters
			return nil, opError(op, dev, size, err)
		}
	}
	return s, nil
}

// allocOn allocates size bytes on a device that may not be open yet.
func allocOn(dev Device, size int, zero bool, w wishes) (*region, error) {
	d, err := openDevice(context.Background(), dev)
	if err != nil {
		return nil, err
	}
	if err := d.usable(); err != nil {
		return nil, err
	}
	return allocRegion(context.Background(), d, size, zero, 0, w)
}

// clearPad zeroes the last byte where it has bits of no element.
func (s *Storage) clearPad() error {
	if s.padMask() == 0xFF {
		return nil
	}
	_, err := s.WriteAt(zeroByte, int64(s.size-1))
	return err
}

// padMask has the bits of the last byte that belong to elements.
func (s *Storage) padMask() byte {
	per, size, err := s.enc.Granule(s.dtype)
	if err != nil || s.n%per == 0 {
		return 0xFF
	}
	if used := s.n % per * (size * 8 / per) % 8; used != 0 {
		return 1<<used - 1
	}
	return 0xFF
}

// FromBytes returns a Storage on dev with a copy of b as elements of type d.
// A length of b that is no whole number of elements is ErrMismatch. For the
// other errors see Alloc. b is free again when it returns, and may be empty.
func FromBytes(dev Device, d DType, b []byte) (*Storage, error) {
	return fromBytes("FromBytes", dev, d, b)
}

func fromBytes(op string, dev Device, d DType, b []byte) (*Storage, error) {
	n, err := d.Len(len(b))
	if err != nil {
		return nil, opError(op, dev, len(b), err)
	}
	r, err := allocOn(dev, len(b), false, wishes{})
	if err != nil {
		return nil, opError(op, dev, len(b), err)
	}
	if err := r.write(0, b); err != nil {
		r.dropOwner()
		return nil, opError(op, dev, len(b), err)
	}
	return newStorage(r, 0, len(b), n, d, Plain(), nil), nil
}

// FromSlice returns a Storage on dev with a copy of v and the DType of T. See
// FromBytes.
func FromSlice[T Elem](dev Device, v []T) (*Storage, error) {
	return fromBytes("FromSlice", dev, DTypeOf[T](), bytesOf(v))
}

// bytesOf returns the memory of v. Every T of Elem is free of pointers and of
// padding.
func bytesOf[T Elem](v []T) []byte {
	var t T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(t)))
}

// AllocCPUZeroed is Alloc on the CPU, under the name it has in fuel_memory.
func AllocCPUZeroed(d DType, n int) (*Storage, error) {
	return alloc("AllocCPUZeroed", Device{}, d, n, nil, true)
}

// FromSliceCPU is FromSlice on the CPU, under the name it has in fuel_memory.
func FromSliceCPU[T Elem](v []T) (*Storage, error) {
	return fromBytes("FromSliceCPU", Device{}, DTypeOf[T](), bytesOf(v))
}

// Wrap makes a Storage of memory that the caller has, without a copy. Its
// length must be a whole number of elements of type d, else it is ErrMismatch;
// its alignment is what it is, see Alignment.
//
// The memory is the Storage's until release is called, which happens once,
// when the last handle that shares it is closed and no operation runs on it
// any more; release may be nil. It is called in the goroutine of that Close or
// operation, but in another one after queued work or a GPU's that used the memory,
// and where the collector finds that a Close is missing. It must not block. Where
// Wrap fails it is not called.
//
// A mutation writes to b, unless a Clone shares it: then it goes to a private
// copy.
func Wrap(d DType, b []byte, release func()) (*Storage, error) {
	n, err := d.Len(len(b))
	if err != nil {
		return nil, opError("Wrap", Device{}, len(b), err)
	}
	if release == nil {
		release = func() {}
	}
	m := &memory{
		dev: hostDevice, kind: MemoryWrapped, size: len(b), free: release,
		buf: backend.Buffer{Host: b[:len(b):len(b)], Size: len(b)},
	}
	return newStorage(newRegion(m, 0), 0, len(b), n, d, Plain(), nil), nil
}

// Map makes a Storage of n elements of type d that lie in f from byte off on.
// The file is mapped, not read: that costs the same for any size. f may be
// closed, renamed or deleted afterwards. It is never written: the first
// mutation makes a private copy in memory.
//
// off need not be aligned to anything; Alignment tells what came of it. A file
// that is too short is a *TruncatedError. One that is truncated later makes
// reading ErrMapFault, but for what lies in the page in which it now ends: that
// reads as zeros, and nothing tells. A load through a raw slice (Bytes, Slice,
// Use, Visit) behind that page ends the program. Whether somebody else's writes
// to the file show is up to the system.
//
// Where the platform cannot map files (wasm) the bytes are read into memory,
// and Region says so.
//
// Other errors: ErrUnknownDType, ErrOverflow, ErrRange (off is negative),
// *OutOfMemoryError (no room for the mapping), and what the system says of f.
func Map(f *os.File, d DType, off int64, n int) (*Storage, error) {
	s, size, err := mapFile(f, d, off, n)
	return s, opError("Map", Device{}, size, err)
}

func mapFile(f *os.File, d DType, off int64, n int) (_ *Storage, size int, err error) {
	size, err = d.Bytes(n)
	if err != nil {
		return nil, 0, err
	}
	if off < 0 {
		return nil, size, fmt.Errorf("%w: offset %d", ErrRange, off)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, size, err
	}
	if have := info.Size(); off > have || int64(size) > have-off {
		return nil, size, &TruncatedError{Want: saturated(off, int64(size)), Have: have}
	}
	m := &memory{dev: hostDevice, kind: MemoryMapped, size: size}
	m.ro.Store(true)
	if size > 0 {
		var mapping *cpu.Mapping
		if err := m.dev.withRoom(func() (err error) {
			mapping, err = cpu.MapFile(f, off, size)
			return err
		}); err != nil {
			return nil, size, m.dev.noted(err, size)
		}
		m.buf = backend.Buffer{Host: mapping.Bytes, Size: size, MayFault: mapping.Mapped}
		m.free = func() { givenBack(mapping.Unmap()) }
		if !mapping.Mapped { // a copy, and nobody else's
			m.kind = MemoryHeap
			m.ro.Store(false)
		}
	}
	return newStorage(newRegion(m, 0), 0, size, n, d, Plain(), nil), size, nil
}

// saturated is a+b for a, b ≥ 0, or the largest int64.
func saturated(a, b int64) int64 {
	if s := a + b; s >= 0 {
		return s
	}
	return 1<<63 - 1
}

// String describes the handle, not its contents: "f32[4] plain on cpu".
func (s *Storage) String() string {
	return fmt.Sprintf("%s[%d] %s on %s", s.dtype, s.n, s.enc, s.Device())
}

// DType returns the element type.
func (s *Storage) DType() DType { return s.dtype }

// Encoding returns how the bytes represent the elements.
func (s *Storage) Encoding() Encoding { return s.enc }

// Len returns the number of elements.
func (s *Storage) Len() int { return s.n }

// LenBytes returns the number of bytes.
func (s *Storage) LenBytes() int { return s.size }

// Bundle returns the table of slots of a Storage that Compose made, else nil.
func (s *Storage) Bundle() *Bundle { return s.bundle }

// Device returns the device that the bytes are on. It is fixed: To makes a new
// Storage.
func (s *Storage) Device() Device { return loadRegion(&s.own.r).mem.dev.id }

// maxAlignment is the most that Alignment reports: the smallest page there is.
const maxAlignment = 4096

// Alignment returns the largest power of two, up to 4096, that divides the
// address of the first byte, on a GPU that of its place in device memory. It is
// at least 64 for what this library allocated; a View or a mapped tensor has
// what its offset gives it. An empty or closed Storage has 4096.
func (s *Storage) Alignment() int {
	r, err := s.pin()
	if err != nil {
		return maxAlignment
	}
	defer r.unpin()
	if s.size == 0 {
		return maxAlignment
	}
	at := uintptr(s.off-r.origin) | uintptr(r.mem.dev.info.Alignment)
	if r.host() {
		at = uintptr(unsafe.Pointer(unsafe.SliceData(r.bytes(s.off, 1))))
	}
	return int(min(at&-at, maxAlignment))
}

// Region describes the memory behind the handle now. It is empty for a closed
// handle.
func (s *Storage) Region() RegionInfo {
	r, err := s.pin()
	if err != nil {
		return RegionInfo{}
	}
	defer r.unpin()
	return r.info()
}

// ID returns a number that no other contents of this process have or had: it
// is new for every owner, so for every Clone, and after every private copy.
// The Views of an owner have one ID. It is a counter, never an address. Caches
// key on ID and Version.
func (s *Storage) ID() uint64 { return s.own.identity() }

// Version returns a number that grows with each mutation through any handle of
// the owner, when it begins and when it ends. What is written through a raw slice
// counts as one mutation, at the time of MutableBytes; Mutate counts right.
func (s *Storage) Version() uint64 { return s.own.version.Load() }

// pin returns the region with a reader counted in.
func (s *Storage) pin() (*region, error) {
	for {
		r := loadRegion(&s.own.r)
		if r.tryPin() {
			if loadRegion(&s.own.r) == r && !s.closed.Load() {
				return r, nil
			}
			r.unpin() // a Close, or a private copy, came in between
		}
		if s.closed.Load() {
			return nil, ErrClosed
		}
		if r.crowded() {
			runtime.Gosched()
		}
	}
}

// startWrite is beginWrite for a write that comes after all queued work.
func (s *Storage) startWrite(ctx context.Context, off, n int, all bool) (*region, error) {
	r, err := s.beginWrite(ctx, off, n, all)
	if err != nil {
		return nil, err
	}
	if err := r.settleWrite(ctx, all && n == s.own.size); err != nil {
		s.endWrite(r)
		return nil, err
	}
	return r, nil
}

// beginWrite returns the region with a writer counted in, private to the
// owner, for a write of n bytes at off in the window. With all set they are all
// written without reading any before. endWrite follows.
func (s *Storage) beginWrite(ctx context.Context, off, n int, all bool) (*region, error) {
	if !s.own.hold() {
		return nil, ErrClosed
	}
	if s.closed.Load() {
		s.own.letGo()
		return nil, ErrClosed
	}
	// Before a private copy, which may free the old region and thereby come
	// after those who read it.
	s.own.touchWrite(s.off+off, n)
	err := loadRegion(&s.own.r).mem.dev.usable()
	if err == nil {
		var r *region
		if r, err = s.own.private(ctx, all && n == s.own.size); err == nil {
			s.own.changed()
			return r, nil
		}
	}
	s.own.letGo()
	return nil, err
}

func (s *Storage) endWrite(r *region) {
	s.own.changed()
	r.leaveWrite()
	s.own.letGo()
}

// Clone returns an independent copy: what is written to one of the two is
// never seen in the other. It takes O(1), since the bytes are copied only when
// one of them is written to. The clone of a View has only the View's bytes; a
// bundle stays a bundle.
//
// Only shared memory that is not sealed is copied at once: see NewShared.
//
// Clone waits for mutations that run on the owner, so it must not be called
// from within Mutate.
func (s *Storage) Clone() (*Storage, error) { return s.clone(context.Background(), "Clone", nil) }

func (s *Storage) clone(ctx context.Context, op string, opt *CopyOptions) (*Storage, error) {
	r, err := s.share(ctx)
	if err != nil {
		return nil, s.fail(op, err)
	}
	c := newStorage(r, s.off, s.size, s.n, s.dtype, s.enc, s.bundle)
	if r.mem.shared != nil && r.mem.unsealed() {
		if err := c.own.leaveShared(ctx, r, opt); err != nil {
			return nil, s.fail(op, err)
		}
	}
	return c, nil
}

// share returns the region with one more owner, for the caller.
func (s *Storage) share(ctx context.Context) (*region, error) {
	for {
		r := loadRegion(&s.own.r)
		ok, busy := r.tryShare()
		if busy {
			var err error
			if ok, err = r.shareLater(ctx); err != nil {
				return nil, s.orClosed(err)
			}
		}
		if s.closed.Load() {
			if ok {
				r.unshare()
			}
			return nil, ErrClosed
		}
		if ok {
			if loadRegion(&s.own.r) == r {
				return r, nil
			}
			r.unshare() // a private copy was made meanwhile
		}
	}
}

// Take moves the bytes to a new handle with an owner and ID of its own, and
// closes this one. It is ErrShared where another handle uses the owner, or a
// mutation runs on it; nothing has changed then. Clones do not matter.
func (s *Storage) Take() (*Storage, error) {
	o := s.own
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.holds.CompareAndSwap(0, -1) {
		if s.closed.Load() {
			return nil, s.fail("Take", ErrClosed)
		}
		return nil, s.fail("Take", ErrShared)
	}
	if s.closed.Swap(true) {
		// A Close is under way and gives the region up itself: let it.
		o.holds.Add(1)
		return nil, s.fail("Take", ErrClosed)
	}
	return newStorage(loadRegion(&o.r), s.off, s.size, s.n, s.dtype, s.enc, s.bundle), nil
}

// Close ends the handle. It returns at once; the memory goes when the last
// handle that shares it is closed and the operations that run have finished,
// on a device when queued work has passed. The second Close is ErrClosed.
func (s *Storage) Close() error {
	if s.closed.Swap(true) {
		return s.fail("Close", ErrClosed)
	}
	s.own.letGo()
	return nil
}

// fail wraps an error of an operation on all of s.
func (s *Storage) fail(op string, err error) error { return s.failRange(op, s.size, err) }

// failRange wraps an error of an operation on size bytes of s, or on as many as
// were done by then if err is stopped.
func (s *Storage) failRange(op string, size int, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(stopped); ok {
		size, err = e.done, e.error
	}
	return &OpError{Op: op, Device: s.Device(), Bytes: size, Err: err}
}

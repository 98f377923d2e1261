package fuel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
)

// SharedOptions are the rarer wishes for shared memory. The zero value and nil
// are the defaults.
type SharedOptions struct {
	// Encoding says how the bytes represent the elements. The zero value is
	// plain.
	Encoding Encoding

	// Scope counts what NewShared makes, and refuses it above the Scope's
	// limit. Copies of the memory count in it too. nil is none.
	Scope *Scope

	// ReadOnly is for OpenShared: not to write to the memory. Nobody needs to
	// set it for NewShared, which takes it for a mistake: ErrMismatch.
	ReadOnly bool
}

func (o *SharedOptions) withDefaults() SharedOptions {
	if o == nil {
		return SharedOptions{}
	}
	return *o
}

// NewShared returns n zeroed elements in memory that other processes can have
// too: send them SharedFile, and they call OpenShared. It is on the CPU, begins
// at a page, and has no name: it goes with the last process that has it. n may
// be zero. opt may be nil.
//
// All of it is taken from the system now and not when it is touched, which
// would end the program where the memory is used up; nobody can truncate it.
// More than the host and its control groups have free is refused beforehand.
//
// # Writing
//
// A mutation, through any handle of the owner, writes to the shared memory and
// shows in every process, at any moment of that mutation. It never moves to
// other memory. Who may write when is for the processes to agree on, by a pipe
// or the like: fuel orders nothing between processes, neither the race
// detector nor Version sees what others write, and what Bytes, Use and Visit
// give may change while it is read.
//
// # Clones
//
// Since another process may write at any time, nothing but a copy is a
// snapshot: a Clone of shared memory, of a View of it too, is copied at once to
// memory of this process, and so is To on the CPU; what another process writes
// meanwhile is in it in part. Use a View where the bytes are to stay shared.
// After Seal, nobody can write any more: then Clone takes O(1), and a mutation
// makes a private copy, which other processes do not see, as with a mapped file.
//
// # Errors
//
// As Alloc; what the system refuses, ENOSPC too, is an *OutOfMemoryError.
// Elsewhere than on Linux, and where the system forbids it (EPERM, as by a
// seccomp filter), it is ErrUnavailable. Nothing is left where it fails.
func NewShared(d DType, n int, opt *SharedOptions) (*Storage, error) {
	s, size, err := newShared(d, n, opt.withDefaults())
	return s, opError("NewShared", Device{}, size, err)
}

func newShared(d DType, n int, opt SharedOptions) (_ *Storage, size int, err error) {
	if size, err = opt.Encoding.Bytes(d, n); err != nil {
		return nil, 0, err
	}
	if opt.ReadOnly {
		return nil, size, fmt.Errorf("%w: new memory for reading only", ErrMismatch)
	}
	m := sharedMemory(size, opt)
	if size > 0 {
		if err := m.charge(); err != nil {
			return nil, size, err
		}
	}
	if err := m.dev.withRoom(m.create); err != nil {
		m.discharge()
		return nil, size, m.dev.noted(err, size)
	}
	if opt.Scope != nil {
		opt.Scope.quota.note()
	}
	m.dev.holdLimit()
	return m.storage(d, n, opt), size, nil
}

// OpenShared makes a Storage of n elements of type d, from byte off on, of
// shared memory that another process sent: f is what its SharedFile returned,
// which came as one of exec.Cmd's ExtraFiles, or through a Unix socket
// (SCM_RIGHTS). It may be any other memfd that cannot be truncated
// (F_SEAL_SHRINK), too. dtype, length, encoding and off are not in f: send them
// along. f may be closed afterwards. n may be zero. opt may be nil.
//
// off need not be aligned to anything; Alignment tells what came of it.
//
// Without SharedOptions.ReadOnly the memory is written to: see NewShared, of
// which all applies. With it, a mutation is ErrReadOnly, rather than a private
// copy that others do not see and that does not show what they write; Clone
// first, and write to that. Sealed memory can be opened only so, and there a
// mutation does make a private copy.
//
// Errors: those of sizes as Alloc has them; ErrRange, *TruncatedError (n ends
// beyond the memory); ErrMismatch where f is another kind of file, or may be
// truncated; ErrReadOnly where f cannot be written to, being sealed or open for
// reading only, and ReadOnly is not set; *OutOfMemoryError where the memory has
// holes that the system cannot fill; ErrUnavailable elsewhere than on Linux.
func OpenShared(f *os.File, d DType, off int64, n int, opt *SharedOptions) (*Storage, error) {
	s, size, err := openShared(f, d, off, n, opt.withDefaults())
	return s, opError("OpenShared", Device{}, size, err)
}

func openShared(f *os.File, d DType, off int64, n int, opt SharedOptions) (_ *Storage, size int, err error) {
	if size, err = opt.Encoding.Bytes(d, n); err != nil {
		return nil, 0, err
	}
	if off < 0 {
		return nil, size, fmt.Errorf("%w: offset %d", ErrRange, off)
	}
	m := sharedMemory(size, opt)
	if err := m.dev.withRoom(func() error { return m.open(f, off, opt.ReadOnly) }); err != nil {
		return nil, size, m.dev.noted(err, size)
	}
	return m.storage(d, n, opt), size, nil
}

// sharing is what shared memory has beyond other memory.
type sharing struct {
	file    *cpu.Shared
	sealed  atomic.Bool // no process can change it any more; once set, for ever
	mutable atomic.Bool // a raw slice for writing was handed out
}

func sharedMemory(size int, opt SharedOptions) *memory {
	return &memory{dev: hostDevice, kind: MemoryShared, size: size, wishes: wishes{scope: opt.Scope}}
}

// create makes the memory.
func (m *memory) create() error {
	file, err := cpu.NewShared(m.size)
	if err != nil {
		return sharedError(err, ErrUnavailable)
	}
	return m.mapShared(file, 0, true)
}

// open opens memory that somebody else made.
func (m *memory) open(f *os.File, off int64, readOnly bool) error {
	file, err := cpu.OpenShared(f)
	if err != nil {
		return sharedError(err, ErrReadOnly)
	}
	if off > file.Size || int64(m.size) > file.Size-off {
		err := &TruncatedError{Want: saturated(off, int64(m.size)), Have: file.Size}
		return errors.Join(err, file.Close())
	}
	return m.mapShared(file, off, !readOnly)
}

func (m *memory) mapShared(file *cpu.Shared, off int64, write bool) error {
	if err := file.Map(off, m.size, write); err != nil {
		return errors.Join(sharedError(err, ErrReadOnly), file.Close())
	}
	m.shared = &sharing{file: file}
	m.shared.sealed.Store(file.Sealed())
	m.ro.Store(!write)
	m.buf = backend.Buffer{Host: file.Bytes, Size: m.size, MayFault: file.MayFault}
	m.free = func() {
		givenBack(file.Close())
		m.discharge()
	}
	return nil
}

// sharedError turns what package cpu says of shared memory into this package's
// errors; forbidden is what a lack of permission means.
func sharedError(err, forbidden error) error {
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case errors.Is(err, cpu.ErrInUse):
		return fmt.Errorf("%w: %w", ErrShared, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", forbidden, err)
	case errors.Is(err, cpu.ErrNotShared):
		return fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	return err
}

// storage makes the first Storage of the memory.
func (m *memory) storage(d DType, n int, opt SharedOptions) *Storage {
	return newStorage(newRegion(m, 0), 0, m.size, n, d, opt.Encoding, nil)
}

// unsealed reports whether it is shared memory that some process may change.
// The caller is counted in on the region.
//
// Such memory has one owner, but for the moments in which a Clone copies it:
// nobody else's writes may be private.
func (m *memory) unsealed() bool {
	if m.shared == nil || m.shared.sealed.Load() {
		return false
	}
	// Another process may have sealed it, if this one cannot write.
	if m.ro.Load() && m.shared.file.Sealed() {
		m.shared.sealed.Store(true)
		return false
	}
	return true
}

// leaveShared gives o, which is an owner of r for this only, a copy instead.
func (o *owner) leaveShared(ctx context.Context, r *region, opt *CopyOptions) error {
	defer r.unshare()
	began := time.Now()
	var progress func(int)
	if opt != nil && opt.Progress != nil {
		progress = func(done int) { opt.Progress(done, o.size) }
	}
	fresh, err := o.copyOf(ctx, r, false, progress)
	if err != nil {
		return err
	}
	storeRegion(&o.r, fresh)
	if opt != nil && opt.Report != nil && o.size > 0 {
		*opt.Report = CopyReport{Bytes: o.size, Path: PathHost, Duration: time.Since(began)}
	}
	return nil
}

// writeInPlace counts a writer in on shared memory, when the Clones that copy
// it are done. It gives up where the memory is sealed: then ok is false.
func (r *region) writeInPlace(ctx context.Context) (ok bool, err error) {
	for !r.tryPin() { // also because others come and go
		if r.word.Load()&counts == 0 {
			return false, nil // a private copy was made meanwhile
		}
		runtime.Gosched()
	}
	defer r.unpin()
	for d := time.Microsecond; r.mem.unsealed(); d = min(2*d, time.Millisecond) {
		if r.mem.ro.Load() {
			return false, errOpenedReadOnly
		}
		if r.tryWrite() {
			return true, nil
		}
		if err := ctx.Err(); err != nil {
			return false, err
		}
		time.Sleep(d)
	}
	return false, nil
}

// errOpenedReadOnly is the answer to a write to what others may write to, and this
// process may not.
var errOpenedReadOnly = fmt.Errorf("%w: shared memory that was opened so and is not sealed; clone it to write", ErrReadOnly)

// SharedFile returns an open file of the shared memory that s is in, for
// another process, and at which byte of it s begins. The caller closes it, at
// any time. Whoever gets it can write to the memory, unless it is sealed or was
// opened from a file that could not.
//
// Where s is in other memory it is ErrMismatch: a Clone is, and so is sealed
// memory after a write.
func SharedFile(s *Storage) (f *os.File, off int64, err error) {
	r, err := s.pin()
	if err != nil {
		return nil, 0, s.fail("SharedFile", err)
	}
	defer r.unpin()
	if r.mem.shared == nil {
		return nil, 0, s.fail("SharedFile", notShared(r.mem))
	}
	if f, err = r.mem.shared.file.File(); err != nil {
		return nil, 0, s.fail("SharedFile", err)
	}
	return f, r.mem.shared.file.Offset + int64(s.off-r.origin), nil
}

func notShared(m *memory) error {
	return fmt.Errorf("%w: the bytes are in %s memory, not in shared memory", ErrMismatch, m.kind)
}

// Seal makes the shared memory that s is in immutable, all of it, for every
// process and for ever. Its Storages stay valid, here and elsewhere; see
// NewShared for what changes for Clone and for a mutation. It waits for
// mutations that run on the owner, queued work too, so it must not be called
// from within Mutate. Where the memory is sealed already nothing happens.
//
// Nobody else may have the memory mapped for writing, as OpenShared without
// ReadOnly does, in any process, this one included: that is ErrShared. An open
// file from SharedFile does not matter: whoever opens it later must set
// ReadOnly. ErrShared is also a slice that MutableBytes or MutableSlice handed
// out at any time, since a write through it would end the program: use Mutate,
// MutateSlice or WriteAt for memory that is to be sealed. Memory that was
// opened with ReadOnly is ErrReadOnly; other memory is ErrMismatch, as it is
// for SharedFile. After an error everything is as it was.
func Seal(s *Storage) error { return s.fail("Seal", s.seal()) }

func (s *Storage) seal() error {
	o := s.own
	if !o.hold() {
		return ErrClosed
	}
	defer o.letGo()
	r, err := s.share(context.Background()) // which waits for writers, and then keeps them out
	if err != nil {
		return err
	}
	defer r.unshare()
	o.mu.Lock() // one Seal at a time
	defer o.mu.Unlock()
	m := r.mem
	switch {
	case m.shared == nil:
		return notShared(m)
	case !m.unsealed():
		return nil
	case m.ro.Load():
		return fmt.Errorf("%w: the shared memory was opened so", ErrReadOnly)
	case m.shared.mutable.Load():
		return fmt.Errorf("%w: MutableBytes or MutableSlice handed out a slice of the shared memory", ErrShared)
	}
	ctx := context.Background()
	if err := r.settle(ctx); err != nil { // what is queued may have failed to write
		return err
	}
	if err := r.settleWrite(ctx, false); err != nil {
		return err
	}
	err = m.shared.file.Seal()
	m.ro.Store(!m.shared.file.Writable)
	m.shared.sealed.Store(err == nil)
	return sharedError(err, ErrReadOnly)
}

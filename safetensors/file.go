package safetensors

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"math/bits"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/hostfile"
)

// maxAlignment is the largest that Options.MinAlignment may ask for.
const maxAlignment = 4096

// Options say what a reader of tensors needs. The zero value, like nil, is the
// default.
type Options struct {
	// MinAlignment is what the address of every tensor with at least one byte
	// must be a multiple of, in bytes: a power of two up to 4096. A tensor that
	// lies otherwise is copied. The alignment of the element type holds
	// besides; 0 means that alone. Any other value is fuel.ErrMisaligned.
	//
	// It is a promise about the bytes as they are handed out. A mutation of a
	// tensor may move it to memory with an alignment of 64.
	MinAlignment int

	// RequireZeroCopy makes it a *NotZeroCopyError, before anything is copied,
	// that a tensor cannot be used where it lies. Read and FromBytes copy by
	// their nature, and so does Open where files cannot be mapped (wasm): with
	// it they take only files without data.
	RequireZeroCopy bool
}

// A File is an open safetensors file: its Header, and its tensors as Storages
// on the CPU. It may be used by several goroutines at once.
//
// Its memory is one mapping of the file, shared by all tensors that are used
// where they lie, and one Storage for each that had to be copied. The mapping
// ends when the File and the last such Storage are closed.
type File struct {
	header *Header
	report AlignmentReport // without Tensors
	rows   []row

	mu     sync.RWMutex
	closed bool
	whole  *fuel.Storage // the file as U8; nil where nothing is mapped
	base   uintptr       // address of whole
}

// A row is what File keeps for one entry of the header.
type row struct {
	placement Placement
	required  int
	own       *fuel.Storage // nil: inside whole, or no bytes
}

// Open maps the file at path and reads its header. It does not touch the data,
// so that its time depends on the number of tensors alone, but for tensors
// that must be copied: where the address in the file does not suit the element
// type or opt.MinAlignment, and all that are wider than a byte on a big-endian
// host. Report tells which.
//
// Where the platform cannot map files, the whole of it is read instead, and
// Report says so.
//
// Errors have the path in an *fs.PathError around them. Of a file that breaks
// a rule of the format the cause is the same as in Parse. A file that shrinks
// while it is mapped gives fuel.ErrMapFault from the Storages' methods.
//
// The caller closes the File.
func Open(path string, opt *Options) (*File, error) {
	return OpenContext(context.Background(), path, opt)
}

// OpenContext is Open with a context that stops the copying.
func OpenContext(ctx context.Context, path string, opt *Options) (*File, error) {
	f, err := open(ctx, path, opt, hostBigEndian)
	if err == nil {
		return f, nil
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, err
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: err}
}

func open(ctx context.Context, path string, opt *Options, bigEndian bool) (*File, error) {
	osFile, err := hostfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer osFile.Close()
	info, err := osFile.Stat()
	if err != nil {
		return nil, err
	}
	f, err := newFile(osFile, info.Size(), opt)
	if err != nil {
		return nil, err
	}
	whole, err := mapWhole(osFile, info.Size())
	if err != nil {
		return nil, err
	}
	inPlace := ZeroCopy
	if whole.Region().Memory != fuel.MemoryMapped {
		inPlace = Loaded
		f.report.NotMapped = "this platform cannot map files"
	}
	if err := f.place(ctx, whole, inPlace, opt, bigEndian); err != nil {
		return nil, err
	}
	return f, nil
}

// mapWhole maps a file as one Storage of bytes.
func mapWhole(f *os.File, size int64) (*fuel.Storage, error) {
	if size > math.MaxInt {
		return nil, fuel.ErrTooLarge
	}
	return fuel.Map(f, fuel.U8, 0, int(size))
}

// Read reads a whole file of size bytes from r: the header, then the data from
// front to back. Every tensor gets memory of its own that is 64-byte aligned,
// or more where opt says so. r is not used afterwards.
//
// To load a part of a file, Parse its header and read what Info.Offset and
// Info.Bytes tell.
//
// The caller closes the File.
func Read(r io.ReaderAt, size int64, opt *Options) (*File, error) {
	return read(r, size, opt, hostBigEndian)
}

// FromBytes is Read from memory: a File with a copy of what is in b. Wrap is
// the one that does not copy.
func FromBytes(b []byte, opt *Options) (*File, error) {
	return Read(bytes.NewReader(b), int64(len(b)), opt)
}

func read(r io.ReaderAt, size int64, opt *Options, bigEndian bool) (*File, error) {
	f, err := newFile(r, size, opt)
	if err != nil {
		return nil, err
	}
	f.report.NotMapped = "the file was read"
	data := io.NewSectionReader(r, f.header.dataStart, size-f.header.dataStart)
	if err := f.load(data, opt, bigEndian); err != nil {
		return nil, err
	}
	return f, nil
}

// Wrap opens a file that is in memory already, as Open does one on disk:
// tensors are used where they lie if their addresses suit, and copied
// otherwise.
//
// The bytes must not be changed until release is called, which happens once,
// when the File and the last Storage inside b are closed: see fuel.Wrap for the
// goroutine. nil is allowed. A mutation of a Storage inside b makes a private
// copy, but that of the last one, when all others and the File are closed,
// writes to b. If Wrap fails, release is not called.
func Wrap(b []byte, release func(), opt *Options) (*File, error) {
	return wrap(b, release, opt, hostBigEndian)
}

func wrap(b []byte, release func(), opt *Options, bigEndian bool) (*File, error) {
	f, err := newFile(bytes.NewReader(b), int64(len(b)), opt)
	if err != nil {
		return nil, err
	}
	var opened atomic.Bool
	whole, err := fuel.Wrap(fuel.U8, b, func() {
		if opened.Load() && release != nil {
			release()
		}
	})
	if err != nil {
		return nil, err
	}
	if err := f.place(context.Background(), whole, ZeroCopy, opt, bigEndian); err != nil {
		return nil, err
	}
	opened.Store(true)
	return f, nil
}

// newFile checks opt and reads the header.
func newFile(r io.ReaderAt, size int64, opt *Options) (*File, error) {
	if opt != nil {
		if a := opt.MinAlignment; a < 0 || a > maxAlignment || a&(a-1) != 0 {
			return nil, fmt.Errorf("safetensors: MinAlignment %d is not a power of two up to %d: %w", a, maxAlignment, fuel.ErrMisaligned)
		}
	}
	h, err := Parse(r, size)
	if err != nil {
		return nil, err
	}
	return &File{header: h, rows: make([]row, len(h.entries))}, nil
}

// place decides for each tensor whether it can be used inside whole, which it
// takes over, and copies those that cannot. inPlace says what the former are.
// If it fails nothing is left open.
func (f *File) place(ctx context.Context, whole *fuel.Storage, inPlace Placement, opt *Options, bigEndian bool) error {
	f.whole = whole
	err := f.findBase()
	for i := range f.rows {
		e, row := &f.header.entries[i], &f.rows[i]
		row.required = required(e.dtype, opt)
		switch {
		case e.bytes() == 0:
		case bigEndian && swapWidth(e.dtype) > 1:
			row.placement = Swapped
		case f.found(e) < row.required:
			row.placement = Realigned
		default:
			row.placement = inPlace
		}
	}
	if err == nil {
		err = f.account(opt)
	}
	for i := 0; i < len(f.rows) && err == nil; i++ {
		if p := f.rows[i].placement; p == Realigned || p == Swapped {
			err = f.copyOut(ctx, i)
		}
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// findBase sets base. It looks at one byte only, for the race detector's sake.
func (f *File) findBase() error {
	first, err := f.whole.View(0, 1)
	if err != nil {
		return err
	}
	defer first.Close()
	f.base, err = address(first)
	return err
}

// load reads the data from r into fresh memory. If it fails nothing is left
// open.
func (f *File) load(r io.Reader, opt *Options, bigEndian bool) error {
	for i := range f.rows {
		e, row := &f.header.entries[i], &f.rows[i]
		row.required = required(e.dtype, opt)
		if e.bytes() > 0 {
			row.placement = Loaded
		}
	}
	err := f.account(opt)
	if err == nil {
		err = f.loadAll(bufio.NewReaderSize(r, pieceBytes), bigEndian)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// pieceBytes is how much long work does before it looks at its context.
const pieceBytes = 256 << 10

func (f *File) loadAll(r io.Reader, bigEndian bool) error {
	done := f.header.dataStart
	for i := range f.rows {
		e, row := &f.header.entries[i], &f.rows[i]
		if row.placement == ZeroCopy {
			continue
		}
		var err error
		row.own, err = fresh(e, row.required, func(dst *fuel.Storage) error {
			n, err := dst.ReadFrom(r)
			done += n
			if err != nil {
				return f.endsEarly(err, done, e.name)
			}
			if bigEndian {
				return swapStorage(context.Background(), dst, swapWidth(e.dtype))
			}
			return nil
		})
		if err != nil {
			return inStorage(err, e.name)
		}
	}
	return nil
}

// endsEarly turns an early end at byte have of the file into a truncation.
func (f *File) endsEarly(err error, have int64, tensor string) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return &FormatError{Offset: have, Tensor: tensor, Msg: "the file became shorter",
		Err: &fuel.TruncatedError{Want: f.header.size, Have: have}}
}

// inStorage adds a tensor's name to an error of its Storage.
func inStorage(err error, name string) error {
	if _, ok := errors.AsType[*FormatError](err); ok {
		return err
	}
	return fmt.Errorf("safetensors: tensor %s: %w", quote(name), err)
}

// copyOut gives the tensor of row i, which lies in whole, its own memory.
func (f *File) copyOut(ctx context.Context, i int) error {
	e, row := &f.header.entries[i], &f.rows[i]
	src, err := f.whole.View(int(f.header.dataStart+e.begin), e.bytes())
	if err != nil {
		return inStorage(err, e.name)
	}
	defer src.Close()
	row.own, err = fresh(e, row.required, func(dst *fuel.Storage) error {
		if err := dst.CopyFrom(ctx, src, nil); err != nil {
			return err
		}
		if row.placement == Swapped {
			return swapStorage(ctx, dst, swapWidth(e.dtype))
		}
		return nil
	})
	if err != nil {
		return inStorage(err, e.name)
	}
	return nil
}

// fresh makes memory for the tensor of e, aligned to required bytes, has fill
// write it as U8, and returns it with its own dtype.
func fresh(e *entry, required int, fill func(*fuel.Storage) error) (*fuel.Storage, error) {
	pad := max(0, required-fuelAlignment)
	if e.bytes() > math.MaxInt-pad {
		return nil, fuel.ErrOverflow
	}
	all, err := fuel.AllocUninit(fuel.Device{}, fuel.U8, e.bytes()+pad, nil)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	shift := 0
	if pad > 0 {
		base, err := address(all)
		if err != nil {
			return nil, err
		}
		shift = int(-base & uintptr(required-1))
	}
	part, err := all.View(shift, e.bytes())
	if err != nil {
		return nil, err
	}
	defer part.Close()
	if err := fill(part); err != nil {
		return nil, err
	}
	return part.Reinterpret(e.dtype)
}

// fuelAlignment is what fuel gives every Region that it allocates, in bytes.
const fuelAlignment = 64

// address returns where the bytes of a Storage on the CPU are, without keeping
// hold of them.
func address(s *fuel.Storage) (a uintptr, err error) {
	err = s.Use(func(b []byte) error {
		a = uintptr(unsafe.Pointer(unsafe.SliceData(b)))
		return nil
	})
	return a, err
}

// swapStorage swaps all numbers of width bytes in s, piece by piece.
func swapStorage(ctx context.Context, s *fuel.Storage, width int) error {
	if width == 1 {
		return nil
	}
	return s.Mutate(func(b []byte) error {
		for len(b) > 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(pieceBytes, len(b))
			cpu.Swap(b[:n], b[:n], width)
			b = b[n:]
		}
		return nil
	})
}

// required is the alignment that a tensor of dtype d has to have.
func required(d fuel.DType, opt *Options) int {
	if opt == nil {
		return d.Align()
	}
	return max(d.Align(), opt.MinAlignment)
}

// found is the alignment that a tensor has inside whole.
func (f *File) found(e *entry) int {
	if f.whole == nil {
		return 0
	}
	at := f.base + uintptr(f.header.dataStart+e.begin)
	return 1 << min(bits.TrailingZeros64(uint64(at)), bits.TrailingZeros64(maxAlignment))
}

// account adds up the report and fails where opt does not want copies.
func (f *File) account(opt *Options) error {
	r := &f.report
	r.Mapped = r.NotMapped == ""
	var copied []string
	var reason string
	for i := range f.rows {
		e := &f.header.entries[i]
		switch f.rows[i].placement {
		case ZeroCopy:
			r.ZeroCopyTensors++
			r.ZeroCopyBytes += int64(e.bytes())
			continue
		case Loaded:
			r.LoadedTensors++
			r.LoadedBytes += int64(e.bytes())
		default:
			r.RealignedTensors++
			r.RealignedBytes += int64(e.bytes())
		}
		if opt == nil || !opt.RequireZeroCopy {
			continue
		}
		if copied == nil {
			reason = f.reason(i)
		}
		copied = append(copied, e.name)
	}
	if copied != nil {
		return &NotZeroCopyError{Tensors: copied, Bytes: r.RealignedBytes + r.LoadedBytes, Reason: reason}
	}
	return nil
}

// reason says why the tensor of row i is copied.
func (f *File) reason(i int) string {
	switch row := &f.rows[i]; row.placement {
	case Realigned:
		e := &f.header.entries[i]
		return fmt.Sprintf("%s is at byte %d, aligned to %d where %d is required",
			quote(e.name), f.header.dataStart+e.begin, f.found(e), row.required)
	case Swapped:
		return "this host is big-endian"
	default:
		return "nothing is mapped: " + f.report.NotMapped
	}
}

// Tensor returns a tensor as a Storage of its own. The caller closes it, and
// may do so after the File: it stays valid. Every call makes another one; they
// share memory until one of them is mutated, which never changes the file.
//
// A call costs the same whatever the tensor's size. The error is ErrNotFound
// for a name that the file has not, fuel.ErrClosed after Close.
func (f *File) Tensor(name string) (*fuel.Storage, error) {
	i, ok := f.header.index[name]
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, quote(name))
	}
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.tensor(i)
}

// Tensors returns all tensors, in the order of their bytes in the file. The
// caller closes the Data of each.
func (f *File) Tensors() ([]Tensor, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	tensors := make([]Tensor, len(f.rows))
	for i := range tensors {
		s, err := f.tensor(i)
		if err != nil {
			for _, t := range tensors[:i] {
				err = errors.Join(err, t.Data.Close())
			}
			return nil, err
		}
		e := &f.header.entries[i]
		tensors[i] = Tensor{Name: e.name, Shape: append([]int{}, e.shape...), Data: s}
	}
	return tensors, nil
}

// tensor makes a Storage of entry i. f.mu is held.
func (f *File) tensor(i int) (*fuel.Storage, error) {
	if f.closed {
		return nil, fmt.Errorf("safetensors: the File is closed: %w", fuel.ErrClosed)
	}
	e, row := &f.header.entries[i], &f.rows[i]
	var s *fuel.Storage
	var err error
	switch {
	case e.bytes() == 0:
		s, err = fuel.Alloc(fuel.Device{}, e.dtype, 0, nil)
	case row.own != nil:
		s, err = row.own.Clone()
	default:
		s, err = f.inside(e)
	}
	if err != nil {
		return nil, inStorage(err, e.name)
	}
	return s, nil
}

// inside makes a Storage of bytes in whole, with an owner of its own.
func (f *File) inside(e *entry) (*fuel.Storage, error) {
	part, err := f.whole.View(int(f.header.dataStart+e.begin), e.bytes())
	if err != nil {
		return nil, err
	}
	defer part.Close()
	typed, err := part.Reinterpret(e.dtype)
	if err != nil {
		return nil, err
	}
	defer typed.Close()
	return typed.Clone()
}

// Close gives back what the File holds. Storages that were handed out stay
// valid. A second Close is fuel.ErrClosed, and so are Tensor and Tensors from
// now on; what describes the file remains.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fmt.Errorf("safetensors: the File is closed: %w", fuel.ErrClosed)
	}
	f.closed = true
	var errs []error
	for i := range f.rows {
		if own := f.rows[i].own; own != nil {
			errs = append(errs, own.Close())
		}
	}
	if f.whole != nil {
		errs = append(errs, f.whole.Close())
	}
	return errors.Join(errs...)
}

// Report says which tensors are used where they lie and which were copied, and
// why. The result is the caller's own.
func (f *File) Report() AlignmentReport {
	r := f.report
	r.Tensors = make([]TensorAlignment, len(f.rows))
	for i := range r.Tensors {
		e, row := &f.header.entries[i], &f.rows[i]
		r.Tensors[i] = TensorAlignment{
			Name:      e.name,
			Bytes:     e.bytes(),
			Offset:    f.header.dataStart + e.begin,
			Required:  row.required,
			Found:     f.found(e),
			Placement: row.placement,
		}
	}
	return r
}

// Header returns the table of contents, which outlives the File.
func (f *File) Header() *Header { return f.header }

// Len returns the number of tensors.
func (f *File) Len() int { return f.header.Len() }

// Names is Header.Names.
func (f *File) Names() []string { return f.header.Names() }

// Info is Header.Info.
func (f *File) Info(name string) (Info, bool) { return f.header.Info(name) }

// All is Header.All.
func (f *File) All() iter.Seq[Info] { return f.header.All() }

// Metadata is Header.Metadata.
func (f *File) Metadata() map[string]string { return f.header.Metadata() }

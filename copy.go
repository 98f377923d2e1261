package fuel

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/race"
)

// CopyOptions are the rarer wishes of a copy. nil is the default.
type CopyOptions struct {
	// Progress, if not nil, is told the bytes done so far and in all, as they
	// grow, never by two goroutines at once. It must not block.
	Progress func(done, total int)

	// Peer lets devices of one Kind copy to each other directly. It is off by
	// default, since some machines then copy wrong bytes and report no error.
	// The first such copy between two devices copies patterns and looks what
	// arrives: where they cannot, or it is not what was sent, the bytes go
	// through the host as without Peer, and the report says so.
	Peer bool

	// Report, if not nil, is filled in, also where the copy fails.
	Report *CopyReport

	// Import lets To use host memory where it is instead of copying it: see
	// there. CopyFrom and CopyRange, whose destination has memory, copy.
	Import bool

	// ImportMapped lets Import use the memory of a mapped file as well. Where
	// the file is truncated afterwards nothing turns that into ErrMapFault:
	// the device reads zeros or anything, is lost, or the program ends.
	ImportMapped bool
}

// CopyReport says what a copy did.
type CopyReport struct {
	Bytes    int           `json:"bytes"`          // copied
	Path     CopyPath      `json:"path"`           // how
	Staged   int           `json:"staged"`         // bytes that went through host memory in between
	Private  bool          `json:"private"`        // the destination had to be made private first
	Note     string        `json:"note,omitempty"` // why it went another way than Import or Peer asked for
	Duration time.Duration `json:"duration"`
}

// CopyPath says which way bytes go.
type CopyPath uint8

// The paths. PathNone is that of no bytes, and of To on the same device, which
// clones without a copy. PathImport copies none either.
const (
	PathNone     CopyPath = iota
	PathHost              // within host memory
	PathUpload            // host to device
	PathDownload          // device to host
	PathDevice            // within one device
	PathBounce            // through host memory, between devices
	PathImport            // the device uses host memory where it is
	PathPeer              // from one device to another, directly
)

var pathNames = []string{"none", "host", "upload", "download", "device", "bounce", "import", "peer"}

// String returns the name in lower case.
func (p CopyPath) String() string { return name(p, pathNames, "path") }

// MarshalText implements encoding.TextMarshaler.
func (p CopyPath) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *CopyPath) UnmarshalText(text []byte) error { return unname(p, text, pathNames, "path") }

func copyPath(dst, src *region) CopyPath {
	switch {
	case dst.host() && src.host():
		return PathHost
	case dst.host():
		return PathDownload
	case src.host():
		return PathUpload
	case src.mem.dev == dst.mem.dev:
		return PathDevice
	}
	return PathBounce
}

// CopyFrom copies all of src to s. They must have the same dtype, encoding and
// length, else it is ErrMismatch; they may be on different devices and may
// overlap, also when both are Views of one owner. After an error or a
// cancellation the bytes of s are unspecified and OpError.Bytes tells how many
// were done; s stays usable. PlanCopy tells beforehand how it will go.
//
// ctx is looked at between pieces: of 256 KiB within the host's memory, and of up
// to 64 MiB to, from and on a device, which are waited for once they are queued.
func (s *Storage) CopyFrom(ctx context.Context, src *Storage, opt *CopyOptions) error {
	if err := s.matches(src); err != nil {
		return s.fail("CopyFrom", err)
	}
	return s.fail("CopyFrom", s.copyRange(ctx, 0, src, 0, s.size, opt))
}

// matches is nil where src can be copied to s.
func (s *Storage) matches(src *Storage) error {
	if s.dtype != src.dtype || s.enc != src.enc || s.n != src.n {
		return s.orClosed(src.orClosed(fmt.Errorf("%w: %d %s %s from %d %s %s", ErrMismatch, s.n, s.enc, s.dtype, src.n, src.enc, src.dtype)))
	}
	return nil
}

// CopyRange copies n elements of src from srcOff on to s from dstOff on. dtype
// and encoding must be the same, else it is ErrMismatch, as is a range that
// does not fall on byte or block borders. Otherwise it is as CopyFrom.
func (s *Storage) CopyRange(ctx context.Context, dstOff int, src *Storage, srcOff, n int, opt *CopyOptions) error {
	if s.dtype != src.dtype || s.enc != src.enc {
		return s.fail("CopyRange", s.orClosed(src.orClosed(fmt.Errorf("%w: %s %s from %s %s", ErrMismatch, s.enc, s.dtype, src.enc, src.dtype))))
	}
	to, size, err := s.window(dstOff, n)
	if err != nil {
		return s.fail("CopyRange", s.orClosed(src.orClosed(err)))
	}
	from, _, err := src.window(srcOff, n) // of the same size
	if err != nil {
		return s.fail("CopyRange", s.orClosed(src.orClosed(err)))
	}
	return s.failRange("CopyRange", size, s.copyRange(ctx, to, src, from, size, opt))
}

// copyRange copies n bytes, offsets relative to the windows.
func (s *Storage) copyRange(ctx context.Context, to int, src *Storage, from, n int, opt *CopyOptions) error {
	var began time.Time
	if opt != nil && opt.Report != nil {
		*opt.Report = CopyReport{}
		began = time.Now()
	}
	if n == 0 {
		return s.orClosed(src.orClosed(ctx.Err()))
	}
	var r *region
	var err error
	if s.own != src.own { // first, so that a closed src leaves s as it is
		if r, err = src.pin(); err != nil {
			return err
		}
		defer r.unpin()
	}
	src.own.touchRead(src.off+from, n)
	before := loadRegion(&s.own.r)
	dst, err := s.startWrite(ctx, to, n, s.own != src.own)
	if err != nil {
		return err
	}
	defer s.endWrite(dst)
	if s.own == src.own { // after the private copy, which src has moved to
		if r, err = src.pin(); err != nil {
			return err
		}
		defer r.unpin()
	}
	var progress func(int)
	if opt != nil && opt.Progress != nil {
		progress = func(done int) { opt.Progress(done, n) }
	}
	path, note := copyPath(dst, r), ""
	if path == PathBounce && opt != nil && opt.Peer {
		if err := reaches(dst.mem.dev, r.mem.dev); err != nil {
			note = "not from device to device: " + err.Error()
		} else {
			path = PathPeer
		}
	}
	done, staged, err := copyBytes(ctx, path, dst, s.off+to, r, src.off+from, n, progress)
	if opt != nil && opt.Report != nil {
		*opt.Report = CopyReport{Bytes: done, Path: path, Staged: staged, Private: dst != before, Note: note, Duration: time.Since(began)}
	}
	if err != nil {
		return stopped{done, err}
	}
	return nil
}

// To returns the bytes on dev, as a new handle that is closed on its own: a
// Clone where they are there already (see NewShared for shared memory), else a
// copy. See CopyFrom for ctx and errors, Alloc for those of the new memory.
// Nothing is left where it fails.
//
// With CopyOptions.Import a device that can (DeviceInfo.HostImport) gets host
// memory to use where it is. As with a Clone, what is written to either is
// never seen in the other: the first write to one of them, on the host or on
// the device, gives the writer memory of its own. The host's memory stays until
// both are closed and the device's work on it has passed. The device reads it
// at the speed of its link to the host. It must be memory that Alloc or its
// like took from the system: Storages above 1 MiB have such, in checked mode
// all; small blocks, those of race builds and wrapped memory are copied, as is
// what the driver refuses. CopyReport tells by Path and Note which it was. Such
// a To waits for mutations that run on the owner, as Clone does, so it must not
// be called from within Mutate; and as with Clone, a raw slice of MutableBytes
// must not be written to any more.
func (s *Storage) To(ctx context.Context, dev Device, opt *CopyOptions) (*Storage, error) {
	if opt != nil && opt.Report != nil {
		*opt.Report = CopyReport{}
	}
	if s.closed.Load() {
		return nil, s.fail("To", ErrClosed)
	}
	if dev == s.Device() {
		return s.clone(ctx, "To", opt)
	}
	d, err := openDevice(ctx, dev)
	if err == nil {
		err = d.usable()
	}
	if err != nil {
		return nil, opError("To", dev, s.size, err)
	}
	note := ""
	if opt != nil && opt.Import && s.size > 0 {
		var t *Storage
		if t, note, err = s.importTo(ctx, d, opt); t != nil || err != nil {
			return t, opError("To", dev, s.size, err)
		}
		if opt.Report != nil {
			defer func() {
				if more := opt.Report.Note; more != "" {
					note += "; " + more
				}
				opt.Report.Note = note
			}()
		}
	}
	r, err := allocRegion(ctx, d, s.size, false, 0, loadRegion(&s.own.r).mem.wishes)
	if err != nil {
		return nil, opError("To", dev, s.size, err)
	}
	t := newStorage(r, 0, s.size, s.n, s.dtype, s.enc, s.bundle)
	if err := t.copyRange(ctx, 0, s, 0, s.size, opt); err != nil {
		err = t.fail("To", err)
		_ = t.Close() // cannot fail, and err is what matters
		return nil, err
	}
	return t, nil
}

// ReadAt copies bytes from off on to p; it implements io.ReaderAt, so off and
// len(p) count bytes whatever the dtype. It works on every device. Past the
// end it is io.EOF.
func (s *Storage) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, s.failRange("ReadAt", len(p), s.orClosed(fmt.Errorf("%w: offset %d", ErrRange, off)))
	}
	r, err := s.pin()
	if err != nil {
		return 0, s.failRange("ReadAt", len(p), err)
	}
	defer r.unpin()
	if off >= int64(s.size) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := min(len(p), s.size-int(off))
	if n == 0 {
		return 0, nil
	}
	s.own.touchRead(s.off+int(off), n)
	if err := r.settle(context.Background()); err != nil {
		return 0, s.failRange("ReadAt", len(p), err)
	}
	if err := r.read(p[:n], s.off+int(off)); err != nil {
		return 0, s.failRange("ReadAt", len(p), err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt copies p to the bytes from off on; it implements io.WriterAt, so off
// and len(p) count bytes whatever the dtype. It works on every device. A range
// that is not all inside is ErrRange, and nothing is written then.
func (s *Storage) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off > int64(s.size) || len(p) > s.size-int(off) {
		return 0, s.failRange("WriteAt", len(p), s.orClosed(fmt.Errorf("%w: %d bytes at %d of %d", ErrRange, len(p), off, s.size)))
	}
	if len(p) == 0 {
		if s.closed.Load() {
			return 0, s.failRange("WriteAt", len(p), ErrClosed)
		}
		return 0, nil
	}
	if s.has(p) { // a private copy would free it
		old, err := s.pin()
		if err != nil {
			return 0, s.failRange("WriteAt", len(p), err)
		}
		defer old.unpin()
	}
	r, err := s.startWrite(context.Background(), int(off), len(p), true)
	if err != nil {
		return 0, s.failRange("WriteAt", len(p), err)
	}
	defer s.endWrite(r)
	if err := r.write(s.off+int(off), p); err != nil {
		return 0, s.failRange("WriteAt", len(p), err)
	}
	return len(p), nil
}

// WriteTo writes all bytes to w; it implements io.WriterTo. It works on every
// device.
func (s *Storage) WriteTo(w io.Writer) (int64, error) {
	var done int64
	err := s.readPieces(context.Background(), func(b []byte) error {
		n, err := w.Write(b)
		done += int64(n)
		if err == nil && n < len(b) {
			err = io.ErrShortWrite
		}
		return err
	})
	if err != nil {
		return done, s.fail("WriteTo", stopped{int(done), err})
	}
	return done, nil
}

// readPieces hands the bytes to f in order, in pieces that f must not keep or
// change. Memory that may fault, and a device's, comes through a bounce, so f
// never faults.
func (s *Storage) readPieces(ctx context.Context, f func(b []byte) error) error {
	r, err := s.pin()
	if err != nil {
		return err
	}
	defer r.unpin()
	if s.size == 0 {
		return nil
	}
	s.own.touchRead(s.off, s.size)
	if err := r.settle(ctx); err != nil {
		return err
	}
	var buf *[]byte
	direct := r.host() && !r.mem.buf.MayFault
	if !direct {
		buf = bounces.Get().(*[]byte)
		defer bounces.Put(buf)
	}
	for off := 0; off < s.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(bounceSize, s.size-off)
		var b []byte
		if direct {
			b = r.bytes(s.off+off, n)
			race.Read(b) // f may be assembly
		} else {
			b = (*buf)[:n]
			if err := r.read(b, s.off+off); err != nil {
				return err
			}
		}
		if err := f(b); err != nil {
			return err
		}
		off += n
	}
	return nil
}

// ReadFrom fills s with LenBytes bytes of rd and reads not one more; it
// implements io.ReaderFrom, but that it stops there. A reader that ends before
// is io.ErrUnexpectedEOF, and the bytes are unspecified then. While rd makes it
// wait, so does a Clone. rd must not read s, nor what Bytes or its like gave of it:
// that may be gone.
func (s *Storage) ReadFrom(rd io.Reader) (int64, error) {
	if s.size == 0 {
		return 0, s.fail("ReadFrom", s.orClosed(nil))
	}
	r, err := s.startWrite(context.Background(), 0, s.size, true)
	if err != nil {
		return 0, s.fail("ReadFrom", err)
	}
	defer s.endWrite(r)
	done, err := s.readInto(r, rd)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return int64(done), s.fail("ReadFrom", stopped{done, err})
	}
	return int64(done), nil
}

func (s *Storage) readInto(r *region, rd io.Reader) (done int, err error) {
	if r.host() {
		return readFull(rd, r.bytes(s.off, s.size))
	}
	buf := bounces.Get().(*[]byte)
	defer bounces.Put(buf)
	for done < s.size {
		b := (*buf)[:min(bounceSize, s.size-done)]
		n, err := readFull(rd, b)
		if err != nil {
			return done + n, err
		}
		if err := r.write(s.off+done, b); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// readFull is io.ReadFull by pieces: what rd does with one nobody can interrupt.
func readFull(rd io.Reader, b []byte) (done int, err error) {
	for done < len(b) && err == nil {
		var n int
		n, err = io.ReadFull(rd, b[done:min(done+cpu.Piece, len(b))])
		done += n
	}
	return done, err
}

// zeroByte is the pattern of Zero.
var zeroByte = []byte{0}

// Zero clears all bytes. After an error or a cancellation they are unspecified.
func (s *Storage) Zero(ctx context.Context) error {
	return s.fail("Zero", s.fill(ctx, 0, s.size, zeroByte))
}

// Fill repeats pattern over all bytes, beginning with its first. A pattern has
// 1, 2, 4, 8 or 16 bytes and divides LenBytes, else it is ErrMismatch. After any
// other error or a cancellation the bytes are unspecified.
func (s *Storage) Fill(ctx context.Context, pattern []byte) error {
	return s.fail("Fill", s.fill(ctx, 0, s.size, pattern))
}

// FillRange is Fill of n elements from element off on. It never writes a byte
// outside of them; those are unspecified after an error or a cancellation.
func (s *Storage) FillRange(ctx context.Context, off, n int, pattern []byte) error {
	at, size, err := s.window(off, n)
	if err != nil {
		return s.fail("FillRange", s.orClosed(err))
	}
	return s.failRange("FillRange", size, s.fill(ctx, at, size, pattern))
}

// checkPattern is nil for a pattern that Fill takes over n bytes.
func checkPattern(pattern []byte, n int) error {
	if !cpu.PatternOK(len(pattern)) {
		return fmt.Errorf("%w: a pattern of %d bytes, not 1, 2, 4, 8 or 16", ErrMismatch, len(pattern))
	}
	if n%len(pattern) != 0 {
		return fmt.Errorf("%w: a pattern of %d bytes does not divide %d", ErrMismatch, len(pattern), n)
	}
	return nil
}

// apart is pattern, or a copy of it where it is part of the memory that s has:
// the write itself would change it, and a private copy may free it.
func (s *Storage) apart(pattern []byte) []byte {
	if s.has(pattern) {
		return bytes.Clone(pattern)
	}
	return pattern
}

// has reports whether some of b is in the memory that s has now.
func (s *Storage) has(b []byte) bool {
	return cpu.Overlap(b, loadRegion(&s.own.r).mem.buf.Host)
}

// fill fills n bytes, at relative to the window.
func (s *Storage) fill(ctx context.Context, at, n int, pattern []byte) error {
	if err := checkPattern(pattern, n); err != nil {
		return s.orClosed(err)
	}
	if n == 0 {
		return s.orClosed(ctx.Err())
	}
	pattern = s.apart(pattern)
	r, err := s.startWrite(ctx, at, n, true)
	if err != nil {
		return err
	}
	defer s.endWrite(r)
	done, err := r.fill(ctx, s.off+at, n, pattern)
	if err != nil {
		return stopped{done, err}
	}
	return nil
}

// fill fills n bytes from off on. Pieces are multiples of every pattern.
func (r *region) fill(ctx context.Context, off, n int, pattern []byte) (int, error) {
	if !r.host() {
		dev := r.mem.dev
		return steps(ctx, n, func(i, end int) error {
			p, err := dev.be.Fill(r.mem.buf, off-r.origin+i, end-i, pattern)
			if err == nil {
				err = r.await(ctx, p)
			}
			return dev.noted(err, end-i)
		}, nil)
	}
	b := r.bytes(off, n)
	if n <= cpu.Piece { // for the sake of the closure
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		fillPart(b, pattern, 0, n)
		return n, nil
	}
	return cpu.Run(ctx, n, func(i, end int) error {
		fillPart(b[i:end], pattern, i, n)
		return nil
	}, nil)
}

// fillPart fills b, a piece from off on of a range of whole bytes.
func fillPart(b, pattern []byte, off, whole int) {
	race.Write(b)
	for _, x := range pattern {
		if x != 0 {
			cpu.FillPart(b, pattern, off, whole)
			return
		}
	}
	cpu.ZeroPart(b, off, whole)
}

// castagnoli is the polynomial of Checksum, which x86 and arm64 have an
// instruction for.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum returns the CRC-32C (Castagnoli) of the bytes. Pad bits of sub-byte
// types count as zero. It works on every device.
func (s *Storage) Checksum(ctx context.Context) (uint32, error) {
	var sum uint32
	left, mask := s.size, s.padMask()
	err := s.readPieces(ctx, func(b []byte) error {
		left -= len(b)
		if left == 0 && mask != 0xFF {
			end := len(b) - 1
			sum = crc32.Update(sum, castagnoli, b[:end])
			b = []byte{b[end] & mask}
		}
		// A single call may be as long as a piece: preemption gets in.
		for ; len(b) > 0; b = b[min(cpu.Piece, len(b)):] {
			sum = crc32.Update(sum, castagnoli, b[:min(cpu.Piece, len(b))])
		}
		return nil
	})
	if err != nil {
		return 0, s.fail("Checksum", err)
	}
	return sum, nil
}

// errDiffer ends the comparison of Equal.
var errDiffer = errors.New("fuel: bytes differ")

// Equal reports whether s and t have the same dtype, encoding and length, and
// the same bytes. Bits are compared, so a NaN equals itself and 0 differs from
// -0; pad bits of sub-byte types do not count. They may be on different
// devices.
func (s *Storage) Equal(ctx context.Context, t *Storage) (bool, error) {
	if err := s.orClosed(t.orClosed(nil)); err != nil {
		return false, s.fail("Equal", err)
	}
	if s.dtype != t.dtype || s.enc != t.enc || s.n != t.n {
		return false, nil
	}
	err := s.compare(ctx, t)
	if err == errDiffer {
		return false, nil
	}
	return err == nil, s.fail("Equal", err)
}

// compare is errDiffer where the bytes do.
func (s *Storage) compare(ctx context.Context, t *Storage) error {
	a, err := s.pin()
	if err != nil {
		return err
	}
	defer a.unpin()
	b, err := t.pin()
	if err != nil {
		return err
	}
	defer b.unpin()
	s.own.touchRead(s.off, s.size)
	t.own.touchRead(t.off, t.size)
	size := s.size
	if size == 0 {
		return nil
	}
	for _, r := range []*region{a, b} {
		if err := r.settle(ctx); err != nil {
			return err
		}
	}
	if mask := s.padMask(); mask != 0xFF {
		var x, y [1]byte
		if err := errors.Join(a.read(x[:], s.off+size-1), b.read(y[:], t.off+size-1)); err != nil {
			return err
		}
		if (x[0]^y[0])&mask != 0 {
			return errDiffer
		}
		size--
	}
	if a.host() && b.host() {
		return compareHost(ctx, a.at(s.off), b.at(t.off), size)
	}
	x, y := bounces.Get().(*[]byte), bounces.Get().(*[]byte)
	defer bounces.Put(x)
	defer bounces.Put(y)
	for off := 0; off < size; off += bounceSize {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(bounceSize, size-off)
		if err := a.read((*x)[:n], s.off+off); err != nil {
			return err
		}
		if err := b.read((*y)[:n], t.off+off); err != nil {
			return err
		}
		if !bytes.Equal((*x)[:n], (*y)[:n]) {
			return errDiffer
		}
	}
	return nil
}

// A place is a byte of a region, in owner coordinates.
type place struct {
	r   *region
	off int
}

func (r *region) at(off int) place { return place{r, off} }

func compareHost(ctx context.Context, a, b place, n int) error {
	if n == 0 {
		return nil
	}
	x, y := a.r.bytes(a.off, n), b.r.bytes(b.off, n)
	either := backend.Buffer{MayFault: a.r.mem.buf.MayFault || b.r.mem.buf.MayFault}
	leaf := func(off, end int) error {
		race.Read(x[off:end])
		race.Read(y[off:end])
		same := false
		if err := guarded(either, func() { same = bytes.Equal(x[off:end], y[off:end]) }); err != nil {
			return err
		}
		if !same {
			return errDiffer
		}
		return nil
	}
	_, err := cpu.Run(ctx, n, leaf, nil)
	if err == errDiffer && either.MayFault {
		// A truncated file reads as zeros up to the end of its last page. That
		// it differs is no answer then; its end faults.
		if fault := leaf(n-1, n); fault != errDiffer {
			err = cmp.Or(fault, err)
		}
	}
	return fromDriver(err)
}

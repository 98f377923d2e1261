package fuel

import (
	"errors"
	"fmt"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
)

// Errors of a handle. The handle, or the way it is used, must change.
var (
	// ErrClosed: the Storage was closed or taken. Keep a Clone where the bytes
	// are needed longer.
	ErrClosed = errors.New("fuel: storage is closed")

	// ErrShared: Take found another handle, or an operation that is running,
	// on the same owner. Close the Views first, or Clone instead. Or Seal found
	// shared memory that somebody else can write to, in this process or another.
	ErrShared = errors.New("fuel: another handle uses the storage")

	// ErrNotHost: the bytes are in a device's memory. Use ReadAt, WriteAt, or
	// To(ctx, Device{}, nil).
	ErrNotHost = errors.New("fuel: not in host memory")

	// ErrReadOnly: the memory cannot be written and no private copy may be
	// made here.
	ErrReadOnly = errors.New("fuel: read-only")
)

// Errors of arguments: sizes, types and borders that do not fit.
var (
	// ErrMismatch: dtype, encoding, length, border or kind of memory do not fit
	// together. A byte length that is no whole number of elements is one of
	// these, and so is a file that is no shared memory.
	ErrMismatch = errors.New("fuel: dtype, encoding, length or kind of memory do not match")

	// ErrRange: an offset or count is negative or ends outside the Storage.
	ErrRange = errors.New("fuel: out of range")

	// ErrOverflow: a size is negative or does not fit an int on this host.
	ErrOverflow = errors.New("fuel: size overflows")

	// ErrTooLarge: above the maximum of the device or of the file format.
	ErrTooLarge = errors.New("fuel: too large")

	// ErrMisaligned: an address does not suit the element type. Copy to a
	// fresh Storage, which is 64-byte aligned.
	ErrMisaligned = errors.New("fuel: misaligned")

	// ErrUnknownDType: a name or code that this version does not know. See
	// UnknownDTypeError.
	ErrUnknownDType = errors.New("fuel: unknown dtype")
)

// Errors of the environment: files, memory, devices.
var (
	// ErrOutOfMemory: the device or the system refuses memory, or a limit of
	// the user's does. See OutOfMemoryError.
	ErrOutOfMemory = errors.New("fuel: out of memory")

	// ErrMapFault: a mapped file could not be read: it was truncated after it
	// was mapped, or the device under it failed.
	ErrMapFault = errors.New("fuel: fault in a mapped file")

	// ErrTruncated: a file is shorter than what was asked of it. See
	// TruncatedError.
	ErrTruncated = errors.New("fuel: file is too short")

	// ErrUnavailable: there is no such device: no driver linked, no library,
	// no hardware, not this platform. The text says which; so does Probe.
	ErrUnavailable = errors.New("fuel: device is unavailable")

	// ErrDeviceLost: the device stopped working. Its bytes are gone; close its
	// Storages, and Reprobe to use it again.
	ErrDeviceLost = errors.New("fuel: device is lost")

	// ErrPinned: the memory could not be page-locked: the system or the driver
	// refuses it, there is no such device, or it is not of whole pages.
	ErrPinned = errors.New("fuel: memory is not page-locked")

	// ErrUnsupportedKind: this operation has no case for the Kind of device
	// that the Storage is on.
	ErrUnsupportedKind = errors.New("fuel: kind is not supported here")
)

// An OpError is what every operation on a Storage or device that fails
// returns. errors.Is and errors.As look through it.
type OpError struct {
	Op     string // the method or function, as "WriteAt"
	Device Device
	Bytes  int // that it was to work on; of a long one that was stopped, those done
	Err    error
}

func (e *OpError) Error() string {
	return fmt.Sprintf("fuel: %s (%s, %d bytes): %s", e.Op, e.Device, e.Bytes, text(e.Err))
}

// text leaves out the prefix that OpError has written.
func text(err error) string {
	const prefix = "fuel: "
	s := err.Error()
	if len(s) > len(prefix) && s[:len(prefix)] == prefix {
		s = s[len(prefix):]
	}
	return s
}

func (e *OpError) Unwrap() error { return e.Err }

// An OutOfMemoryError tells who refused how much. It is ErrOutOfMemory for
// errors.Is. A figure of -1 is unknown.
type OutOfMemoryError struct {
	Device    Device
	Requested int64 // bytes of the allocation that was refused
	Free      int64 // bytes that the device or host reports as free
	Limit     int64 // bytes that a limit of the user's allows: SetLimit, or the Scope's
	InUse     int64 // bytes that fuel had allocated, on the device or in the Scope; what Limit is about
	Cached    int64 // bytes that fuel holds for reuse
	Err       error // what the system or driver said, or nil where Limit refused

	Scope         string      // name of the Scope whose limit refused, else empty
	LargestCached int64       // bytes of the largest block that fuel holds for reuse
	TopSites      []AllocSite // up to five that hold most, of InUse where Limit refused, where they are recorded: FUEL_CHECK=1
}

func (e *OutOfMemoryError) Error() string {
	s := fmt.Sprintf("fuel: out of memory on %s: %d bytes requested, %d in use, %d cached", e.Device, e.Requested, e.InUse, e.Cached)
	if e.Cached > 0 {
		s += fmt.Sprintf(" (largest %d)", e.LargestCached)
	}
	if e.Free >= 0 {
		s += fmt.Sprintf(", %d free", e.Free)
	}
	if e.Limit >= 0 {
		s += fmt.Sprintf(", limit %d", e.Limit)
	}
	if e.Scope != "" {
		s += fmt.Sprintf(" of scope %q", e.Scope)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	for i, site := range e.TopSites {
		s += []string{"; most: ", ", "}[min(i, 1)] + site.String()
	}
	return s
}

// Is makes it ErrOutOfMemory.
func (e *OutOfMemoryError) Is(target error) bool { return target == ErrOutOfMemory }

func (e *OutOfMemoryError) Unwrap() error { return e.Err }

// A TruncatedError tells how long a file had to be. It is ErrTruncated for
// errors.Is.
type TruncatedError struct {
	Want, Have int64 // bytes
}

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("fuel: file is too short: want %d bytes, have %d", e.Want, e.Have)
}

// Is makes it ErrTruncated.
func (e *TruncatedError) Is(target error) bool { return target == ErrTruncated }

// An UnknownDTypeError names the code that is not known. It is ErrUnknownDType
// for errors.Is.
type UnknownDTypeError struct {
	Format string // "text", "safetensors", "gguf", "dlpack"
	Code   string // as found, or the dtype that the format has no code for
}

func (e *UnknownDTypeError) Error() string {
	return fmt.Sprintf("fuel: unknown dtype %q (%s)", e.Code, e.Format)
}

// Is makes it ErrUnknownDType.
func (e *UnknownDTypeError) Is(target error) bool { return target == ErrUnknownDType }

// opError wraps err at the public edge; nil stays nil.
func opError(op string, dev Device, bytes int, err error) error {
	if err == nil {
		return nil
	}
	return &OpError{Op: op, Device: dev, Bytes: bytes, Err: err}
}

// stopped is an error of a long operation together with the bytes it had
// done by then.
type stopped struct {
	done int
	error
}

func (e stopped) Unwrap() error { return e.error }

// fromDriver turns what a driver or the cpu package says into this package's
// errors.
func fromDriver(err error) error {
	if err == nil {
		return nil
	}
	_, fault := errors.AsType[*cpu.FaultError](err)
	switch {
	case fault:
		return fmt.Errorf("%w: %w", ErrMapFault, err)
	case errors.Is(err, backend.ErrLost):
		return fmt.Errorf("%w: %w", ErrDeviceLost, err)
	case errors.Is(err, backend.ErrClosed):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case errors.Is(err, backend.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return err
}

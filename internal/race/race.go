//go:build race

// Package race tells the race detector what it cannot see for itself: memory
// that assembly or the operating system touches, and which of fuel's own
// atomic counters order a caller's accesses and which do not.
//
// Without -race every function is empty and Enabled is false.
package race

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// Enabled reports whether the program was built with -race.
const Enabled = true

// Read marks b as read here. b must lie in the Go heap; other memory is
// ignored by the detector.
func Read(b []byte) {
	if len(b) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(b)), len(b))
	}
}

// Write marks b as written here.
func Write(b []byte) {
	if len(b) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(b)), len(b))
	}
}

// An Order is a place at which some accesses are ordered before others,
// though no synchronization that the detector sees does it.
type Order struct{ at byte }

// Acquire orders everything that was released before what follows.
func (o *Order) Acquire() { runtime.RaceAcquire(unsafe.Pointer(&o.at)) }

// Release orders what came before it ahead of whoever acquires later. Several
// releases add up.
func (o *Order) Release() { runtime.RaceReleaseMerge(unsafe.Pointer(&o.at)) }

// Disable makes the detector ignore synchronization in this goroutine until
// Enable.
func Disable() { runtime.RaceDisable() }

// Enable ends Disable.
func Enable() { runtime.RaceEnable() }

// An Int64 is an atomic.Int64 that orders nothing in the eyes of the detector:
// bookkeeping must not hide a caller's race.
type Int64 struct{ v atomic.Int64 }

// Load is atomic.Int64.Load.
func (i *Int64) Load() int64 {
	Disable()
	defer Enable()
	return i.v.Load()
}

// Add is atomic.Int64.Add.
func (i *Int64) Add(delta int64) int64 {
	Disable()
	defer Enable()
	return i.v.Add(delta)
}

// CompareAndSwap is atomic.Int64.CompareAndSwap.
func (i *Int64) CompareAndSwap(old, new int64) bool {
	Disable()
	defer Enable()
	return i.v.CompareAndSwap(old, new)
}

// A Uint64 is to atomic.Uint64 what Int64 is to atomic.Int64.
type Uint64 struct{ v atomic.Uint64 }

// Load is atomic.Uint64.Load.
func (u *Uint64) Load() uint64 {
	Disable()
	defer Enable()
	return u.v.Load()
}

// Store is atomic.Uint64.Store.
func (u *Uint64) Store(n uint64) {
	Disable()
	defer Enable()
	u.v.Store(n)
}

// Add is atomic.Uint64.Add.
func (u *Uint64) Add(delta uint64) uint64 {
	Disable()
	defer Enable()
	return u.v.Add(delta)
}

// CompareAndSwap is atomic.Uint64.CompareAndSwap.
func (u *Uint64) CompareAndSwap(old, new uint64) bool {
	Disable()
	defer Enable()
	return u.v.CompareAndSwap(old, new)
}

// A Shadow stands for bytes that the detector cannot see, or that are not
// always at one address: its own addresses are marked instead. It takes no
// memory until the first mark.
type Shadow struct {
	base atomic.Pointer[byte]
}

func (s *Shadow) at() *byte {
	Disable()
	p := s.base.Load()
	Enable()
	return p
}

// Read marks n bytes from off on of size as read here.
func (s *Shadow) Read(off, n, size int) { Read(s.bytes(off, n, size)) }

// Write marks n bytes from off on of size as written here.
func (s *Shadow) Write(off, n, size int) { Write(s.bytes(off, n, size)) }

func (s *Shadow) bytes(off, n, size int) []byte {
	if n == 0 {
		return nil
	}
	base := s.at()
	if base == nil {
		Disable()
		s.base.CompareAndSwap(nil, unsafe.SliceData(make([]byte, size)))
		Enable()
		base = s.at()
	}
	return unsafe.Slice(base, size)[off : off+n]
}

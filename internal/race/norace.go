//go:build !race

// Package race tells the race detector what it cannot see for itself: memory
// that assembly or the operating system touches, and which of fuel's own
// atomic counters order a caller's accesses and which do not.
//
// Without -race every function is empty and Enabled is false.
package race

import "sync/atomic"

// Enabled reports whether the program was built with -race.
const Enabled = false

// Read does nothing without -race.
func Read(b []byte) {}

// Write does nothing without -race.
func Write(b []byte) {}

// An Order does nothing without -race.
type Order struct{}

// Acquire does nothing without -race.
func (*Order) Acquire() {}

// Release does nothing without -race.
func (*Order) Release() {}

// Disable does nothing without -race.
func Disable() {}

// Enable does nothing without -race.
func Enable() {}

// An Int64 is an atomic.Int64 without -race.
type Int64 = atomic.Int64

// A Uint64 is an atomic.Uint64 without -race.
type Uint64 = atomic.Uint64

// A Shadow is empty without -race.
type Shadow struct{}

// Read does nothing without -race.
func (*Shadow) Read(off, n, size int) {}

// Write does nothing without -race.
func (*Shadow) Write(off, n, size int) {}

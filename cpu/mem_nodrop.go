//go:build !linux && !windows

package cpu

// canDrop reports whether dropPages can do anything.
const canDrop = false

// dropPages does nothing: no advice of this platform promises zeroed pages.
func dropPages(b []byte) bool { return false }

func restorePages(b []byte) error { return nil }

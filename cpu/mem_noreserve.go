//go:build linux || darwin

package cpu

import "golang.org/x/sys/unix"

// mapNoReserve keeps a large block that is mostly untouched from counting
// against the system's overcommit limit.
const mapNoReserve = unix.MAP_NORESERVE

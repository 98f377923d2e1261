//go:build unix

package cpu

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HaveReserve reports whether Reserve takes memory from the system, so that a
// refusal is an error.
const HaveReserve = true

// Reserve returns n > 0 zeroed bytes of fresh memory from the system, aligned
// to a page. No page of it is resident until it is touched. A refusal is an
// error that wraps ErrNoMemory. Give the memory back with Release.
func Reserve(n int) ([]byte, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|mapNoReserve)
	if err != nil {
		return nil, fmt.Errorf("%w: mmap of %d bytes: %w", ErrNoMemory, n, err)
	}
	return unsafe.Slice((*byte)(p), n), nil
}

// Release gives memory from Reserve back to the system.
func Release(b []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}

// Forbid makes memory from Reserve unreadable, so that a late use of it
// faults, and drops its contents. Release may follow.
func Forbid(b []byte) error {
	// The advice is only that: where it fails the pages stay resident.
	_ = unix.Madvise(b, unix.MADV_DONTNEED)
	return unix.Mprotect(b, unix.PROT_NONE)
}

func mapFile(f *os.File, off int64, n int) (*Mapping, error) {
	start, length, skip, ok := window(off, n, os.Getpagesize())
	if !ok {
		return nil, fmt.Errorf("cpu: map %d bytes at %d: %w", n, off, unix.EOVERFLOW)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var p unsafe.Pointer
	var mapErr error
	err = conn.Control(func(fd uintptr) {
		p, mapErr = unix.MmapPtr(int(fd), start, nil, uintptr(length), unix.PROT_READ, unix.MAP_SHARED)
	})
	if err == nil {
		err = mapErr
	}
	if err != nil {
		return nil, fmt.Errorf("cpu: map %d bytes at %d of %s: %w", n, off, f.Name(), err)
	}
	pages := unsafe.Slice((*byte)(p), length)
	return &Mapping{Bytes: pages[skip:length:length], Mapped: true, pages: pages}, nil
}

func unmapFile(pages []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(pages)), uintptr(len(pages)))
}

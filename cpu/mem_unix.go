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

// reserveBare is Reserve of pages that are used after restorePages only.
func reserveBare(n int) ([]byte, error) { return Reserve(n) }

// ReserveAligned is Reserve of memory that begins at a multiple of align, in
// bytes: 0, or a power of two. Below the size of a page it is as that.
func ReserveAligned(n, align int) ([]byte, error) {
	b, err := Reserve(n)
	if err != nil || align <= pageSize || address(b)&uintptr(align-1) == 0 {
		return b, err
	}
	// The kernel places mappings side by side, so what follows is for the
	// first of them only.
	_ = Release(b) // failing, it only takes address space
	more, ok := AlignUp(n, pageSize)
	if !ok || more+align < more {
		return nil, fmt.Errorf("%w: %d bytes aligned to %d", ErrNoMemory, n, align)
	}
	if b, err = Reserve(more + align); err != nil {
		return nil, err
	}
	skip := -int(address(b)) & (align - 1)
	if skip > 0 {
		_ = Release(b[:skip])
	}
	if rest := b[skip+more:]; len(rest) > 0 {
		_ = Release(rest)
	}
	return b[skip : skip+n : skip+n], nil
}

// Release gives memory from Reserve back to the system. An error that wraps
// ErrNoMemory means that the process has as many mappings as it may, and a
// hole between two would make one more: then the memory stays.
func Release(b []byte) error { return unmap(b) }

func unmap(b []byte) error {
	err := unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
	if err == unix.ENOMEM {
		return fmt.Errorf("%w: munmap of %d bytes: %w", ErrNoMemory, len(b), err)
	}
	return err
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
	if err == unix.ENOMEM {
		err = fmt.Errorf("%w: %w", ErrNoMemory, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cpu: map %d bytes at %d of %s: %w", n, off, f.Name(), err)
	}
	pages := unsafe.Slice((*byte)(p), length)
	return &Mapping{Bytes: pages[skip:length:length], Mapped: true, pages: pages}, nil
}

func unmapFile(pages []byte) error { return unmap(pages) }

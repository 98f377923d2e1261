package cpu

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// HaveReserve reports whether Reserve takes memory from the system, so that a
// refusal is an error.
const HaveReserve = true

// granularity is what the offset of a view must be a multiple of: 64 KiB on
// every Windows there is (dwAllocationGranularity).
const granularity = 64 << 10

// Reserve returns n > 0 zeroed bytes of fresh memory from the system, aligned
// to 64 KiB. No page of it is resident until it is touched, but all of it
// counts against the system's commit limit. A refusal is an error that wraps
// ErrNoMemory. Give the memory back with Release.
func Reserve(n int) ([]byte, error) {
	addr, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return nil, fmt.Errorf("%w: VirtualAlloc of %d bytes: %w", ErrNoMemory, n, err)
	}
	return unsafe.Slice(pointer(addr), n), nil
}

// reserveBare reserves n > 0 bytes of addresses, aligned to 64 KiB, without
// memory: a page is there, and counts against the commit limit, from
// restorePages on.
func reserveBare(n int) ([]byte, error) {
	addr, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_RESERVE, windows.PAGE_READWRITE)
	if err != nil {
		return nil, fmt.Errorf("%w: VirtualAlloc of %d bytes of addresses: %w", ErrNoMemory, n, err)
	}
	return unsafe.Slice(pointer(addr), n), nil
}

// canDrop reports whether dropPages can do anything.
const canDrop = true

// dropPages gives whole pages back, and their part of the commit limit, and
// keeps the addresses. It reports whether it did. A touch faults until
// restorePages makes them usable again; then they are zero.
func dropPages(b []byte) bool { return Forbid(b) == nil }

// restorePages makes pages usable. Those that are already stay as they are. A
// refusal is an error that wraps ErrNoMemory.
func restorePages(b []byte) error {
	_, err := windows.VirtualAlloc(uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return fmt.Errorf("%w: VirtualAlloc of %d reserved bytes: %w", ErrNoMemory, len(b), err)
	}
	return nil
}

// ReserveAligned is Reserve: the system aligns to 64 KiB, which is at least any
// align but those of huge pages, and it gives these only to programs with a
// privilege for that.
func ReserveAligned(n, align int) ([]byte, error) { return Reserve(n) }

// Release gives memory from Reserve back to the system.
func Release(b []byte) error {
	return windows.VirtualFree(uintptr(unsafe.Pointer(unsafe.SliceData(b))), 0, windows.MEM_RELEASE)
}

// Forbid makes memory from Reserve unreadable, so that a late use of it
// faults, and drops its contents. Release may follow.
func Forbid(b []byte) error {
	return windows.VirtualFree(uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), windows.MEM_DECOMMIT)
}

func mapFile(f *os.File, off int64, n int) (*Mapping, error) {
	start, length, skip, ok := window(off, n, granularity)
	if !ok {
		return nil, fmt.Errorf("cpu: map %d bytes at %d: %w", n, off, windows.ERROR_ARITHMETIC_OVERFLOW)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var addr uintptr
	var mapErr error
	err = conn.Control(func(fd uintptr) {
		section, err := windows.CreateFileMapping(windows.Handle(fd), nil, windows.PAGE_READONLY, 0, 0, nil)
		if err != nil {
			mapErr = err
			return
		}
		addr, mapErr = windows.MapViewOfFile(section, windows.FILE_MAP_READ, uint32(start>>32), uint32(start), uintptr(length))
		_ = windows.CloseHandle(section) // the view keeps the section
	})
	if err == nil {
		err = mapErr
	}
	switch err {
	case windows.ERROR_NOT_ENOUGH_MEMORY, windows.ERROR_OUTOFMEMORY, windows.ERROR_NO_SYSTEM_RESOURCES, windows.ERROR_COMMITMENT_LIMIT:
		err = fmt.Errorf("%w: %w", ErrNoMemory, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cpu: map %d bytes at %d of %s: %w", n, off, f.Name(), err)
	}
	pages := unsafe.Slice(pointer(addr), length)
	return &Mapping{Bytes: pages[skip:length:length], Mapped: true, pages: pages}, nil
}

func unmapFile(pages []byte) error {
	return windows.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
}

// pointer makes a pointer of an address outside the Go heap, which no
// collector moves: the indirection is what go vet accepts for that.
func pointer(addr uintptr) *byte { return *(**byte)(unsafe.Pointer(&addr)) }

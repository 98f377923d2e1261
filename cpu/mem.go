package cpu

import (
	"errors"
	"fmt"
	"os"
	"unsafe"
)

// ErrNoMemory is what Reserve and MapFile return where the system refuses memory,
// and Release and Unmap where it cannot take it back.
var ErrNoMemory = errors.New("cpu: the system refuses memory")

// MaxHeap is the most bytes that AlignedHeap may be asked for: no block of the Go
// heap has more, and make panics.
const MaxHeap = min(addressable, int64(^uint(0)>>1)) - Align

// checkHeap is an error that wraps ErrNoMemory where n is above MaxHeap.
func checkHeap(n int) error {
	if int64(n) > MaxHeap {
		return fmt.Errorf("%w: the Go heap has no %d bytes", ErrNoMemory, n)
	}
	return nil
}

var pageSize = os.Getpagesize()

// A Mapping is part of a file in memory, read-only.
type Mapping struct {
	// Bytes is the part that was asked for. It must not be written to.
	Bytes []byte

	// Mapped is false where the platform cannot map files: Bytes is then a
	// copy on the Go heap.
	Mapped bool

	pages []byte // what the system gave: whole pages around Bytes
}

// MapFile maps n bytes of f, n > 0, beginning off bytes into it; off need not
// be a multiple of anything. The file may be closed, renamed or deleted
// afterwards. What happens to Bytes when somebody writes to the file is up to
// the system; when somebody truncates it, reading past the new end faults, and
// Guard turns that into an error.
//
// The caller calls Unmap when nothing uses Bytes any more. Where the system has
// no room, in memory, in addresses or in the number of mappings, it is an error
// that wraps ErrNoMemory.
func MapFile(f *os.File, off int64, n int) (*Mapping, error) {
	return mapFile(f, off, n)
}

// Unmap gives the memory back. Bytes must not be used afterwards. An error that
// wraps ErrNoMemory means what it does with Release: the system has put mappings
// of neighbouring parts of a file together, and a hole would make one more.
func (m *Mapping) Unmap() error {
	pages := m.pages
	m.pages, m.Bytes = nil, nil
	if pages == nil {
		return nil
	}
	return unmapFile(pages)
}

// Pages returns the whole pages that b lies in. Memory from Reserve, and a
// Mapping's Bytes, have them for themselves.
func Pages(b []byte) []byte {
	p := unsafe.Pointer(unsafe.SliceData(b))
	before := int(uintptr(p) % uintptr(pageSize))
	n, _ := AlignUp(before+len(b), pageSize) // there is such memory, so it fits
	return unsafe.Slice((*byte)(unsafe.Add(p, -before)), n)
}

// window rounds a range of a file to whole pages of the given size: the page
// offset to map at, the bytes to map, and how many bytes into that the range
// begins. ok is false where a number does not fit.
func window(off int64, n, page int) (start int64, length, skip int, ok bool) {
	const maxInt = int(^uint(0) >> 1)
	if off < 0 || n < 0 {
		return 0, 0, 0, false
	}
	skip = int(off % int64(page))
	if n > maxInt-skip {
		return 0, 0, 0, false
	}
	return off - int64(skip), n + skip, skip, true
}

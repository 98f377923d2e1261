//go:build !unix && !windows

package cpu

import (
	"fmt"
	"io"
	"os"
)

// HaveReserve reports whether Reserve takes memory from the system, so that a
// refusal is an error.
const HaveReserve = false

// Reserve returns n > 0 zeroed bytes of the Go heap, aligned to Align, since
// this platform has no other memory. More than MaxHeap is an error that wraps
// ErrNoMemory; running out of memory otherwise ends the program.
func Reserve(n int) ([]byte, error) {
	if err := checkHeap(n); err != nil {
		return nil, err
	}
	return AlignedHeap(n), nil
}

func reserveBare(n int) ([]byte, error) { return Reserve(n) }

// ReserveAligned is Reserve.
func ReserveAligned(n, align int) ([]byte, error) { return Reserve(n) }

// Release leaves memory from Reserve to the garbage collector.
func Release(b []byte) error { return nil }

// Forbid does nothing: this platform has no page protection.
func Forbid(b []byte) error { return nil }

// mapFile reads the part of the file, since this platform cannot map it.
func mapFile(f *os.File, off int64, n int) (*Mapping, error) {
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("cpu: map %d bytes at %d: negative", n, off)
	}
	b, err := Reserve(n)
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(io.NewSectionReader(f, off, int64(n)), b); err != nil {
		return nil, fmt.Errorf("cpu: read %d bytes at %d of %s: %w", n, off, f.Name(), err)
	}
	return &Mapping{Bytes: b}, nil
}

func unmapFile(pages []byte) error { return nil }

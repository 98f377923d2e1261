//go:build unix

// Package guard gives tests memory with unreadable pages on both sides, so
// that a kernel that touches a byte too many faults.
package guard

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A Block is readable memory between two unreadable pages. Its length is a
// whole number of pages.
type Block []byte

// New returns a Block of at least n bytes that lives until the test ends.
func New(t testing.TB, n int) Block {
	t.Helper()
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	b, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	for _, edge := range [][]byte{b[:page], b[page+size:]} {
		if err := unix.Mprotect(edge, unix.PROT_NONE); err != nil {
			t.Fatal(err)
		}
	}
	return b[page : page+size : page+size]
}

// First returns the n bytes after the leading unreadable page.
func (b Block) First(n int) []byte { return b[:n:n] }

// Last returns the n bytes before the trailing unreadable page.
func (b Block) Last(n int) []byte { return b[len(b)-n:] }

//go:build !unix

// Package guard gives tests memory with unreadable pages on both sides, so
// that a kernel that touches a byte too many faults.
package guard

import (
	"testing"

	"github.com/go-fuel/fuel/internal/require"
)

// A Block is readable memory between two unreadable pages. Its length is a
// whole number of pages.
type Block []byte

// New skips the test: this platform has no page protection that this package
// knows of.
func New(t testing.TB, n int) Block {
	require.Skip(t, "mprotect", "guard pages are made on Unix only")
	return nil
}

// First returns the n bytes after the leading unreadable page.
func (b Block) First(n int) []byte { return b[:n:n] }

// Last returns the n bytes before the trailing unreadable page.
func (b Block) Last(n int) []byte { return b[len(b)-n:] }

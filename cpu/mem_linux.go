package cpu

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// canDrop reports whether dropPages can do anything.
const canDrop = true

// dropPages gives whole pages of anonymous memory back and keeps the
// addresses. It reports whether it did; restorePages makes them usable again,
// and then they are zero.
func dropPages(b []byte) bool { return unix.Madvise(b, unix.MADV_DONTNEED) == nil }

// restorePages has nothing to do: the kernel gives a zeroed page at the first
// touch.
func restorePages(b []byte) error { return nil }

// countsMappings reports whether the system bounds a process's mappings, and
// counts one more for each hole between them.
const countsMappings = true

// thpEnabled says whether the kernel makes huge pages at all. It takes the
// advice also where it does not.
const thpEnabled = "/sys/kernel/mm/transparent_hugepage/enabled"

// adviseHuge asks for huge pages and returns why there are none, "" where the
// kernel took the advice.
func adviseHuge(b []byte) (refused string) {
	if err := unix.Madvise(b, unix.MADV_HUGEPAGE); err != nil {
		return fmt.Sprintf("madvise: %v", err)
	}
	mode, err := os.ReadFile(thpEnabled)
	switch {
	case err != nil:
		return err.Error()
	case strings.Contains(string(mode), "[never]"):
		return thpEnabled + " is never"
	}
	return ""
}

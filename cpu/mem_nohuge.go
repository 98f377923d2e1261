//go:build !linux

package cpu

import "runtime"

// countsMappings reports whether the system bounds a process's mappings, and
// counts one more for each hole between them.
const countsMappings = false

// adviseHuge does nothing and says so.
func adviseHuge(b []byte) (refused string) {
	return "no huge pages on request on " + runtime.GOOS
}

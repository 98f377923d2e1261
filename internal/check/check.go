// Package check holds the switch of checked mode, in which fuel spends time
// and memory to make misuse visible: FUEL_CHECK=1 in the environment, or a
// test that asks for it.
package check

import (
	"os"
	"strconv"
	"sync/atomic"
)

var on atomic.Bool

func init() {
	// The value counts, not the presence: FUEL_CHECK=0 is off.
	v, err := strconv.ParseBool(os.Getenv("FUEL_CHECK"))
	on.Store(err == nil && v)
}

// On reports whether checked mode is on.
func On() bool { return on.Load() }

// Set turns checked mode on or off for what is allocated from now on, and
// returns the state before. For tests.
func Set(v bool) (before bool) { return on.Swap(v) }

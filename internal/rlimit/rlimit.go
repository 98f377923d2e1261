// Package rlimit takes memory from a child of a test, so that the system refuses
// it more.
package rlimit

import (
	"strings"
	"testing"

	"github.com/go-fuel/fuel/internal/require"
)

// unapplied is what a child prints where there is no limit.
const unapplied = "no limit"

// Applied skips the test where the child that printed out had no limit.
func Applied(t testing.TB, out string) {
	t.Helper()
	if strings.HasPrefix(out, unapplied) {
		require.Skip(t, "rlimit", "the system takes the limit and does not apply it, as qemu-user does")
	}
}

//go:build unix

package fuel_test

import (
	"testing"

	kernels "github.com/go-fuel/fuel/cpu"
)

// unseen returns memory that the race detector does not see.
func unseen(t testing.TB, n int) []byte { return value(kernels.Reserve(n))(t) }

package safetensors

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/go-fuel/fuel/internal/race"
)

// within fails the test unless f takes less than d in one of a few tries: the
// machine may have other work. Where a test runs slower than a user's program,
// under the race detector or an emulator, there is more time.
func within(t *testing.T, d time.Duration, f func()) {
	t.Helper()
	if race.Enabled {
		d *= 20
	}
	if os.Getenv("FUEL_TEST_EXEC") != "" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		d *= 10
	}
	var best time.Duration
	for range 5 {
		start := time.Now()
		f()
		took := time.Since(start)
		if took < d {
			return
		}
		if best == 0 || took < best {
			best = took
		}
	}
	t.Errorf("it took %v, %v are allowed", best, d)
}

package safetensors

import (
	"runtime"
	"time"

	"github.com/go-fuel/fuel/internal/race"
)

// limit allows more time where the test runs slower than a user's program.
func limit(d time.Duration) time.Duration {
	if race.Enabled {
		d *= 20
	}
	switch runtime.GOARCH {
	case "amd64", "arm64":
		return d
	}
	return 10 * d // perhaps an emulator
}

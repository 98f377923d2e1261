package gpu

import (
	"context"
	"math"
	"os"
	"strings"
	"time"
)

// What drivers share besides a Device.

// Switch reads a switch of the environment by its value.
func Switch(name string) bool {
	switch strings.ToLower(os.Getenv(name)) {
	case "1", "true", "yes", "on":
		return true
	}
	return false
}

// Int is n, or the largest int.
func Int(n uint64) int { return int(min(n, math.MaxInt)) }

// Poll calls f now and then until it says that it is done, or fails, or ctx ends
// that.
func Poll(ctx context.Context, f func() (done bool, err error)) error {
	for pause := 20 * time.Microsecond; ; pause = min(2*pause, time.Millisecond) {
		if done, err := f(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

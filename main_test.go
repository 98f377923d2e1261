package fuel_test

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/track"
)

// children are programs that tests run in a process of their own, being the
// test binary with FUEL_TEST_CHILD set: for limits, races and crashes.
var children = map[string]func(){}

// deliberateLeaks counts the regions that tests leave behind on purpose.
var deliberateLeaks atomic.Int64

func TestMain(m *testing.M) {
	if name := os.Getenv("FUEL_TEST_CHILD"); name != "" {
		children[name]()
		os.Exit(0)
	}
	code := m.Run()
	if stats, err := fuel.MemStats(fuel.Device{}); err != nil || stats.Regions != deliberateLeaks.Load() {
		fmt.Printf("FAIL: memory is left at the end of all tests: %+v, %v (FUEL_CHECK=1 tells whose)\n", stats, err)
		for _, r := range track.Since(0) {
			fmt.Println(r)
		}
		code = 1
	}
	os.Exit(code)
}

package gpu_test

import (
	"math"
	"os"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
)

// The memories that drivers have, and the limits.
var memories = []softKind{
	{name: "discrete", staging: true},
	{name: "discrete non-coherent"},
	{name: "bar", mapped: true, coherent: true, staging: true},
	{name: "unified", mapped: true, coherent: true, cached: true, staging: true},
	{name: "unified non-coherent", mapped: true, cached: true},
}

// Under the race detector and in emulators, where each takes ten times as long:
// everything staged and flushed, with fills of words; and everything direct.
var slow = map[string]bool{"discrete non-coherent/vulkan": true, "unified/bytes": true}

func TestConformance(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		require.Skip(t, "64-bit", "a GPU's memory in Go's heap takes more addresses than there are")
	}
	for _, kind := range memories {
		for name, lim := range map[string]gpu.Limits{
			"vulkan": {Align: 256, Atom: 64, FillUnit: 4, FillAlign: 16, Heap: 256 << 20, MaxBlock: 128 << 20, MaxAllocations: 4096},
			"metal":  {Align: 256, Atom: 64, CopyUnit: 4, FillUnit: 4, FillAlign: 4, FillByte: true, Heap: 256 << 20, MaxBlock: 128 << 20},
			"bytes":  {Align: 64, Atom: 1, FillUnit: 1, FillAlign: 1},
		} {
			if name == "metal" && kind.name != "discrete" && kind.name != "unified" {
				continue // Metal has no such memory; units_test.go has them all
			}
			if (race.Enabled || os.Getenv("FUEL_TEST_EXEC") != "") && !slow[kind.name+"/"+name] {
				continue
			}
			t.Run(kind.name+"/"+name, func(t *testing.T) {
				fueltest.TestDriver(t, func(t *testing.T) fuel.Device {
					return register(t, newSoftPort(t, kind, lim), gpu.Config{})
				})
			})
		}
	}
}

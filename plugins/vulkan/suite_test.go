package vulkan

import (
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
	"github.com/go-fuel/fuel/internal/gpu"
)

func TestConformance(t *testing.T) {
	for name, d := range map[string]*driver{
		"direct": testDriver(gpu.Config{}),
		"staged": testDriver(gpu.Config{Staged: true}),
		"fences": {opt: options{cpu: true}, config: gpu.Config{Staged: true}, port: portOptions{fences: true}},
	} {
		t.Run(name, func(t *testing.T) {
			dev := use(t, d)
			fueltest.TestDriver(t, func(*testing.T) fuel.Device { return dev })
		})
	}
}

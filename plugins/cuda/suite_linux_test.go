//go:build !fuel_static && !android && (amd64 || arm64)

package cuda

import (
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
)

func TestConformance(t *testing.T) {
	for _, kind := range []struct{ name, script string }{
		{"discrete", ""},
		{"without pools, late", "attr 115 0;late 40"},
		{"integrated", "attr 18 1"},
		{"integrated, not at the same time", "attr 18 1;attr 89 0"},
		{"small, pinned refused", "total 100000000;always cuMemHostAlloc 2"},
		{"little pinned, at once", "pinned 3000000;late 0"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			f := newFake(t, kind.script)
			dev := f.use(1)
			fueltest.TestDriver(t, func(*testing.T) fuel.Device { return dev })
		})
	}
}

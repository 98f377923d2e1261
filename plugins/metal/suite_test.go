//go:build linux && amd64 && !fuel_static

package metal

import (
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// use makes a driver over the fake the one of Metal for one test.
func (f *fake) use(t testing.TB, m machine) fuel.Device {
	d := newDriver(func() (*metal, error) { return f.metal, nil }, gpu.Config{Staged: m.staged})
	d.private = m.private
	restore := backend.Replace(backend.Metal, d.backend())
	t.Cleanup(func() {
		restore()
		f.drop(d.current)
	})
	return fuel.Device{Kind: fuel.Metal}
}

func TestConformance(t *testing.T) {
	for name, m := range map[string]machine{
		"shared":   {},
		"staged":   {staged: true},
		"private":  {private: true},
		"discrete": {discrete: true},
		"slow":     {delay: 50, lag: 50},
	} {
		t.Run(name, func(t *testing.T) {
			fueltest.TestDriver(t, func(t *testing.T) fuel.Device {
				return newFake(t, m).use(t, m)
			})
		})
	}
}

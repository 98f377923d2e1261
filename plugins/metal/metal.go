package metal

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

func init() {
	fuel.Register(fuel.Metal, newDriver(openApple, gpu.Config{}).backend())
}

// A driver is the state behind a backend.Driver.
type driver struct {
	load    func() (*metal, error)
	config  gpu.Config
	private bool // tests: as FUEL_METAL_PRIVATE

	mu      sync.Mutex
	metal   *metal        // loaded once
	current []description // of the last probe
}

func newDriver(load func() (*metal, error), c gpu.Config) *driver {
	return &driver{load: load, config: c}
}

func (d *driver) backend() *backend.Driver {
	return &backend.Driver{Kind: backend.Metal, Package: "github.com/go-fuel/fuel/plugins/metal", Probe: d.probe, Open: d.open}
}

// probe implements backend.Driver. The frameworks are loaded once, the devices
// are listed anew each time.
func (d *driver) probe(context.Context) (info backend.Info, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.metal == nil {
		if d.metal, err = d.load(); err != nil {
			return info, err
		}
	}
	info.Library = d.metal.path
	info.DriverVersion = system()
	d.metal.drop(d.current)
	if d.current, err = d.metal.devices(); err != nil {
		return info, err
	}
	for i := range d.current {
		info.Devices = append(info.Devices, d.metal.info(&d.current[i]))
	}
	return info, nil
}

// open implements backend.Driver.
func (d *driver) open(_ context.Context, index int) (backend.Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if index >= len(d.current) {
		return nil, errors.New("no such device any more")
	}
	dev := d.current[index]
	p, err := openPort(d.metal, dev, !dev.unified || d.private || gpu.Switch("FUEL_METAL_PRIVATE"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dev.name, err)
	}
	return gpu.New(p, dev.limits(), d.config), nil
}

package vulkan

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/dl"
	"github.com/go-fuel/fuel/internal/gpu"
)

type procedure = dl.Proc

func init() {
	fuel.Register(fuel.Vulkan, newDriver(options{}, gpu.Config{}).backend())
}

// A driver is the state behind a backend.Driver.
type driver struct {
	opt    options
	config gpu.Config
	port   portOptions

	mu      sync.Mutex
	lib     *library
	current *shared // of the last probe
}

// A shared instance is destroyed with its last user: the last probe and the
// open devices.
type shared struct {
	*instance
	mu    sync.Mutex
	users int
}

func newDriver(opt options, c gpu.Config) *driver { return &driver{opt: opt, config: c} }

func (d *driver) backend() *backend.Driver {
	return &backend.Driver{Kind: backend.Vulkan, Package: "github.com/go-fuel/fuel/plugins/vulkan", Probe: d.probe, Open: d.open}
}

// probe implements backend.Driver. The library is opened once, the drivers are
// asked anew each time.
func (d *driver) probe(context.Context) (info backend.Info, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lib == nil {
		if d.lib, err = openLibrary(d.opt.names()); err != nil {
			return info, explain(err)
		}
	}
	info.Library = d.lib.Path()
	opt := d.opt
	opt.cpu = opt.cpu || gpu.Switch("FUEL_VULKAN_CPU")
	in, err := newInstance(d.lib, opt)
	if err != nil {
		return info, explain(err)
	}
	if d.current != nil {
		d.current.drop()
	}
	d.current = &shared{instance: in, users: 1}
	info.DriverVersion = fmt.Sprintf("Vulkan %s, %s", versionText(in.devices[0].api), in.devices[0].driver)
	info.Note = in.note
	for _, p := range in.devices {
		info.Devices = append(info.Devices, p.info())
	}
	return info, nil
}

// open implements backend.Driver.
func (d *driver) open(_ context.Context, index int) (backend.Device, error) {
	d.mu.Lock()
	in := d.current
	if in == nil || index >= len(in.devices) {
		d.mu.Unlock()
		return nil, errors.New("no such device any more")
	}
	in.take()
	d.mu.Unlock()
	p, err := openPort(in.devices[index], d.port, in.drop)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.devices[index].name, err)
	}
	return gpu.New(p, p.lim, d.config), nil
}

func (s *shared) take() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users++
}

func (s *shared) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users--; s.users == 0 {
		s.destroy()
	}
}

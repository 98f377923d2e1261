package fueltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
)

func TestCPU(t *testing.T) {
	TestDriver(t, func(*testing.T) fuel.Device { return fuel.Device{} })
}

func TestCPUChecked(t *testing.T) {
	TestDriver(t, func(t *testing.T) fuel.Device {
		Checked(t)
		return fuel.Device{}
	})
}

func TestFake(t *testing.T) {
	for i, opt := range []FakeOptions{
		{},
		{Lazy: true},
		{Delay: time.Microsecond},
		{NonCoherent: true},
		{NonCoherent: true, Lazy: true},
		{Unified: true, Lazy: true},
		{Devices: 2, Memory: 64 << 20, MaxAlloc: 8 << 20, Alignment: 16},
		{Devices: 2, NonCoherent: true, Lazy: true},
		{Devices: 2, ImportAlign: 4096, Lazy: true},
		{NonCoherent: true, ImportAlign: 64 << 10},
	} {
		kind := []fuel.Kind{fuel.CUDA, fuel.Vulkan, fuel.Metal}[i%3]
		t.Run(fmt.Sprintf("%s%s", kind, describe(opt)), func(t *testing.T) {
			// A sleep takes a millisecond on a busy machine: less of them.
			// And the race detector learns little from a second fake.
			short := testing.Short() || opt.Delay > 0 || race.Enabled && i > 0
			runSuite(t, func(t *testing.T) fuel.Device { return Register(t, kind, opt).Device(0) }, short)
		})
	}
}

// describe names what is not zero.
func describe(o FakeOptions) string {
	s := ""
	add := func(on bool, name string, v any) {
		if on {
			s += fmt.Sprintf(" %s=%v", name, v)
		}
	}
	add(o.Devices != 0, "devices", o.Devices)
	add(o.Unified, "unified", true)
	add(o.NonCoherent, "noncoherent", true)
	add(o.Delay != 0, "delay", o.Delay)
	add(o.Lazy, "lazy", true)
	add(o.ImportAlign != 0, "import", o.ImportAlign)
	return s
}

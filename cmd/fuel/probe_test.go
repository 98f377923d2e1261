package main

import (
	"strings"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
)

func TestProbeHidesNoKindAndNoReason(t *testing.T) {
	fueltest.Register(t, fuel.CUDA, fueltest.FakeOptions{ProbeHang: true})
	fueltest.Register(t, kindOfFake, fueltest.FakeOptions{Devices: 2, Memory: 3 << 29})
	fueltest.Register(t, fuel.Metal, fueltest.FakeOptions{MissingSymbol: "newBuffer"})
	out := mustExecute(t, "probe", "--timeout", "20ms")
	requireTable(t, out,
		`kind    state        device    name                  +memory +free  library       driver  tier +import +reason`,
		`cpu     available    cpu       \S+/\S+ .*(iB|unknown)  -             -       \S+ +github\.com/go-fuel/fuel +-`,
		`cuda    probing      -         - +-  +-  -             -       -  .*  the driver has not answered yet: .*`,
		`vulkan  available    vulkan:0  fake vulkan device 0 +1\.5 GiB +1\.5 GiB  libfake\.so\.1  1\.0     -  .*-`,
		`vulkan  available    vulkan:1  fake vulkan device 1 +1\.5 GiB +1\.5 GiB  libfake\.so\.1  1\.0     -  .*-`,
		`metal   unavailable  -         - .*lacks the function newBuffer.*`,
	)
}

func TestProbeJSONHasEachKindOnce(t *testing.T) {
	fueltest.Register(t, kindOfFake, fueltest.FakeOptions{Devices: 2})
	doc := decode[struct {
		Kinds []struct {
			Kind, State, Reason, Library, DriverVersion, Tier string
			Devices                                           []fuel.DeviceInfo
		}
	}](t, mustExecute(t, "probe", "--json"))
	if len(doc.Kinds) != len(fuel.Kinds()) {
		t.Fatalf("%d kinds", len(doc.Kinds))
	}
	for i, k := range doc.Kinds {
		if k.Kind != fuel.Kind(i).String() || (k.State == "available") != (len(k.Devices) > 0) || k.State == "not linked" && k.Reason == "" {
			t.Errorf("got %+v", k)
		}
		if k.Devices == nil {
			t.Errorf("devices of %s is null", k.Kind)
		}
	}
	if k := doc.Kinds[kindOfFake]; len(k.Devices) != 2 || k.Library == "" || k.DriverVersion == "" || k.Devices[1].Device.Index != 1 {
		t.Errorf("got %+v", k)
	}
	if doc.Kinds[0].Tier == "" {
		t.Error("no tier of the CPU")
	}
}

func TestProbeOfOneDeviceLeavesTheOthersOut(t *testing.T) {
	fueltest.Register(t, kindOfFake, fueltest.FakeOptions{Devices: 2})
	out := mustExecute(t, "probe", "--device", "vulkan:1")
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, "fake vulkan device 1") {
		t.Errorf("got %s", out)
	}
}

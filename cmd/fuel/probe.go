package main

import (
	"bytes"
	"context"

	"github.com/go-fuel/fuel"
	"github.com/spf13/pflag"
)

var probeCommand = &command{
	name:  "probe",
	brief: "list kinds of devices, and why one cannot be used",
	help: `Lists every kind of device that fuel knows with its state, its devices and
their memory, and the reason where it cannot be used.
`,
	setup: func(set *pflag.FlagSet) action {
		var flags probeFlags
		flags.define(set)
		asJSON := set.Bool("json", false, "print one JSON document")
		return func(ctx context.Context, p *program, args []string) error {
			if len(args) > 0 {
				return usagef("probe takes no arguments, got %q", args[0])
			}
			kinds, err := probeKinds(ctx, &flags)
			if err != nil {
				return err
			}
			if *asJSON {
				return p.printJSON(probed{kinds})
			}
			return p.print(probeText(kinds))
		}
	},
}

// probed is the JSON document of probe.
type probed struct {
	Kinds []probedKind `json:"kinds"`
}

type probedKind struct {
	Kind          string            `json:"kind"`
	State         string            `json:"state"`
	Reason        string            `json:"reason,omitempty"`
	Import        string            `json:"import,omitempty"`
	Library       string            `json:"library,omitempty"`
	DriverVersion string            `json:"driverVersion,omitempty"`
	Tier          string            `json:"tier,omitempty"`
	Devices       []fuel.DeviceInfo `json:"devices"`
}

func probeKinds(ctx context.Context, flags *probeFlags) ([]probedKind, error) {
	rows, err := flags.probe(ctx)
	if err != nil {
		return nil, err
	}
	var kinds []probedKind
	for _, r := range rows {
		if !flags.wantsKind(r.Kind) {
			continue
		}
		k := probedKind{
			Kind: r.Kind.String(), State: r.State.String(), Reason: r.Reason, Import: r.Import,
			Library: r.Library, DriverVersion: r.DriverVersion, Tier: r.Tier,
			Devices: []fuel.DeviceInfo{},
		}
		for _, d := range r.Devices {
			if flags.wants(d.Device) {
				k.Devices = append(k.Devices, d)
			}
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

func probeText(kinds []probedKind) []byte {
	t := table{columns: []column{
		{title: "kind"}, {title: "state"}, {title: "device"}, {title: "name"}, {title: "memory", right: true},
		{title: "free", right: true}, {title: "library"}, {title: "driver"}, {title: "tier"}, {title: "import"}, {title: "reason"},
	}}
	for _, k := range kinds {
		add := func(device, name, total, free string) {
			t.add(k.Kind, k.State, device, name, total, free,
				orNone(k.Library), orNone(k.DriverVersion), orNone(k.Tier), orNone(k.Import), orNone(k.Reason))
		}
		for _, d := range k.Devices {
			add(d.Device.String(), orNone(d.Name), memorySize(d.Memory.Total), memorySize(d.Memory.Free))
		}
		if len(k.Devices) == 0 {
			add(none, none, none, none)
		}
	}
	var b bytes.Buffer
	t.write(&b)
	return b.Bytes()
}

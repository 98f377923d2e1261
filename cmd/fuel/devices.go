package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/spf13/pflag"
)

// probeFlags are the flags of commands that look for devices.
type probeFlags struct {
	timeout time.Duration
	devices deviceList
}

func (f *probeFlags) define(set *pflag.FlagSet) {
	set.Var(&f.devices, "device", "only `DEVICE`, such as cpu or cuda:0; may be repeated")
	set.DurationVar(&f.timeout, "timeout", 30*time.Second, "wait at most `DURATION` for drivers to answer (30s);\n0 is for ever")
}

// probe returns the rows of fuel.Probe. A device that was named and is not
// there is an error.
func (f *probeFlags) probe(ctx context.Context) ([]fuel.BackendStatus, error) {
	if f.timeout < 0 {
		return nil, usagef("--timeout %s is negative", f.timeout)
	}
	limited := ctx
	if f.timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	rows := fuel.Probe(limited)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, d := range f.devices {
		if err := missing(rows, d); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// missing is nil if d is among the devices that can be used, and else says
// why it is not.
func missing(rows []fuel.BackendStatus, d fuel.Device) error {
	for _, row := range rows {
		switch {
		case row.Kind != d.Kind:
		case row.State != fuel.Available:
			return fmt.Errorf("device %s is not available: %s", d, row.Reason)
		case slices.ContainsFunc(row.Devices, func(i fuel.DeviceInfo) bool { return i.Device == d }):
			return nil
		default:
			return fmt.Errorf("there is no device %s: the last one is %s", d, row.Devices[len(row.Devices)-1].Device)
		}
	}
	return fmt.Errorf("there is no device %s", d)
}

// wants reports whether d was named, or none was.
func (f *probeFlags) wants(d fuel.Device) bool {
	return len(f.devices) == 0 || slices.Contains(f.devices, d)
}

// wantsKind reports whether a device of kind k was named, or none was.
func (f *probeFlags) wantsKind(k fuel.Kind) bool {
	return len(f.devices) == 0 || slices.ContainsFunc(f.devices, func(d fuel.Device) bool { return d.Kind == k })
}

// A deviceList is the value of --device.
type deviceList []fuel.Device

// Set implements pflag.Value; it adds a device.
func (l *deviceList) Set(s string) error {
	d, err := fuel.ParseDevice(s)
	if err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "fuel: "))
	}
	*l = append(*l, d)
	return nil
}

// String implements pflag.Value.
func (l *deviceList) String() string {
	names := make([]string, len(*l))
	for i, d := range *l {
		names[i] = d.String()
	}
	return strings.Join(names, ",")
}

// Type implements pflag.Value.
func (l *deviceList) Type() string { return "device" }

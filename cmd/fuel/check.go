package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/safetensors"
	"github.com/spf13/pflag"
)

var checkCommand = &command{
	name:  "check",
	args:  "[FILE…]",
	brief: "put tensors on every device, read them back, compare",
	help: `Maps safetensors files, or the checkpoint inside the program where none is
named, puts every tensor on every device that is there, reads it back to host
memory, and compares all bits with the file's, which is read once more in the
ordinary way. The memory that is read back to holds the opposite of every bit
before, and up to 256 MiB of tensors are on a device at the same time.

Every kind of device has a row; "-" and a reason is one that cannot be used,
which is no failure. A difference or an error on a device that is there is one.

GB/s are 10^9 bytes a second. "to" measures making a new Storage on the device
with the tensor's bytes, its memory included; on the CPU that is a copy, too.
"from" measures copying them back to host memory that is there already. The
first pass over all tensors opens the device and warms up, and does not count;
further passes are made until each figure covers 20 ms or 2 s have gone by.
Every tensor counts, so a file with many small ones shows the price of a call.
`,
	setup: func(set *pflag.FlagSet) action {
		var devices probeFlags
		var open openFlags
		devices.define(set)
		open.define(set)
		asJSON := set.Bool("json", false, "print one JSON document")
		return func(ctx context.Context, p *program, args []string) error {
			if err := open.check(); err != nil {
				return err
			}
			rows, err := devices.probe(ctx)
			if err != nil {
				return err
			}
			return p.check(ctx, args, &open.Options, targets(rows, &devices), *asJSON)
		}
	},
}

// A target is one row of the check: a device, or a kind that has none.
type target struct {
	Kind   string       `json:"kind"`
	Device *fuel.Device `json:"device,omitempty"`
	State  string       `json:"state"`
	Reason string       `json:"reason,omitempty"`
}

// targets turns what Probe said into the rows that are wanted.
func targets(rows []fuel.BackendStatus, flags *probeFlags) []target {
	var list []target
	for _, row := range rows {
		for _, d := range row.Devices {
			if flags.wants(d.Device) {
				list = append(list, target{Kind: row.Kind.String(), Device: &d.Device, State: row.State.String()})
			}
		}
		if len(row.Devices) == 0 && flags.wantsKind(row.Kind) {
			list = append(list, target{Kind: row.Kind.String(), State: row.State.String(), Reason: row.Reason})
		}
	}
	return list
}

// checked is the JSON document of check.
type checked struct {
	OK    bool          `json:"ok"`
	Files []checkedFile `json:"files"`
}

type checkedFile struct {
	File     string `json:"file"`
	Embedded bool   `json:"embedded"`
	Error    string `json:"error,omitempty"`
	summary
	Devices []checkedDevice `json:"devices"`
}

type checkedDevice struct {
	target
	Result     result     `json:"result"`
	Mismatches []mismatch `json:"mismatches,omitempty"`
	Tensors    int        `json:"tensors"`
	Bytes      int64      `json:"bytes"`
	To         *rate      `json:"to"`
	From       *rate      `json:"from"`
	Staged     int64      `json:"staged"`
}

type result string

const (
	resultEqual    result = "equal"
	resultMismatch result = "mismatch"
	resultError    result = "error"
	resultSkipped  result = "skipped"
)

// check does the files one after another, or the checkpoint if there is none.
func (p *program) check(ctx context.Context, paths []string, opt *safetensors.Options, list []target, asJSON bool) error {
	var opens []func() (*source, error)
	for _, path := range paths {
		opens = append(opens, func() (*source, error) { return p.open(ctx, path, opt) })
	}
	if len(paths) == 0 {
		opens = append(opens, func() (*source, error) { return openCheckpoint(ctx, opt) })
	}
	doc, printed := checked{Files: []checkedFile{}}, false
	for i, open := range opens {
		file := checkedFile{Embedded: len(paths) == 0, Devices: []checkedDevice{}}
		if !file.Embedded {
			file.File = paths[i]
		}
		err := p.checkFile(ctx, &file, open, list)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			file.Error = err.Error()
		} else if !asJSON {
			if err := p.print(file.text(printed)); err != nil {
				return err
			}
			printed = true
		}
		p.complain(&file, err)
		doc.Files = append(doc.Files, file)
	}
	if !asJSON {
		return nil
	}
	doc.OK = !p.failed
	return p.printJSON(doc)
}

// complain reports what went wrong with a file, a line each.
func (p *program) complain(file *checkedFile, err error) {
	if err != nil {
		p.fail(err)
	}
	for _, d := range file.Devices {
		switch d.Result {
		case resultMismatch:
			p.fail(fmt.Errorf("%s: %s: %d of %s differ", heading(file.File), d.Device, len(d.Mismatches), count(d.Tensors, "tensor")))
		case resultError:
			p.fail(fmt.Errorf("%s: %s: %s", heading(file.File), d.Device, d.Reason))
		}
	}
}

func (p *program) checkFile(ctx context.Context, file *checkedFile, open func() (*source, error), list []target) (err error) {
	src, err := open()
	if err != nil {
		return err
	}
	defer func() { err = orElse(err, src.close()) }()
	file.summary = src.summary(src.Report())
	tensors, err := src.Tensors()
	if err != nil {
		return err
	}
	defer func() {
		for _, t := range tensors {
			err = orElse(err, t.Data.Close())
		}
	}()
	samples := make([]sample, len(tensors))
	for i, t := range tensors {
		info, _ := src.Info(t.Name) // there is one for each tensor
		samples[i] = sample{t.Name, t.Data, info.Offset}
	}
	for _, t := range list {
		file.Devices = append(file.Devices, p.checkDevice(ctx, t, src.raw, samples))
	}
	return nil
}

func (p *program) checkDevice(ctx context.Context, on target, file io.ReaderAt, samples []sample) checkedDevice {
	row := checkedDevice{target: on, Result: resultSkipped}
	if on.Device == nil {
		return row
	}
	t := newTrial(*on.Device, samples, file)
	err := t.run(ctx, p.enough)
	row.Tensors, row.Bytes, row.Mismatches, row.Staged = t.compared, t.bytes, t.mismatches, t.staged
	row.To, row.From = t.to.rate(), t.from.rate()
	switch {
	case err != nil:
		row.Result, row.Reason = resultError, err.Error()
	case len(t.mismatches) > 0:
		row.Result = resultMismatch
	default:
		row.Result = resultEqual
	}
	return row
}

// text is the output for a person; more says that something stands above it.
func (f *checkedFile) text(more bool) []byte {
	t := table{columns: []column{
		{title: "device"}, {title: "state"}, {title: "tensors", right: true}, {title: "bytes", right: true},
		{title: "to GB/s", right: true}, {title: "from GB/s", right: true}, {title: "result"},
	}}
	for _, d := range f.Devices {
		if d.Device == nil {
			t.add(d.Kind, d.State, none, none, none, none, none+" ("+printable(d.Reason)+")")
			continue
		}
		t.add(d.Device.String(), d.State, number(d.Tensors), number(d.Bytes), d.To.String(), d.From.String(), d.verdict())
	}
	var b bytes.Buffer
	if more {
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s: %s\n", heading(f.File), f.summary)
	t.write(&b)
	return b.Bytes()
}

// verdict is the cell of the last column.
func (d *checkedDevice) verdict() string {
	switch d.Result {
	case resultMismatch:
		const shown = 3
		s := "MISMATCH"
		for i, m := range d.Mismatches {
			if i == shown {
				s += fmt.Sprintf(" and %d more", len(d.Mismatches)-shown)
				break
			}
			s += fmt.Sprintf(" %s (byte %d)", named(m.Tensor), m.Byte)
		}
		return s
	case resultError:
		return "ERROR " + printable(d.Reason)
	}
	return string(d.Result)
}

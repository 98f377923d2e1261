package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/safetensors"
	"github.com/spf13/pflag"
)

var inspectCommand = &command{
	name:  "inspect",
	args:  "FILE…",
	brief: "list tensors, where they lie, and which must be copied",
	help: `Opens safetensors files, maps them, and lists the tensors in the order of their
bytes. "mod 64" is the address of the bytes that a program gets, modulo 64.
"placement" is zero-copy if these are the file's own, realigned if they had to
be copied because the place in the file does not suit the element type or
--min-alignment. Nothing but the header and what is copied is read.
`,
	setup: func(set *pflag.FlagSet) action {
		var flags openFlags
		flags.define(set)
		asJSON := set.Bool("json", false, "print one JSON document")
		return func(ctx context.Context, p *program, args []string) error {
			if len(args) == 0 {
				return usagef("inspect needs a file")
			}
			if err := flags.check(); err != nil {
				return err
			}
			return p.inspect(ctx, args, &flags.Options, *asJSON)
		}
	},
}

// inspected is the JSON document of inspect.
type inspected struct {
	OK    bool            `json:"ok"`
	Files []inspectedFile `json:"files"`
}

type inspectedFile struct {
	File  string `json:"file"`
	Error string `json:"error,omitempty"`
	summary
	Size       int64             `json:"size"`
	DataOffset int64             `json:"dataOffset"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Items      []inspectedTensor `json:"items"`
}

type inspectedTensor struct {
	Name         string     `json:"name"`
	DType        fuel.DType `json:"dtype"`
	Shape        []int      `json:"shape"`
	Len          int        `json:"len"`
	Bytes        int        `json:"bytes"`
	Offset       int64      `json:"offset"`
	Required     int        `json:"required"`
	Found        int        `json:"found"`
	AddressMod64 *int       `json:"addressMod64"` // nil without bytes
	Placement    string     `json:"placement"`
}

func (p *program) inspect(ctx context.Context, paths []string, opt *safetensors.Options, asJSON bool) error {
	doc, printed := inspected{Files: []inspectedFile{}}, false
	for _, path := range paths {
		file, err := p.inspectFile(ctx, path, opt)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			p.fail(err)
			file = inspectedFile{File: path, Error: err.Error(), Items: []inspectedTensor{}}
		}
		doc.Files = append(doc.Files, file)
		if asJSON || err != nil {
			continue
		}
		if err := p.print(file.text(printed)); err != nil {
			return err
		}
		printed = true
	}
	if !asJSON {
		return nil
	}
	doc.OK = !p.failed
	return p.printJSON(doc)
}

func (p *program) inspectFile(ctx context.Context, path string, opt *safetensors.Options) (file inspectedFile, err error) {
	src, err := p.open(ctx, path, opt)
	if err != nil {
		return file, err
	}
	defer func() { err = orElse(err, src.close()) }()
	h, report := src.Header(), src.Report()
	file = inspectedFile{
		File: path, summary: src.summary(report),
		Size: h.Size(), DataOffset: h.DataOffset(), Metadata: h.Metadata(),
		Items: make([]inspectedTensor, 0, len(report.Tensors)),
	}
	for _, row := range report.Tensors {
		item, err := inspectTensor(src, row)
		if err != nil {
			return file, err
		}
		file.Items = append(file.Items, item)
	}
	return file, nil
}

func inspectTensor(src *source, row safetensors.TensorAlignment) (item inspectedTensor, err error) {
	s, err := src.Tensor(row.Name)
	if err != nil {
		return item, err
	}
	defer func() { err = orElse(err, s.Close()) }()
	info, _ := src.Info(row.Name) // there is one for each row
	item = inspectedTensor{
		Name: row.Name, DType: info.DType, Shape: info.Shape, Len: info.Len,
		Bytes: row.Bytes, Offset: row.Offset, Required: row.Required, Found: row.Found,
		Placement: row.Placement.String(),
	}
	if row.Bytes == 0 {
		return item, nil
	}
	err = s.Use(func(b []byte) error {
		mod := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % 64)
		item.AddressMod64 = &mod
		return nil
	})
	return item, err
}

// text is the output for a person; more says that something stands above it.
func (f *inspectedFile) text(more bool) []byte {
	t := table{columns: []column{
		{title: "name"}, {title: "dtype"}, {title: "shape"}, {title: "bytes", right: true},
		{title: "offset", right: true}, {title: "mod 64", right: true}, {title: "placement"},
	}}
	for _, i := range f.Items {
		mod := none
		if i.AddressMod64 != nil {
			mod = number(*i.AddressMod64)
		}
		place := i.Placement
		if i.Found > 0 && i.Found < i.Required && i.AddressMod64 != nil {
			place += fmt.Sprintf(" (aligned to %d in the file, needs %d)", i.Found, i.Required)
		}
		t.add(named(i.Name), i.DType.String(), shapeText(i.Shape), number(i.Bytes), number(i.Offset), mod, place)
	}
	var b bytes.Buffer
	if more {
		b.WriteByte('\n')
	}
	t.write(&b)
	fmt.Fprintf(&b, "%s: %s\n", heading(f.File), f.summary)
	return b.Bytes()
}

func shapeText(shape []int) string {
	dims := make([]string, len(shape))
	for i, d := range shape {
		dims[i] = strconv.Itoa(d)
	}
	return "[" + strings.Join(dims, ",") + "]"
}

// orElse is the first error of the two.
func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

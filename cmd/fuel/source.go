package main

import (
	"bytes"
	"context"
	_ "embed" // for the checkpoint
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-fuel/fuel/internal/hostfile"
	"github.com/go-fuel/fuel/safetensors"
	"github.com/spf13/pflag"
)

// checkpoint is a small file with a tensor of every dtype of the format. Its
// test makes it: go test ./cmd/fuel -generate.
//
//go:embed testdata/checkpoint.safetensors
var checkpoint []byte

// openFlags are the flags of commands that open files.
type openFlags struct {
	safetensors.Options
}

func (f *openFlags) define(set *pflag.FlagSet) {
	set.IntVar(&f.MinAlignment, "min-alignment", 0, "copy tensors that do not lie at a multiple of `BYTES`,\na power of two up to 4096")
	set.BoolVar(&f.RequireZeroCopy, "require-zero-copy", false, "fail where a tensor cannot be used where it lies in the file")
}

func (f *openFlags) check() error {
	if a := f.MinAlignment; a < 0 || a > 4096 || a&(a-1) != 0 {
		return usagef("--min-alignment %d is not a power of two up to 4096", a)
	}
	return nil
}

// A source is an open file, or the checkpoint inside the program.
type source struct {
	*safetensors.File
	raw      io.ReaderAt // the same file, to be read
	closeRaw func() error
	unmapped string // why there is no temporary file to map
	temp     string // temporary file that is still to be removed
}

func openPath(ctx context.Context, path string, opt *safetensors.Options) (*source, error) {
	raw, err := hostfile.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := safetensors.OpenContext(ctx, path, opt)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return &source{File: f, raw: raw, closeRaw: raw.Close}, nil
}

// openCheckpoint opens the checkpoint through a temporary file, so that it is
// really mapped. Where there can be none it is read from the program's memory.
func openCheckpoint(ctx context.Context, opt *safetensors.Options) (*source, error) {
	s := &source{raw: bytes.NewReader(checkpoint), closeRaw: func() error { return nil }}
	path, err := writeTemp(checkpoint)
	if err != nil {
		var openErr error
		s.File, openErr = safetensors.FromBytes(checkpoint, opt)
		if openErr != nil {
			return nil, fmt.Errorf("%w (no temporary file to map: %w)", openErr, err)
		}
		s.unmapped = "no temporary file to map: " + err.Error()
		return s, nil
	}
	s.File, err = safetensors.OpenContext(ctx, path, opt)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	// Gone at once, however the program ends, except where a mapped file
	// cannot be removed.
	if os.Remove(path) != nil {
		s.temp = path
	}
	return s, nil
}

// writeTemp writes b to a new temporary file and returns its path.
func writeTemp(b []byte) (path string, err error) {
	f, err := os.CreateTemp("", "fuel-*.safetensors")
	if err != nil {
		return "", err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// close gives everything back. All tensors must be closed.
func (s *source) close() error {
	err := errors.Join(s.File.Close(), s.closeRaw())
	if s.temp != "" {
		err = errors.Join(err, os.Remove(s.temp))
	}
	return err
}

// A summary says what a file has and what opening it cost.
type summary struct {
	Tensors          int    `json:"tensors"`
	Bytes            int64  `json:"bytes"`
	Mapped           bool   `json:"mapped"`
	NotMapped        string `json:"notMapped,omitempty"`
	ZeroCopyTensors  int    `json:"zeroCopyTensors"`
	ZeroCopyBytes    int64  `json:"zeroCopyBytes"`
	RealignedTensors int    `json:"realignedTensors"`
	RealignedBytes   int64  `json:"realignedBytes"`
	LoadedTensors    int    `json:"loadedTensors"`
	LoadedBytes      int64  `json:"loadedBytes"`
}

func (s *source) summary(r safetensors.AlignmentReport) summary {
	m := summary{
		Tensors: len(r.Tensors), Mapped: r.Mapped, NotMapped: r.NotMapped,
		ZeroCopyTensors: r.ZeroCopyTensors, ZeroCopyBytes: r.ZeroCopyBytes,
		RealignedTensors: r.RealignedTensors, RealignedBytes: r.RealignedBytes,
		LoadedTensors: r.LoadedTensors, LoadedBytes: r.LoadedBytes,
	}
	for _, t := range r.Tensors {
		m.Bytes += int64(t.Bytes)
	}
	if s.unmapped != "" {
		m.NotMapped = s.unmapped
	}
	return m
}

// String is one line for a person.
func (m summary) String() string {
	s := fmt.Sprintf("%s (%d bytes); ", count(m.Tensors, "tensor"), m.Bytes)
	if m.Mapped {
		s += "mapped"
	} else {
		s += "read, not mapped (" + printable(m.NotMapped) + ")"
	}
	s += fmt.Sprintf("; zero-copy %d (%d bytes), realigned %d (%d bytes)",
		m.ZeroCopyTensors, m.ZeroCopyBytes, m.RealignedTensors, m.RealignedBytes)
	if m.LoadedTensors > 0 {
		s += fmt.Sprintf(", loaded %d (%d bytes)", m.LoadedTensors, m.LoadedBytes)
	}
	return s
}

// heading is how the text output names a file: "" is the checkpoint.
func heading(path string) string {
	if path == "" {
		return "the checkpoint inside the program"
	}
	return named(path)
}

// count is "1 thing" or "n things".
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

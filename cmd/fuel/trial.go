package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/go-fuel/fuel"
)

const (
	// batchBytes is how much of a file is on the device at once: enough that
	// tensors which overlap there are found out, and no more than any has.
	batchBytes = 256 << 20

	// pieceBytes is how much is compared at a time: whole elements.
	pieceBytes = 256 << 10

	// A figure covers at least enoughTime, unless patience ends first.
	enoughTime = 20 * time.Millisecond
)

// patience is how long a figure may take in all.
var patience = 2 * time.Second

// A sample is a tensor to try.
type sample struct {
	name   string
	data   *fuel.Storage // as the file is mapped
	offset int64         // of its bytes in the file
}

// A trial sends the tensors of a file to one device and back.
type trial struct {
	device    fuel.Device
	samples   []sample
	file      io.ReaderAt // the same file, read and not mapped: the truth
	want, got []byte      // buffers for a piece

	// The findings. What is counted is that of the last pass.
	compared   int
	bytes      int64
	staged     int64
	mismatches []mismatch
	to, from   meter
}

// A mismatch is a tensor that came back different.
type mismatch struct {
	Tensor string `json:"tensor"`
	Byte   int    `json:"byte"` // of the first difference
}

func newTrial(device fuel.Device, samples []sample, file io.ReaderAt) *trial {
	return &trial{
		device: device, samples: samples, file: file,
		want: make([]byte, pieceBytes), got: make([]byte, pieceBytes),
	}
}

// run compares all tensors and, if they are equal, measures until each figure
// covers enough time.
func (t *trial) run(ctx context.Context, enough time.Duration) error {
	if err := t.pass(ctx); err != nil {
		return err
	}
	t.to, t.from = meter{}, meter{} // the first pass warmed up
	if t.bytes == 0 {
		return nil
	}
	began := time.Now()
	for len(t.mismatches) == 0 && (t.to.time < enough || t.from.time < enough) {
		if err := t.pass(ctx); err != nil {
			return err
		}
		if time.Since(began) > patience {
			break
		}
	}
	return nil
}

// pass sends every tensor to the device and back once.
func (t *trial) pass(ctx context.Context) error {
	t.compared, t.bytes, t.staged = 0, 0, 0
	for batch := range batches(t.samples, batchBytes) {
		if err := t.batch(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// batches cuts a list into pieces that end where limit bytes are reached.
func batches(list []sample, limit int) iter.Seq[[]sample] {
	return func(yield func([]sample) bool) {
		for len(list) > 0 {
			n, size := 0, 0
			for n < len(list) && size < limit {
				size += min(list[n].data.LenBytes(), limit)
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// batch does some of the tensors: all to the device, then all back, so that
// each is read after the others were written.
func (t *trial) batch(ctx context.Context, batch []sample) (err error) {
	var open []*fuel.Storage
	defer func() {
		for _, s := range open {
			err = orElse(err, s.Close())
		}
	}()
	backs := make([]*fuel.Storage, len(batch))
	var size int64
	for i, item := range batch {
		if backs[i], err = t.spoiled(ctx, item); err != nil {
			return inTensor(item, err)
		}
		open = append(open, backs[i])
		size += int64(backs[i].LenBytes())
	}

	there := make([]*fuel.Storage, len(batch))
	began := time.Now()
	for i, item := range batch {
		if there[i], err = t.put(ctx, item.data); err != nil {
			return inTensor(item, err)
		}
		open = append(open, there[i])
	}
	t.to.add(size, time.Since(began))

	began = time.Now()
	for i, item := range batch {
		if err := backs[i].CopyFrom(ctx, there[i], nil); err != nil {
			return inTensor(item, err)
		}
	}
	t.from.add(size, time.Since(began))

	for i, item := range batch {
		if err := t.compare(ctx, item, backs[i]); err != nil {
			return inTensor(item, err)
		}
	}
	return nil
}

// spoiled returns host memory for a tensor in which every bit is the opposite
// of what it should become, so that none is right unless it was copied.
func (t *trial) spoiled(ctx context.Context, item sample) (*fuel.Storage, error) {
	back, err := fuel.AllocUninit(fuel.Device{}, item.data.DType(), item.data.Len(), nil)
	if err != nil {
		return nil, err
	}
	for off := 0; off < back.LenBytes() && err == nil; off += pieceBytes {
		var b []byte
		if b, err = t.truth(item, off); err != nil {
			break
		}
		for i := range b {
			b[i] = ^b[i]
		}
		if _, err = back.WriteAt(b, int64(off)); err == nil {
			err = ctx.Err()
		}
	}
	if err != nil {
		return nil, orElse(err, back.Close())
	}
	return back, nil
}

// truth reads the piece of a tensor that begins at byte off, as it must be in
// memory. It is valid until the next call.
func (t *trial) truth(item sample, off int) ([]byte, error) {
	b := t.want[:min(pieceBytes, item.data.LenBytes()-off)]
	if _, err := t.file.ReadAt(b, item.offset+int64(off)); err != nil {
		return nil, fmt.Errorf("reading the file: %w", err)
	}
	toHost(b, item.data.DType())
	return b, nil
}

// toHost turns elements in the byte order of a file into the host's.
func toHost(b []byte, d fuel.DType) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return
	}
	width := max(1, d.Bits()/8)
	if d.IsComplex() {
		width /= 2
	}
	for number := range slices.Chunk(b, width) {
		slices.Reverse(number)
	}
}

// put returns a copy of s on the device.
func (t *trial) put(ctx context.Context, s *fuel.Storage) (*fuel.Storage, error) {
	var report fuel.CopyReport
	opt := &fuel.CopyOptions{Report: &report}
	if t.device != s.Device() {
		c, err := s.To(ctx, t.device, opt)
		t.staged += int64(report.Staged)
		return c, err
	}
	// To would clone, which copies nothing.
	c, err := fuel.AllocUninit(t.device, s.DType(), s.Len(), nil)
	if err != nil {
		return nil, err
	}
	if err := c.CopyFrom(ctx, s, opt); err != nil {
		return nil, orElse(err, c.Close())
	}
	t.staged += int64(report.Staged)
	return c, nil
}

// compare looks for the first difference between the file and what came back.
func (t *trial) compare(ctx context.Context, item sample, back *fuel.Storage) error {
	t.compared++
	t.bytes += int64(back.LenBytes())
	for off := 0; off < back.LenBytes(); off += pieceBytes {
		want, err := t.truth(item, off)
		if err != nil {
			return err
		}
		got := t.got[:len(want)]
		if _, err := back.ReadAt(got, int64(off)); err != nil {
			return err
		}
		if i := firstDifference(want, got); i >= 0 {
			t.mismatches = append(t.mismatches, mismatch{item.name, off + i})
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// firstDifference returns the index of the first byte in which want and got,
// of one length, differ, or -1.
func firstDifference(want, got []byte) int {
	if bytes.Equal(want, got) {
		return -1
	}
	for i := range want {
		if want[i] != got[i] {
			return i
		}
	}
	return len(want) // they are not of one length
}

// inTensor adds the name of the tensor to an error.
func inTensor(item sample, err error) error {
	return fmt.Errorf("tensor %q: %w", item.name, err)
}

// A meter adds up what was moved and the time it took.
type meter struct {
	bytes int64
	time  time.Duration
}

func (m *meter) add(bytes int64, d time.Duration) {
	m.bytes += bytes
	m.time += d
}

// rate returns the figure, nil where nothing was measured.
func (m *meter) rate() *rate {
	if m.bytes == 0 || m.time <= 0 {
		return nil
	}
	s := m.time.Seconds()
	return &rate{m.bytes, s, float64(m.bytes) / s / 1e9}
}

// A rate is one measured figure.
type rate struct {
	Bytes       int64   `json:"bytes"`
	Seconds     float64 `json:"seconds"`
	GBPerSecond float64 `json:"gbPerSecond"`
}

// String is the figure for a table.
func (r *rate) String() string {
	if r == nil {
		return none
	}
	return fmt.Sprintf("%.2f", r.GBPerSecond)
}

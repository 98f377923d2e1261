package gpu

import (
	"bytes"
	"encoding/binary"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
)

// Fill implements backend.Device.
func (d *Device) Fill(b backend.Buffer, off, n int, pattern []byte) (backend.Point, error) {
	if err := d.enter(); err != nil {
		return 0, err
	}
	defer d.leave()
	if err := d.q.lost.Load(); err != nil {
		return 0, *err
	}
	p, err := d.fill(d.mem.span(b), off, n, d.whole(b, off, n), pattern)
	return p, d.q.note(err)
}

// fill is Fill; whole is n, or more where the last unit may be overwritten.
func (d *Device) fill(s *span, off, n, whole int, pattern []byte) (backend.Point, error) {
	if b := d.host(s, off, n, false); b != nil {
		if len(bytes.Trim(pattern, "\x00")) == 0 {
			cpu.Zero(b)
		} else {
			cpu.Fill(b, pattern)
		}
		return d.lastUse(s), nil
	}
	if d.odd(off | whole) {
		return d.fillOdd(s, off, n, whole, pattern)
	}
	return d.fillUnits(s, off, whole, pattern)
}

// fillUnits queues a fill as the device does it. The length need not be a
// multiple of the pattern's.
func (d *Device) fillUnits(s *span, off, n int, pattern []byte) (backend.Point, error) {
	f := d.plan(s.off+off, n, pattern)
	if f.seed > 0 {
		return d.up.seeded(s, off, n, pattern, f)
	}
	var last backend.Point
	for at := 0; at < n; {
		k := min(MaxOp, n-at)
		p, err := d.work([]Op{{Kind: OpFill, Dst: s.slab.block, DstOff: s.off + off + at, N: k, Word: f.word}}, s)
		if err != nil {
			return 0, err
		}
		last = p
		at += k
	}
	return last, nil
}

// A filling is how a fill is done: the bytes before head and the last tail of
// them are copied from staging memory that holds the pattern, what is between
// is an OpFill of word; or, where the pattern is too long for that, seed bytes
// are copied from there, and then what is there already to what comes after.
type filling struct {
	head, tail int
	word       uint32
	seed       int
}

// seedSize is the most bytes of a repeated pattern that go through staging.
const seedSize = 64 << 10

// plan tells how n bytes at off of a Block are filled.
func (d *Device) plan(off, n int, pattern []byte) filling {
	word, ok := wordOf(pattern)
	if (d.lim.FillUnit == 1 || d.lim.FillByte) && word != word&0xFF*0x01010101 {
		ok = false
	}
	unit, align := d.lim.FillUnit, d.lim.FillAlign
	head := -off & (align - 1)
	tail := (n - head) & (unit - 1)
	switch {
	case !ok || n < head+unit:
		return filling{seed: min(n, seedSize)}
	case head == 0 && tail == 0:
		return filling{word: word}
	}
	// The word that the body begins with is the pattern from byte head on.
	return filling{head: head, tail: tail, word: word>>(head%4*8) | word<<(32-head%4*8), seed: max(head, tail)}
}

// wordOf returns the four bytes that a pattern repeats, if it does.
func wordOf(pattern []byte) (word uint32, ok bool) {
	var w [4]byte
	for i := range w {
		w[i] = pattern[i%len(pattern)]
	}
	for i, c := range pattern {
		if c != w[i%4] {
			return 0, false
		}
	}
	return binary.LittleEndian.Uint32(w[:]), true
}

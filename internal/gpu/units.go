package gpu

import (
	"context"

	"github.com/go-fuel/fuel/internal/backend"
)

// Where the device copies whole units only (Limits.CopyUnit), the bytes of a
// range before its first and after its last whole unit go by way of the host.
// Memory that the host may write directly it writes so, byte by byte, when the
// work before has passed. In other memory a unit is read to staging, changed
// there and written back, under the lock of the upload staging: two who change
// one unit never lose what the other wrote.
//
// Memory of the first sort never takes the second way, for the same reason.

// odd reports whether any of these offsets and lengths, joined by |, is not of
// whole units.
func (d *Device) odd(x int) bool { return x&(d.lim.CopyUnit-1) != 0 }

// whole widens a range that ends with its Buffer to the end of the unit: what
// comes after is nobody's, since Buffers begin and end at Limits.Align.
func (d *Device) whole(b backend.Buffer, off, n int) int {
	if off+n == b.Size {
		n += -(off + n) & (d.lim.CopyUnit - 1)
	}
	return n
}

// settle waits for all work so far that s is used by.
func (d *Device) settle(s *span) error {
	return d.q.wait(context.Background(), max(d.lastUse(s), backend.Point(d.external.Load())))
}

// copyOdd is Copy for ranges that are not of whole units; whole is n, or more
// where the last unit of dst may be overwritten.
func (d *Device) copyOdd(to *span, dstOff int, from *span, srcOff, n, whole int) (backend.Point, error) {
	unit := d.lim.CopyUnit
	head := -dstOff & (unit - 1)
	body := (whole - head) &^ (unit - 1)
	overlap := to == from && dstOff < srcOff+n && srcOff < dstOff+n
	if body <= 0 || overlap || d.odd(dstOff-srcOff) {
		return d.bounce(to, dstOff, from, srcOff, n, whole)
	}
	if _, err := d.bounce(to, dstOff, from, srcOff, head, head); err != nil {
		return 0, err
	}
	if at := head + body; at < n {
		if _, err := d.bounce(to, dstOff+at, from, srcOff+at, n-at, n-at); err != nil {
			return 0, err
		}
	}
	return d.copyUnits(to, dstOff+head, from, srcOff+head, body)
}

// bounceSize is the memory through which the host copies.
const bounceSize = 64 << 10

// bounce copies through the host's own memory, n of 0 included: in pieces, from
// the end that an overlapping copy does not reach first.
func (d *Device) bounce(to *span, dstOff int, from *span, srcOff, n, whole int) (last backend.Point, err error) {
	buf := make([]byte, min(n, bounceSize))
	for done := 0; done < n; {
		k := min(len(buf), n-done)
		at, w := done, k
		if to == from && dstOff > srcOff {
			at = n - done - k
		}
		if at+k == n {
			w = whole - at
		}
		if _, err := d.download(buf[:k], from, srcOff+at); err != nil {
			return 0, err
		}
		if last, _, err = d.upload(to, dstOff+at, source{mem: buf[:k], n: k}, w); err != nil {
			return 0, err
		}
		done += k
	}
	return last, nil
}

// fillOdd is fill for a range that is not of whole units.
func (d *Device) fillOdd(s *span, off, n, whole int, pattern []byte) (last backend.Point, err error) {
	unit := d.lim.CopyUnit
	head := -off & (unit - 1)
	body := (whole - head) &^ (unit - 1)
	if body <= 0 {
		last, _, err = d.upload(s, off, turned(pattern, 0, n), whole)
		return last, err
	}
	if head > 0 {
		if _, _, err := d.upload(s, off, turned(pattern, 0, head), head); err != nil {
			return 0, err
		}
	}
	if at := head + body; at < n {
		if _, _, err := d.upload(s, off+at, turned(pattern, at, n-at), n-at); err != nil {
			return 0, err
		}
	}
	return d.fillUnits(s, off+head, body, turned(pattern, head, len(pattern)).mem)
}

// turned returns n bytes of a repeated pattern, from byte at on.
func turned(pattern []byte, at, n int) source {
	b := make([]byte, n)
	for i := range b {
		b[i] = pattern[(at+i)%len(pattern)]
	}
	return source{mem: b, n: n}
}

package fueltest

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing/iotest"

	"github.com/go-fuel/fuel"
)

// places are the devices between which copies are tried: the CPU, the device,
// and its neighbour where it has one.
func (x *subject) places() []fuel.Device {
	list := []fuel.Device{{}}
	if x.dev.Kind == fuel.CPU {
		return list
	}
	list = append(list, x.dev)
	next := fuel.Device{Kind: x.dev.Kind, Index: x.dev.Index + 1}
	if s, err := fuel.Alloc(next, fuel.U8, 1, nil); err == nil {
		x.close(s)
		list = append(list, next)
	}
	return list
}

// path is how bytes have to go.
func path(dst, src fuel.Device) fuel.CopyPath {
	switch {
	case dst.Kind == fuel.CPU && src.Kind == fuel.CPU:
		return fuel.PathHost
	case dst.Kind == fuel.CPU:
		return fuel.PathDownload
	case src.Kind == fuel.CPU:
		return fuel.PathUpload
	case src == dst:
		return fuel.PathDevice
	}
	return fuel.PathBounce
}

// staged reports whether k of n bytes may be staged on the path: of a transfer
// all may, or none, as the driver has it.
func staged(p fuel.CopyPath, k, n int) bool {
	switch p {
	case fuel.PathBounce:
		return k == n
	case fuel.PathUpload, fuel.PathDownload:
		return k == n || k == 0
	}
	return k == 0
}

func checkCopy(x *subject) {
	places := x.places()
	for _, to := range places {
		for _, at := range places {
			for _, n := range x.sizes() {
				b := x.random(n)
				src := x.must(fuel.FromBytes(at, fuel.U8, b))
				old := x.random(n)
				dst := x.must(fuel.FromBytes(to, fuel.U8, old))
				var report fuel.CopyReport
				last := 0
				opt := &fuel.CopyOptions{Report: &report, Progress: func(done, total int) {
					if done < last || total != n || done > n {
						x.Errorf("progress %d of %d, after %d of %d", done, total, last, n)
					}
					last = done
				}}
				x.ok(dst.CopyFrom(x.ctx, src, opt))
				x.holds(dst, b, "%d bytes from %s to %s", n, at, to)
				x.holds(src, b, "source of %d bytes from %s to %s", n, at, to)
				if last != n {
					x.Errorf("progress ended at %d of %d", last, n)
				}
				want := path(to, at)
				if n == 0 {
					want = fuel.PathNone
				}
				if report.Bytes != n || report.Path != want || report.Private || report.Duration < 0 {
					x.Errorf("copy of %d bytes from %s to %s reports %+v", n, at, to, report)
				}
				if !staged(want, report.Staged, n) {
					x.Errorf("copy of %d bytes by way of %s reports %d staged", n, want, report.Staged)
				}

				// A range, with all bytes around it watched.
				for _, r := range [][3]int{{1, 0, n - 1}, {0, 1, n - 1}, {n / 3, n / 2, n / 4}, {n, n, 0}} {
					k := r[2]
					if k < 0 {
						continue
					}
					x.ok(dst.CopyFrom(x.ctx, src, nil))
					model := slices.Clone(b)
					fresh := x.random(n)
					part := x.must(fuel.FromBytes(at, fuel.U8, fresh))
					x.ok(dst.CopyRange(x.ctx, r[0], part, r[1], k, nil))
					copy(model[r[0]:r[0]+k], fresh[r[1]:r[1]+k])
					x.holds(dst, model, "CopyRange of %d of %d bytes from %s to %s, %d to %d", k, n, at, to, r[1], r[0])
					x.close(part)
				}
				x.close(src, dst)
			}
		}
	}
}

// mapped returns a Storage of a file, and its bytes.
func (x *subject) mapped(n int, off int64) (*fuel.Storage, []byte) {
	x.Helper()
	b := x.random(n + int(off) + 5)
	name := filepath.Join(x.TempDir(), "bytes")
	x.ok(os.WriteFile(name, b, 0o600))
	f, err := os.Open(name)
	x.ok(err)
	defer f.Close()
	return x.must(fuel.Map(f, fuel.U8, off, n)), b[off : off+int64(n)]
}

func checkCopyMapped(x *subject) {
	for _, n := range []int{1, 4097, x.big()} {
		m, want := x.mapped(n, 3)
		s := x.must(m.To(x.ctx, x.dev, nil))
		x.holds(s, want, "To of %d mapped bytes", n)
		x.ok(s.Zero(x.ctx))
		x.holds(m, want, "a file after its copy was cleared")
		x.ok(s.CopyFrom(x.ctx, m, nil))
		x.equal(s, m, true, "copy of a file")
		x.ok(m.Zero(x.ctx)) // in a private copy
		x.holds(m, make([]byte, n), "a mapped Storage after Zero")
		x.holds(s, want, "a copy of a file after Zero of the Storage")
		x.close(m, s)
	}
}

func checkCopyMismatch(x *subject) {
	s := x.from([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	short := x.from(make([]byte, 4))
	floats := x.must(s.Reinterpret(fuel.F32))
	x.is(s.CopyFrom(x.ctx, short, nil), fuel.ErrMismatch, "CopyFrom of another length")
	x.is(s.CopyFrom(x.ctx, floats, nil), fuel.ErrMismatch, "CopyFrom of another dtype")
	x.is(s.CopyRange(x.ctx, 0, floats, 0, 1, nil), fuel.ErrMismatch, "CopyRange of another dtype")
	for _, r := range [][3]int{{0, 0, 5}, {5, 0, 4}, {-1, 0, 1}, {0, -1, 1}, {0, 0, -1}, {0, 5, 0}, {9, 0, 0}, {math.MaxInt, 0, 4}} {
		x.is(s.CopyRange(x.ctx, r[0], short, r[1], r[2], nil), fuel.ErrRange, "CopyRange %v", r)
	}
	x.holds(s, []byte{1, 2, 3, 4, 5, 6, 7, 8}, "after refused copies")
	x.close(s, short, floats)
}

func checkOverlap(x *subject) {
	sizes := []int{2, 5, 64, 100, 4097, 300 << 10}
	if !x.short {
		sizes = append(sizes, x.big())
	}
	for _, n := range sizes {
		for _, shift := range []int{0, 1, 3, 16, 64, 1000, n / 2} {
			if shift >= n || n > 1<<20 && shift != 1 && shift != 64 {
				continue
			}
			for _, up := range []bool{true, false} {
				from, to := 0, shift
				if !up {
					from, to = to, from
				}
				model := x.random(n)
				s := x.from(model)
				dst, src := x.must(s.View(to, n-shift)), x.must(s.View(from, n-shift))
				x.ok(dst.CopyFrom(x.ctx, src, nil))
				copy(model[to:to+n-shift], model[from:from+n-shift])
				x.holds(s, model, "CopyFrom within %d bytes, from %d to %d", n, from, to)

				x.ok(s.CopyRange(x.ctx, from, s, to, n-shift, nil)) // and back
				copy(model[from:from+n-shift], model[to:to+n-shift])
				x.holds(s, model, "CopyRange within %d bytes, from %d to %d", n, to, from)

				q, err := fuel.QueueOf(x.dev)
				x.ok(err)
				p, err := q.Copy(dst, src)
				x.ok(err)
				x.ok(q.Wait(x.ctx, p))
				copy(model[to:to+n-shift], model[from:from+n-shift])
				x.holds(s, model, "Queue.Copy within %d bytes, from %d to %d", n, from, to)
				x.close(s, dst, src)
			}
		}
	}
}

func checkRanges(x *subject) {
	const n = 1000
	model := x.random(n)
	s := x.from(model)
	for _, off := range []int{0, 1, 2, 3, 7, 63, 64, 65, 500, n - 1, n} {
		for _, k := range []int{0, 1, 2, 3, 5, 7, 17, 64, 255, n} {
			got := make([]byte, k)
			m, err := s.ReadAt(got, int64(off))
			want := min(k, n-off)
			if m != want || (err == io.EOF) != (want < k) || err != nil && err != io.EOF {
				x.Errorf("ReadAt of %d bytes at %d of %d: %d, %v", k, off, n, m, err)
			}
			x.same(got[:m], model[off:off+m], "ReadAt of %d bytes at %d", k, off)
			if slices.ContainsFunc(got[m:], func(b byte) bool { return b != 0 }) {
				x.Errorf("ReadAt of %d bytes at %d wrote more than the %d it returned", k, off, m)
			}

			b := x.random(k)
			m, err = s.WriteAt(b, int64(off))
			if off+k > n {
				if x.is(err, fuel.ErrRange, "WriteAt of %d bytes at %d of %d", k, off, n); m != 0 {
					x.Errorf("WriteAt past the end wrote %d", m)
				}
			} else {
				x.ok(err)
				copy(model[off:], b)
				if m != k {
					x.Errorf("WriteAt of %d bytes: %d", k, m)
				}
			}
			x.holds(s, model, "after WriteAt of %d bytes at %d", k, off)
		}
	}
	for _, off := range []int64{-1, math.MinInt64} {
		_, err := s.ReadAt(make([]byte, 1), off)
		x.is(err, fuel.ErrRange, "ReadAt at %d", off)
		_, err = s.WriteAt(make([]byte, 1), off)
		x.is(err, fuel.ErrRange, "WriteAt at %d", off)
	}
	for _, off := range []int64{n + 1, 1 << 40, math.MaxInt64} {
		if _, err := s.ReadAt(make([]byte, 1), off); err != io.EOF {
			x.Errorf("ReadAt at %d: %v, want io.EOF", off, err)
		}
		_, err := s.WriteAt(make([]byte, 1), off)
		x.is(err, fuel.ErrRange, "WriteAt at %d", off)
	}
	if got, err := io.ReadAll(io.NewSectionReader(s, 10, 300)); err != nil || !bytes.Equal(got, model[10:310]) {
		x.Errorf("a SectionReader gives other bytes, or %v", err)
	}
	x.close(s)
}

func checkEqual(x *subject) {
	for _, n := range x.sizes() {
		b := x.random(n)
		s, t := x.from(b), x.must(fuel.FromBytes(fuel.Device{}, fuel.U8, b))
		x.equal(s, t, true, "%d bytes", n)
		sum, err := s.Checksum(x.ctx)
		x.ok(err)
		if want := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)); sum != want {
			x.Errorf("Checksum of %d bytes is %08x, want %08x", n, sum, want)
		}
		v := x.must(s.View(0, n))
		x.equal(s, v, true, "%d bytes and a View", n)
		for _, i := range []int{0, n / 2, n - 1} {
			if n == 0 {
				break
			}
			_, err := t.WriteAt([]byte{b[i] ^ 0x80}, int64(i))
			x.ok(err)
			x.equal(s, t, false, "%d bytes that differ at %d", n, i)
			_, err = t.WriteAt(b[i:i+1], int64(i))
			x.ok(err)
		}
		if n%4 == 0 {
			f := x.must(s.Reinterpret(fuel.F32))
			if same, err := f.Equal(x.ctx, s); same || err != nil {
				x.Errorf("Equal of f32 and u8: %v, %v", same, err)
			}
			x.close(f)
		}
		if n > 0 {
			half := x.must(s.View(0, n-1))
			if same, err := half.Equal(x.ctx, s); same || err != nil {
				x.Errorf("Equal of %d and %d bytes: %v, %v", n-1, n, same, err)
			}
			x.close(half)
		}
		x.close(s, t, v)
	}
	nan := x.must(fuel.FromSlice(x.dev, []float64{math.NaN(), 0}))
	same := x.must(fuel.FromSlice(fuel.Device{}, []float64{math.NaN(), 0}))
	other := x.must(fuel.FromSlice(fuel.Device{}, []float64{math.NaN(), math.Copysign(0, -1)}))
	x.equal(nan, same, true, "NaN and the same NaN")
	x.equal(nan, other, false, "0 and -0")
	x.close(nan, same, other)
}

// A stingyWriter takes so many bytes and then does what it says.
type stingyWriter struct {
	bytes.Buffer
	left int
	err  error
}

func (w *stingyWriter) Write(b []byte) (int, error) {
	if len(b) <= w.left {
		w.left -= len(b)
		return w.Buffer.Write(b)
	}
	n, _ := w.Buffer.Write(b[:w.left]) // a Buffer has no errors
	w.left = 0
	return n, w.err
}

func checkReaderWriter(x *subject) {
	for _, n := range []int{1, 5, 4097, x.big()} {
		b := x.random(n)
		s := x.from(b)
		var to bytes.Buffer
		if k, err := s.WriteTo(&to); k != int64(n) || err != nil {
			x.Errorf("WriteTo of %d bytes: %d, %v", n, k, err)
		}
		x.same(to.Bytes(), b, "WriteTo of %d bytes", n)
		for _, stop := range []error{io.ErrClosedPipe, nil} {
			want := stop
			if want == nil {
				want = io.ErrShortWrite // a Writer that breaks its contract
			}
			w := &stingyWriter{left: n / 2, err: stop}
			k, err := s.WriteTo(w)
			x.is(err, want, "WriteTo a writer of %d of %d bytes", n/2, n)
			if k != int64(n/2) || !bytes.Equal(w.Bytes(), b[:n/2]) {
				x.Errorf("WriteTo a writer of %d of %d bytes: %d", n/2, n, k)
			}
		}

		readers := map[string]func(io.Reader) io.Reader{
			"plain":        func(r io.Reader) io.Reader { return r },
			"half":         iotest.HalfReader,
			"data and EOF": iotest.DataErrReader,
		}
		if n < 10000 {
			readers["one byte"] = iotest.OneByteReader
		}
		for name, reader := range readers {
			in := x.random(n)
			rest := bytes.NewReader(append(slices.Clone(in), 1, 2, 3))
			k, err := s.ReadFrom(reader(rest))
			if k != int64(n) || err != nil {
				x.Errorf("ReadFrom a %s reader of %d bytes: %d, %v", name, n, k, err)
			}
			x.holds(s, in, "ReadFrom a %s reader of %d bytes", name, n)
			if name == "plain" && rest.Len() != 3 {
				x.Errorf("ReadFrom left %d bytes, want 3", rest.Len())
			}

			c := x.must(s.Clone())
			k, err = s.ReadFrom(reader(bytes.NewReader(in[:n-1])))
			x.is(err, io.ErrUnexpectedEOF, "ReadFrom a %s reader that lacks a byte of %d", name, n)
			if k != int64(n-1) {
				x.Errorf("ReadFrom a %s reader of %d bytes: %d", name, n-1, k)
			}
			x.holds(c, in, "a Clone after ReadFrom failed")
			x.close(c)
		}
		broken := errors.New("broken")
		_, err := s.ReadFrom(iotest.ErrReader(broken))
		x.is(err, broken, "ReadFrom a broken reader")
		if k, err := s.ReadFrom(bytes.NewReader(b)); k != int64(n) || err != nil {
			x.Errorf("ReadFrom after a broken reader: %d, %v", k, err)
		}
		x.holds(s, b, "ReadFrom after a broken reader")
		x.close(s)
	}
}

func checkTo(x *subject) {
	places := x.places()
	for _, n := range []int{0, 1, 3, 4097, x.big()} {
		b := x.random(n)
		s := x.from(b)
		for _, dev := range places {
			var report fuel.CopyReport
			there := x.must(s.To(x.ctx, dev, &fuel.CopyOptions{Report: &report}))
			if there.Device() != dev || there.DType() != s.DType() || there.Len() != n {
				x.Errorf("To(%s): %d %s on %s", dev, there.Len(), there.DType(), there.Device())
			}
			x.holds(there, b, "%d bytes to %s", n, dev)
			if dev == x.dev {
				if there.Region().Owners != 2 || report.Bytes != 0 || report.Path != fuel.PathNone {
					x.Errorf("To the same device is no Clone: %d owners, %+v", there.Region().Owners, report)
				}
			} else if report.Bytes != n {
				x.Errorf("To(%s) of %d bytes reports %+v", dev, n, report)
			}
			back := x.must(there.To(x.ctx, x.dev, nil))
			x.equal(s, back, true, "%d bytes to %s and back", n, dev)

			// All of them are independent.
			x.ok(there.Fill(x.ctx, []byte{0xEE}))
			x.holds(s, b, "after a write to what To(%s) returned", dev)
			x.holds(back, b, "after a write to what it came from")
			x.close(there, back)
		}
		x.close(s)
	}
	s := x.from([]byte{1})
	_, err := s.To(x.ctx, fuel.Device{Kind: 200, Index: 1}, nil)
	x.is(err, fuel.ErrUnavailable, "To an unknown kind")
	_, err = s.To(x.ctx, fuel.Device{Kind: x.dev.Kind, Index: 10000}, nil)
	x.is(err, fuel.ErrUnavailable, "To device 10000")
	x.close(s)
}

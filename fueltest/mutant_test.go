package fueltest

import (
	"bytes"
	"context"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
)

// A mutant is a device with one fault.
type mutant struct {
	backend.Device
	inner *fakeDevice

	alloc    func(n int, zero bool) (backend.Buffer, error)
	free     func(b backend.Buffer, after backend.Point)
	fill     func(b backend.Buffer, off, n int, pattern []byte) (backend.Point, error)
	copy     func(dst backend.Buffer, dstOff int, src backend.Buffer, srcOff, n int) (backend.Point, error)
	upload   func(dst backend.Buffer, off int, src []byte) (backend.Point, bool, error)
	download func(dst []byte, src backend.Buffer, off int) (bool, error)
	done     func(p backend.Point) bool
	wait     func(ctx context.Context, p backend.Point) error
	keep     bool // host memory for ever
}

func (m *mutant) Alloc(n int, zero bool) (backend.Buffer, error) {
	if m.alloc != nil {
		return m.alloc(n, zero)
	}
	return m.Device.Alloc(n, zero)
}

func (m *mutant) Free(b backend.Buffer, after backend.Point) {
	if m.free != nil {
		m.free(b, after)
		return
	}
	m.Device.Free(b, after)
}

func (m *mutant) Fill(b backend.Buffer, off, n int, pattern []byte) (backend.Point, error) {
	if m.fill != nil {
		return m.fill(b, off, n, pattern)
	}
	return m.Device.Fill(b, off, n, pattern)
}

func (m *mutant) Copy(dst backend.Buffer, dstOff int, src backend.Buffer, srcOff, n int) (backend.Point, error) {
	if m.copy != nil {
		return m.copy(dst, dstOff, src, srcOff, n)
	}
	return m.Device.Copy(dst, dstOff, src, srcOff, n)
}

func (m *mutant) Upload(dst backend.Buffer, off int, src []byte) (backend.Point, bool, error) {
	if m.upload != nil {
		return m.upload(dst, off, src)
	}
	return m.Device.Upload(dst, off, src)
}

func (m *mutant) Download(dst []byte, src backend.Buffer, off int) (bool, error) {
	if m.download != nil {
		return m.download(dst, src, off)
	}
	return m.Device.Download(dst, src, off)
}

func (m *mutant) Done(p backend.Point) bool {
	if m.done != nil {
		return m.done(p)
	}
	return m.Device.Done(p)
}

func (m *mutant) Wait(ctx context.Context, p backend.Point) error {
	if m.wait != nil {
		return m.wait(ctx, p)
	}
	return m.Device.Wait(ctx, p)
}

// kept is what a mutant does not call, and the test does after it.
var kept []func()

func (m *mutant) ImportAlign() int { return m.inner.ImportAlign() }

func (m *mutant) Import(mem []byte, mayFault bool, release func()) (backend.Buffer, error) {
	if m.keep {
		kept = append(kept, release) // the collector would free what nobody has
		release = func() {}
	}
	return m.inner.Import(mem, mayFault, release)
}

func (m *mutant) PinAlign() int { return m.inner.PinAlign() }

func (m *mutant) Pin(mem []byte) (backend.Pin, error) {
	p, err := m.inner.Pin(mem)
	if err == nil && m.keep {
		p = keptPin{p}
	}
	return p, err
}

type keptPin struct{ backend.Pin }

func (p keptPin) Unpin(gone func()) { kept = append(kept, func() { p.Pin.Unpin(gone) }) }

// mutants are the faults that drivers are known to have had, and the suite
// must find.
var mutants = []struct {
	name string
	by   string // the part of the suite that finds it
	opt  FakeOptions
	make func(m *mutant)
}{
	{"staging is not flushed", "alloc", FakeOptions{NonCoherent: true}, func(m *mutant) {
		m.inner.staging.flush = func(int, int) {}
	}},
	{"staging is flushed up to the last whole atom", "alloc", FakeOptions{NonCoherent: true}, func(m *mutant) {
		flush := m.inner.staging.flush
		m.inner.staging.flush = func(off, n int) {
			if n > atom {
				flush(off, n-atom)
			}
		}
	}},
	{"staging is flushed from the next whole atom", "alloc", FakeOptions{NonCoherent: true}, func(m *mutant) {
		flush := m.inner.staging.flush
		m.inner.staging.flush = func(off, n int) {
			if n > atom {
				flush(off+atom, n-atom)
			}
		}
	}},
	{"ranges are not rounded to atoms", "alloc", FakeOptions{NonCoherent: true}, func(m *mutant) {
		flush := m.inner.staging.flush
		m.inner.staging.flush = func(off, n int) { flush(off+1, n-1) }
	}},
	{"staging is not invalidated", "alloc", FakeOptions{NonCoherent: true}, func(m *mutant) {
		m.inner.staging.invalidate = func(int, int) {}
	}},
	{"zeroed memory is not", "alloc", FakeOptions{}, func(m *mutant) {
		m.alloc = func(n int, zero bool) (backend.Buffer, error) { return m.Device.Alloc(n, false) }
	}},
	{"fills are rounded up to four bytes", "fill borders", FakeOptions{}, func(m *mutant) {
		m.fill = func(b backend.Buffer, off, n int, pattern []byte) (backend.Point, error) {
			p, err := m.Device.Fill(b, off, n, pattern)
			if over := min((n+3)&^3, b.Size-off) - n; err == nil && over > 0 {
				p, err = m.Device.Fill(b, off+n, over, pattern[:1])
			}
			return p, err
		}
	}},
	{"fills are rounded down to four bytes", "fill", FakeOptions{}, func(m *mutant) {
		m.fill = func(b backend.Buffer, off, n int, pattern []byte) (backend.Point, error) {
			if n > 4 && len(pattern) < 4 {
				n &^= 3
			}
			return m.Device.Fill(b, off, n, pattern)
		}
	}},
	{"fills begin at multiples of four", "fill borders", FakeOptions{}, func(m *mutant) {
		m.fill = func(b backend.Buffer, off, n int, pattern []byte) (backend.Point, error) {
			return m.Device.Fill(b, off&^3, n, pattern)
		}
	}},
	{"patterns begin at addresses, not at the range", "fill borders", FakeOptions{}, func(m *mutant) {
		m.fill = func(b backend.Buffer, off, n int, pattern []byte) (backend.Point, error) {
			k := len(pattern)
			turned := append(bytes.Clone(pattern[(k-off%k)%k:]), pattern[:(k-off%k)%k]...)
			return m.Device.Fill(b, off, n, turned)
		}
	}},
	{"patterns of 16 bytes count as 8", "fill", FakeOptions{}, func(m *mutant) {
		m.fill = func(b backend.Buffer, off, n int, pattern []byte) (backend.Point, error) {
			return m.Device.Fill(b, off, n, pattern[:min(8, len(pattern))])
		}
	}},
	{"overlapping copies go upwards only", "overlap", FakeOptions{}, func(m *mutant) {
		m.copy = func(dst backend.Buffer, dstOff int, src backend.Buffer, srcOff, n int) (p backend.Point, err error) {
			const piece = 1 << 10
			for i := 0; i < n && err == nil; i += piece {
				p, err = m.Device.Copy(dst, dstOff+i, src, srcOff+i, min(piece, n-i))
			}
			return p, err
		}
	}},
	{"overlapping copies go downwards only", "overlap", FakeOptions{}, func(m *mutant) {
		m.copy = func(dst backend.Buffer, dstOff int, src backend.Buffer, srcOff, n int) (p backend.Point, err error) {
			const piece = 1 << 10
			for end := n; end > 0 && err == nil; end -= piece {
				i := max(0, end-piece)
				p, err = m.Device.Copy(dst, dstOff+i, src, srcOff+i, end-i)
			}
			return p, err
		}
	}},
	{"copies are rounded up to four bytes", "copy", FakeOptions{}, func(m *mutant) {
		m.copy = func(dst backend.Buffer, dstOff int, src backend.Buffer, srcOff, n int) (backend.Point, error) {
			return m.Device.Copy(dst, dstOff, src, srcOff, min((n+3)&^3, dst.Size-dstOff, src.Size-srcOff))
		}
	}},
	{"copies miss a last odd byte", "copy", FakeOptions{}, func(m *mutant) {
		m.copy = func(dst backend.Buffer, dstOff int, src backend.Buffer, srcOff, n int) (backend.Point, error) {
			return m.Device.Copy(dst, dstOff, src, srcOff, max(1, n&^1))
		}
	}},
	{"offsets of copy sources are ignored", "copy", FakeOptions{}, func(m *mutant) {
		m.copy = func(dst backend.Buffer, dstOff int, src backend.Buffer, _, n int) (backend.Point, error) {
			return m.Device.Copy(dst, dstOff, src, 0, n)
		}
	}},
	{"uploads read the source later", "construct", FakeOptions{}, func(m *mutant) {
		var last []byte
		var to backend.Buffer
		var at int
		m.upload = func(dst backend.Buffer, off int, src []byte) (backend.Point, bool, error) {
			last, to, at = src, dst, off
			return m.Device.Upload(dst, off, src)
		}
		m.download = func(dst []byte, src backend.Buffer, off int) (bool, error) {
			if src.Handle == to.Handle {
				if _, _, err := m.Device.Upload(to, at, last); err != nil {
					return false, err
				}
			}
			return m.Device.Download(dst, src, off)
		}
	}},
	{"uploads are rounded down to 4 KiB", "alloc", FakeOptions{}, func(m *mutant) {
		m.upload = func(dst backend.Buffer, off int, src []byte) (backend.Point, bool, error) {
			if len(src) > 4<<10 {
				src = src[:len(src)&^(4<<10-1)]
			}
			return m.Device.Upload(dst, off, src)
		}
	}},
	{"a download returns zeros", "alloc", FakeOptions{}, func(m *mutant) {
		m.download = func(dst []byte, src backend.Buffer, off int) (bool, error) {
			if len(dst) > 64<<10 {
				clear(dst)
				return false, nil
			}
			return m.Device.Download(dst, src, off)
		}
	}},
	{"a download does not wait", "alloc", FakeOptions{Lazy: true}, func(m *mutant) {
		m.download = func(dst []byte, src backend.Buffer, off int) (bool, error) {
			b := m.inner.live[src.Handle]
			copy(dst, b.bytes(off, len(dst)))
			return false, nil
		}
	}},
	{"all work has passed at once", "external", FakeOptions{Lazy: true}, func(m *mutant) {
		m.done = func(backend.Point) bool { return true }
	}},
	{"waits return at once", "queue", FakeOptions{Lazy: true}, func(m *mutant) {
		m.wait = func(context.Context, backend.Point) error { return nil }
	}},
	{"waits ignore the context", "external", FakeOptions{}, func(m *mutant) {
		m.wait = func(_ context.Context, p backend.Point) error { return m.Device.Wait(context.Background(), p) }
	}},
	{"memory is freed before its last use", "queue and storages", FakeOptions{Lazy: true}, func(m *mutant) {
		m.free = func(b backend.Buffer, _ backend.Point) { m.Device.Free(b, 0) }
	}},
	{"memory is never freed", "alloc", FakeOptions{}, func(m *mutant) {
		m.free = func(backend.Buffer, backend.Point) {}
	}},
	{"host memory is never let go of", "import", FakeOptions{ImportAlign: 4096}, func(m *mutant) { m.keep = true }},
	{"an upload from page-locked memory returns too early", "pin", FakeOptions{ImportAlign: 4096, Lazy: true}, func(m *mutant) {
		m.upload = func(dst backend.Buffer, off int, src []byte) (backend.Point, bool, error) {
			if !m.inner.pinned(src) {
				return m.Device.Upload(dst, off, src)
			}
			to := m.inner.live[dst.Handle]
			// By then it may be unmapped.
			return m.inner.submit(func() error { return m.inner.fromHost(to.bytes(off, len(src)), src) }, to), false, nil
		}
		m.wait = func(context.Context, backend.Point) error { return nil } // as a driver that trusts in page-locked memory
	}},
	{"page-locked memory is never let go of", "pin", FakeOptions{ImportAlign: 4096}, func(m *mutant) { m.keep = true }},
	{"memory is one for all", "copy", FakeOptions{}, func(m *mutant) {
		var shared backend.Buffer
		m.alloc = func(n int, zero bool) (backend.Buffer, error) {
			if shared.Size == n {
				return shared, nil
			}
			b, err := m.Device.Alloc(n, zero)
			shared = b
			return b, err
		}
	}},
}

// TestSuiteFindsFaults looks that no fault above gets through. Each is seen by
// the suite, or by the fake under it.
func TestSuiteFindsFaults(t *testing.T) {
	impatient(t)
	for _, fault := range mutants {
		t.Run(fault.name, func(t *testing.T) {
			opt := fault.opt
			opt.wrap = func(d *fakeDevice) backend.Device {
				m := &mutant{Device: d, inner: d}
				fault.make(m)
				return m
			}
			for _, p := range parts {
				if p.name != fault.by {
					continue
				}
				failures := record(t, func(t testing.TB) {
					p.run(t, Register(t, fuel.Vulkan, opt).Device(0), true)
				})
				for _, release := range kept { // Windows keeps a file that is mapped
					release()
				}
				kept = nil
				if len(failures) > 0 {
					t.Logf("found: %s", failures[0])
					return
				}
			}
			t.Errorf("%q passes", fault.by)
		})
	}
}

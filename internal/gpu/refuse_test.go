package gpu_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/race"
)

var wordwise = gpu.Limits{Align: 256, Atom: 64, FillUnit: 4, FillAlign: 16, Heap: 64 << 20, MaxBlock: 32 << 20, MaxAllocations: 64}

// A scene is a device and what its Buffers hold, for calls that may fail: after
// such a one what they wrote is unknown, and only that.
type scene struct {
	t    *testing.T
	d    *gpu.Device
	list []*prop
	errs []error
}

type prop struct {
	backend.Buffer
	want []byte // nil where unknown
}

func (s *scene) did(p *prop, err error, change func(b []byte)) {
	switch {
	case err != nil:
		s.errs = append(s.errs, err)
		p.want = nil
	case p.want != nil:
		change(p.want)
	}
}

func (s *scene) alloc(n int) *prop {
	b, err := s.d.Alloc(n, true)
	if err != nil {
		s.errs = append(s.errs, err)
		return nil
	}
	p := &prop{b, make([]byte, n)}
	s.list = append(s.list, p)
	return p
}

// check compares what Buffers hold, those that can be read.
func (s *scene) check(when string) {
	for i, p := range s.list {
		got := make([]byte, p.Size)
		if _, err := s.d.Download(got, p.Buffer, 0); err != nil {
			s.errs = append(s.errs, err)
		} else if p.want != nil && !bytes.Equal(got, p.want) {
			s.t.Errorf("%s: Buffer %d of %d bytes is not what it should be", when, i, p.Size)
		}
	}
}

// play makes every kind of call, and goes on whatever fails.
func (s *scene) play() {
	for _, n := range []int{300, 70_001, 1 << 20, 64} {
		s.alloc(n)
	}
	for i, p := range s.list {
		src := numbered(p.Size - 9)
		_, _, err := s.d.Upload(p.Buffer, 3, src)
		s.did(p, err, func(b []byte) { copy(b[3:], src) })
		pattern := [][]byte{{7}, []byte("abcd"), []byte("sixteen bytes..."), {0}}[i%4]
		k := (p.Size/2 - 5) &^ 15
		_, err = s.d.Fill(p.Buffer, 5, k, pattern)
		s.did(p, err, func(b []byte) { copy(b[5:5+k], bytes.Repeat(pattern, k/len(pattern))) })
		_, err = s.d.Copy(p.Buffer, 10, p.Buffer, 1, p.Size-11)
		s.did(p, err, func(b []byte) { copy(b[10:], b[1:p.Size-10]) })
		if i > 0 {
			from := s.list[i-1]
			k := min(p.Size, from.Size) - 20
			_, err = s.d.Copy(p.Buffer, 20, from.Buffer, 1, k)
			if from.want == nil {
				p.want = nil
			}
			s.did(p, err, func(b []byte) { copy(b[20:], from.want[1:1+k]) })
		}
	}
	if len(s.list) > 1 { // memory used again
		s.d.Free(s.list[0].Buffer, 0)
		s.list = s.list[1:]
		s.alloc(400)
	}
	s.check("while calls fail")
}

// Every call of the driver fails once, and from then on, at every place that
// there is: the error says what it is, nothing stays, and what other calls
// wrote is as they wrote it.
func TestDriverThatRefusesNeverLeaksNorCorrupts(t *testing.T) {
	odd := errors.New("odd")
	calls := []struct {
		name string
		err  error
		hook func(p *softPort, f func() error)
	}{
		{"Allocate", backend.ErrNoMemory, func(p *softPort, f func() error) { p.give = f }},
		{"Submit", backend.ErrNoMemory, func(p *softPort, f func() error) { p.fail = func(backend.Point) error { return f() } }},
		{"Flush and Invalidate", odd, func(p *softPort, f func() error) { p.sync = f }},
		{"Await", odd, func(p *softPort, f func() error) { p.await = f }},
	}
	for _, kind := range []softKind{memories[1], memories[3]} { // all staged, and most direct
		for _, c := range calls {
			t.Run(kind.name+"/"+c.name, func(t *testing.T) {
				for _, ever := range []bool{false, true} {
					step := 1
					for k := 0; ; k += step {
						n := 0
						p := newSoftPort(t, kind, wordwise)
						p.delay = 20 * time.Microsecond
						p.refuse = func(n int, use gpu.Use) error { // so that a transfer goes through it many times
							if use != gpu.Storage && n > 256<<10 {
								return backend.ErrNoMemory
							}
							if p.give != nil {
								return p.give()
							}
							return nil
						}
						works := false
						c.hook(p, func() error {
							if n++; !works && (n-1 == k || ever && n > k) {
								return fmt.Errorf("%s %d: %w", c.name, n, c.err)
							}
							return nil
						})
						s := &scene{t: t, d: gpu.New(p, wordwise, gpu.Config{})}
						s.play()
						for _, err := range s.errs {
							if !errors.Is(err, c.err) {
								t.Errorf("call %d fails: %v", k, err)
							}
						}
						p.mu.Lock()
						works = true
						reached := n > k
						p.mu.Unlock()
						s.errs = nil
						s.check(fmt.Sprintf("call %d failed, ever after %v", k, ever))
						if len(s.errs) > 0 {
							t.Errorf("call %d failed; when the driver is well again: %v", k, s.errs[0])
						}
						for _, b := range s.list {
							s.d.Free(b.Buffer, 0)
						}
						ok(t, s.d.Close()) // the port counts its blocks
						if t.Failed() || !reached {
							break
						}
						switch {
						case testing.Short() || race.Enabled:
							step = 1 + k
						case ever:
							step = 1 + k/4
						default:
							step = 1 + k/16
						}
					}
				}
			})
		}
	}
}

// A wait for a half of the staging that fails leaves that half to the work that
// still reads it.
func TestFailedWaitNeverFreesStagingInUse(t *testing.T) {
	p := newSoftPort(t, memories[0], wordwise)
	d := gpu.New(p, wordwise, gpu.Config{})
	const n = 8 << 20 // both halves
	a, err := d.Alloc(n, false)
	ok(t, err)
	b, err := d.Alloc(n, false)
	ok(t, err)
	gate := make(chan struct{})
	_, err = d.WaitExternal(backend.External{Done: gate})
	ok(t, err)
	want := numbered(n)
	_, _, err = d.Upload(a, 0, want)
	ok(t, err)
	bad := errors.New("bad")
	p.mu.Lock()
	p.await = func() error { return bad }
	p.mu.Unlock()
	if _, _, err := d.Upload(b, 0, make([]byte, n)); !errors.Is(err, bad) {
		t.Fatalf("an upload whose wait fails: %v", err)
	}
	p.mu.Lock()
	p.await = nil
	p.mu.Unlock()
	time.AfterFunc(20*time.Millisecond, func() { close(gate) })
	_, _, err = d.Upload(b, 0, make([]byte, n))
	ok(t, err)
	got := make([]byte, n)
	_, err = d.Download(got, a, 0)
	ok(t, err)
	if !bytes.Equal(got, want) {
		t.Error("an upload was overwritten by a later one")
	}
	ok(t, d.Close())
}

// A driver that refuses to wait is no reason to free what its work uses: the
// port counts that.
func TestDriverThatRefusesToWaitNeverLosesMemoryInUse(t *testing.T) {
	p := newSoftPort(t, memories[0], bytewise)
	p.await = func() error { return errors.New("no waits today") }
	d := gpu.New(importingPort{p}, bytewise, gpu.Config{})
	a, err := d.Alloc(4096, true)
	ok(t, err)
	mem, gone, release := pages(t, 1)
	in, err := d.Import(mem, false, release)
	ok(t, err)
	gate := make(chan struct{})
	_, err = d.WaitExternal(backend.External{Done: gate})
	ok(t, err)
	_, err = d.Copy(a, 0, in, 0, len(mem))
	ok(t, err)
	d.Free(in, 0)
	time.Sleep(10 * time.Millisecond)
	if gone.Load() != 0 {
		t.Error("host memory was let go while work uses it")
	}
	time.AfterFunc(10*time.Millisecond, func() { close(gate) })
	ok(t, d.Close())
}

// Staging halves until the driver has it, down to what a transfer needs.
func TestStagingNeverInsistsOnItsSize(t *testing.T) {
	for most := 16 << 20; most >= 32<<10; most /= 2 {
		p := newSoftPort(t, memories[0], wordwise)
		p.refuse = func(n int, use gpu.Use) error {
			if use != gpu.Storage && n > most {
				return fmt.Errorf("%w: %d bytes", backend.ErrNoMemory, n)
			}
			return nil
		}
		d := gpu.New(p, wordwise, gpu.Config{})
		b, err := d.Alloc(1<<20, false)
		ok(t, err)
		want, got := numbered(b.Size), make([]byte, b.Size)
		_, staged, err := d.Upload(b, 0, want)
		if most < 64<<10 {
			if !errors.Is(err, backend.ErrNoMemory) || !strings.Contains(err.Error(), "staging") {
				t.Errorf("%d bytes of staging: %v", most, err)
			}
		} else {
			ok(t, err)
			_, err = d.Download(got, b, 0)
			ok(t, err)
			size, why := d.Staging(b, 0, nil, false)
			if !staged || size != min(most, 8<<20) || why == "" || !bytes.Equal(got, want) {
				t.Errorf("%d bytes of staging: it has %d (%s), or other bytes came", most, size, why)
			}
		}
		d.Free(b, 0)
		ok(t, d.Close())
	}
}

// The device is lost while work waits; nobody has noticed.
func TestLostDeviceNeverAnswersAnythingElse(t *testing.T) {
	for _, kind := range memories {
		for first := range 7 {
			p := newSoftPort(t, kind, bytewise)
			d := gpu.New(importingPort{p}, bytewise, gpu.Config{})
			b, err := d.Alloc(4096, true)
			ok(t, err)
			c, err := d.Alloc(4096, true)
			ok(t, err)
			gate := make(chan struct{})
			x, err := d.WaitExternal(backend.External{Done: gate})
			ok(t, err)
			at, err := d.Copy(c, 0, b, 0, 4096)
			ok(t, err)
			waiters := make(chan error, 20)
			for range cap(waiters) {
				go func() { waiters <- d.Wait(t.Context(), at) }()
			}
			time.Sleep(time.Millisecond)
			p.lose()
			buf := make([]byte, 4096)
			mem, gone, release := pages(t, 1)
			calls := []func() error{
				func() error { _, err := d.Download(buf, c, 0); return err },
				func() error { _, _, err := d.Upload(c, 0, buf); return err },
				func() error { _, err := d.Fill(c, 0, 4096, []byte("abcdefgh")); return err },
				func() error { _, err := d.Copy(c, 0, c, 5, 100); return err },
				func() error { _, err := d.WaitExternal(backend.External{}); return err },
				func() error { return d.Wait(t.Context(), x) },
				func() error { _, err := d.Import(mem, false, release); return err },
			}
			for i := range calls {
				i = (i + first) % len(calls)
				if err := calls[i](); !errors.Is(err, backend.ErrLost) {
					t.Errorf("%s: call %d, beginning with %d: %v", kind.name, i, first, err)
				}
			}
			if _, err := d.Alloc(64, false); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%s: Alloc: %v", kind.name, err)
			}
			if !d.Done(at) {
				t.Errorf("%s: work is still on its way", kind.name)
			}
			for range cap(waiters) {
				select {
				case err := <-waiters:
					if !errors.Is(err, backend.ErrLost) {
						t.Errorf("%s: a waiter: %v", kind.name, err)
					}
				case <-time.After(10 * time.Second):
					t.Fatalf("%s: a waiter stays", kind.name)
				}
			}
			d.Free(b, at)
			ok(t, d.Close()) // c, too, and the port counts
			d.Free(c, at)
			if gone.Load() != 0 {
				t.Errorf("%s: memory that was not imported was let go", kind.name)
			}
			close(gate)
		}
	}
}

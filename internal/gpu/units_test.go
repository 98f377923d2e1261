package gpu_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// units are limits of a device that copies and fills whole units only.
var units = gpu.Limits{Align: 256, Atom: 64, CopyUnit: 4, FillUnit: 4, FillAlign: 4, FillByte: true, Heap: 64 << 20}

func eachMemory(t *testing.T, delay time.Duration, f func(t *testing.T, dev fuel.Device)) {
	for _, kind := range memories {
		for name, c := range map[string]gpu.Config{"": {}, " staged": {Staged: true}} {
			t.Run(kind.name+name, func(t *testing.T) {
				p := newSoftPort(t, kind, units)
				p.delay = delay
				f(t, register(t, p, c))
			})
		}
	}
}

func TestOddRangesNeverTouchOtherBytes(t *testing.T) {
	eachMemory(t, 0, func(t *testing.T, dev fuel.Device) {
		ctx := t.Context()
		rng := rand.New(rand.NewPCG(6, 4))
		for _, size := range []int{5, 37, 300_003} {
			s, err := fuel.Alloc(dev, fuel.U8, size, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			want := make([]byte, size)
			got := make([]byte, size)
			for i := range 60 {
				from, to, n := rng.IntN(size), rng.IntN(size), 1+rng.IntN(min(size, []int{9, 9, 9, size}[i%4]))
				n = min(n, size-max(from, to))
				if i%5 == 0 {
					n = size - to // to the end of the Buffer
					from = rng.IntN(size - n + 1)
				}
				switch i % 3 {
				case 0:
					p := make([]byte, n)
					for j := range p {
						p[j] = byte(rng.Uint32())
					}
					copy(want[to:], p)
					_, err = s.WriteAt(p, int64(to))
				case 1:
					pattern := []byte{byte(i), byte(i)}
					if i%2 == 0 {
						pattern[1]++
					}
					if n%2 == 1 {
						pattern = pattern[:1]
					}
					cpu.Fill(want[to:][:n], pattern)
					err = s.FillRange(ctx, to, n, pattern)
				case 2:
					copy(want[to:][:n], want[from:][:n])
					err = s.CopyRange(ctx, to, s, from, n, nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("step %d of %d bytes, from %d to %d of %d: %v", i, n, from, to, size, err)
				}
				if _, err := s.ReadAt(got[:n], int64(from)); err != nil || !bytes.Equal(got[:n], want[from:][:n]) {
					t.Fatalf("step %d: reading %d bytes at %d: %v", i, n, from, err)
				}
			}
		}
	})
}

// Disjoint ranges may be written in parallel, also where the device has one
// unit for them, and while there is work on the memory or not.
func TestNeighboursInOneUnitNeverLoseTheirBytes(t *testing.T) {
	for _, kind := range memories {
		for _, c := range []gpu.Config{{}, {Staged: true}} {
			t.Run(fmt.Sprintf("%s %+v", kind.name, c), func(t *testing.T) {
				p := newSoftPort(t, kind, units)
				p.delay = 50 * time.Microsecond
				neighbours(t, gpu.New(p, p.lim, c))
			})
		}
	}
}

func neighbours(t *testing.T, d backend.Device) {
	defer d.Close()
	b, err := d.Alloc(128, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(b, 0)
	src, err := d.Alloc(64, true)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Free(src, 0)
	for i := range 15 {
		value := byte(i + 1)
		if _, err := d.Fill(src, 0, 64, []byte{value}); err != nil {
			t.Fatal(err)
		}
		// Each has bytes of its own, in units that others write, too.
		work := []func() (backend.Point, error){
			func() (backend.Point, error) { return d.Fill(b, 64, 64, []byte{value}) },
			func() (backend.Point, error) { return upload(d, b, 0, []byte{value}) },
			func() (backend.Point, error) { return upload(d, b, 1, []byte{value, value}) },
			func() (backend.Point, error) { return d.Fill(b, 3, 10, []byte{value}) },
			func() (backend.Point, error) { return d.Copy(b, 13, src, 2, 12) },
			func() (backend.Point, error) { return d.Copy(b, 25, src, 13, 21) },
			func() (backend.Point, error) { return upload(d, b, 46, bytes.Repeat([]byte{value}, 18)) },
		}
		var wg sync.WaitGroup
		for _, f := range work {
			pause := time.Duration(rand.IntN(100)) * time.Microsecond
			wg.Go(func() {
				time.Sleep(pause)
				p, err := f()
				if err == nil {
					err = d.Wait(t.Context(), p)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got := make([]byte, 128)
		if _, err := d.Download(got, b, 0); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{value}, 128)) {
			t.Fatalf("%d: %v\n%x", i, err, got)
		}
	}
}

// A unit that is read, changed and written back loses what the host writes to
// it directly meanwhile.
func TestDirectMemoryNeverHasItsUnitsRewritten(t *testing.T) {
	for _, kind := range memories {
		if !kind.mapped || !kind.coherent {
			continue
		}
		p := newSoftPort(t, kind, units)
		p.delay = 5 * time.Millisecond
		d := gpu.New(p, p.lim, gpu.Config{})
		b, err := d.Alloc(64, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []func() (backend.Point, error){
			func() (backend.Point, error) { return d.Copy(b, 0, b, 32, 32) },
			func() (backend.Point, error) { return upload(d, b, 1, []byte{1}) },
			func() (backend.Point, error) { return d.Copy(b, 0, b, 32, 32) },
			func() (backend.Point, error) { return d.Fill(b, 1, 1, []byte{1}) },
		} {
			if _, err := f(); err != nil {
				t.Fatal(err)
			}
		}
		d.Free(b, 0)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if n := p.ops[gpu.OpCopy]; n != 2 {
			t.Errorf("%s: %d copies, want 2", kind.name, n)
		}
	}
}

func TestOddRangeNeverOvertakesWorkBefore(t *testing.T) {
	eachMemory(t, time.Millisecond, func(t *testing.T, dev fuel.Device) {
		var all [3]*fuel.Storage
		for i := range all {
			s, err := fuel.FromBytes(dev, fuel.U8, bytes.Repeat([]byte{byte(i + 1)}, 4096))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			all[i] = s
		}
		q, err := fuel.QueueOf(dev)
		if err != nil {
			t.Fatal(err)
		}
		var odd [3]*fuel.Storage
		for i, s := range all {
			if odd[i], err = s.View(5, 9); err != nil {
				t.Fatal(err)
			}
			defer odd[i].Close()
		}
		var last fuel.Point
		for i, f := range []func() (fuel.Point, error){
			func() (fuel.Point, error) { return q.Zero(all[0]) },
			func() (fuel.Point, error) { return q.Copy(odd[0], odd[1]) },
			func() (fuel.Point, error) { return q.Copy(all[1], all[0]) },
			func() (fuel.Point, error) { return q.Zero(odd[1]) },
			func() (fuel.Point, error) { return q.Copy(all[0], all[2]) },
			func() (fuel.Point, error) { return q.Copy(odd[2], odd[1]) },
		} {
			if last, err = f(); err != nil {
				t.Fatal(i, err)
			}
		}
		if err := q.Wait(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		for i, outside := range []byte{3, 0, 3} {
			want := bytes.Repeat([]byte{outside}, 4096)
			if i > 0 {
				cpu.Zero(want[5:14])
			}
			got := make([]byte, len(want))
			if _, err := all[i].ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d: %v, %x", i, err, got[:20])
			}
		}
	})
}

func upload(d backend.Device, b backend.Buffer, off int, src []byte) (backend.Point, error) {
	p, _, err := d.Upload(b, off, src)
	return p, err
}

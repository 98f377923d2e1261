package vulkan

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/fueltest"
	"github.com/go-fuel/fuel/internal/gpu"
)

// TestLoadNeverMixesUpBytes has 64 goroutines do everything at once, each on
// Storages of its own and on clones of one that all share: under a second for each
// way, or FUEL_VULKAN_MINUTE=1 a minute in all.
func TestLoadNeverMixesUpBytes(t *testing.T) {
	length := 700 * time.Millisecond
	if os.Getenv("FUEL_VULKAN_MINUTE") == "1" {
		length = 20 * time.Second
	}
	for name, d := range map[string]*driver{
		"direct": testDriver(gpu.Config{}),
		"staged": testDriver(gpu.Config{Staged: true}),
		"fences": {opt: options{cpu: true}, config: gpu.Config{Staged: true}, port: portOptions{fences: true}},
	} {
		t.Run(name, func(t *testing.T) {
			fueltest.LeakCheck(t)
			load(t, use(t, d), length)
		})
	}
}

func load(t *testing.T, dev fuel.Device, length time.Duration) {
	before := value(fuel.MemStats(dev))(t)
	q := value(fuel.QueueOf(dev))(t)
	shared := value(fuel.FromBytes(dev, fuel.U8, count(100_000)))(t)
	end := time.Now().Add(length)
	var rounds atomic.Int64
	var group sync.WaitGroup
	for g := range 64 {
		w := &worker{ctx: t.Context(), dev: dev, q: q, shared: shared, rng: rand.New(rand.NewPCG(1, uint64(g)))}
		group.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				if err := w.round(); err != nil {
					t.Errorf("goroutine %d: %v", g, err)
				}
				rounds.Add(1)
			}
		})
	}
	group.Wait()
	t.Logf("%d rounds", rounds.Load())
	if !bytes.Equal(contents(t, shared), count(100_000)) {
		t.Error("what all cloned has changed")
	}
	ok(t, shared.Close())
	if now := value(fuel.MemStats(dev))(t); now.InUse != before.InUse || now.Regions != before.Regions || now.Leaks != before.Leaks {
		t.Errorf("it ends with %+v, and began with %+v", now, before)
	}
}

// A worker does one thing after another and knows what must come out.
type worker struct {
	ctx    context.Context
	dev    fuel.Device
	q      *fuel.Queue
	shared *fuel.Storage
	rng    *rand.Rand
}

// A checked Storage goes with the bytes that it must hold.
type checked struct {
	s    *fuel.Storage
	want []byte
}

func (c checked) check(what string) error {
	got := make([]byte, len(c.want))
	if n, err := c.s.ReadAt(got, 0); n != len(got) {
		return fmt.Errorf("%s: ReadAt: %d, %w", what, n, err)
	}
	if !bytes.Equal(got, c.want) {
		i := 0
		for got[i] == c.want[i] {
			i++
		}
		return fmt.Errorf("%s: byte %d of %d is %#x, want %#x", what, i, len(got), got[i], c.want[i])
	}
	return nil
}

// round makes two Storages and a clone of what all share, works on them, and
// looks.
func (w *worker) round() (err error) {
	n := 16 << w.rng.IntN(12)
	if w.rng.IntN(2) == 0 {
		n += 16 * w.rng.IntN(n)
	}
	n = min(n, 100_000&^15)
	var all []checked
	defer func() {
		for _, c := range all {
			if e := c.s.Close(); err == nil {
				err = e
			}
		}
	}()
	hold := func(s *fuel.Storage, e error, want []byte) (c checked, ok bool) {
		if e != nil {
			err = e
			return c, false
		}
		c = checked{s, want}
		all = append(all, c)
		return c, true
	}
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(w.rng.Uint32())
	}
	s, e := fuel.FromBytes(w.dev, fuel.U8, data)
	a, ok := hold(s, e, bytes.Clone(data))
	if !ok {
		return err
	}
	s, e = fuel.Alloc(w.dev, fuel.U8, n, nil)
	b, ok := hold(s, e, make([]byte, n))
	if !ok {
		return err
	}
	s, e = w.shared.Clone()
	if _, ok := hold(s, e, count(100_000)); !ok {
		return err
	}
	for range 6 {
		x := all[w.rng.IntN(len(all))]
		size := len(x.want)
		at := w.rng.IntN(size)
		k := 1 + w.rng.IntN(size-at)
		switch op := w.rng.IntN(9); op {
		case 0: // a fill of a part
			pattern := data[:1<<w.rng.IntN(5)]
			k &^= len(pattern) - 1
			err = x.s.FillRange(w.ctx, at, k, pattern)
			copy(x.want[at:at+k], bytes.Repeat(pattern, k/len(pattern)))
		case 1: // a fill of all, queued
			_, err = w.q.Fill(x.s, data[:4])
			copy(x.want, bytes.Repeat(data[:4], size/4))
		case 2: // a copy within, most often overlapping
			to := w.rng.IntN(size - k + 1)
			err = x.s.CopyRange(w.ctx, to, x.s, at, k, nil)
			copy(x.want[to:to+k], bytes.Clone(x.want[at:at+k]))
		case 3: // one from another
			m := min(n, k)
			at = w.rng.IntN(n - m + 1)
			err = b.s.CopyRange(w.ctx, at, a.s, 0, m, nil)
			copy(b.want[at:], a.want[:m])
		case 4: // queued
			_, err = w.q.Copy(b.s, a.s)
			copy(b.want, a.want)
		case 5: // written by the host
			m := min(k, n)
			_, err = x.s.WriteAt(data[:m], int64(at))
			copy(x.want[at:], data[:m])
		case 6: // a clone that goes its own way
			var d *fuel.Storage
			if d, err = x.s.Clone(); err == nil {
				if d, ok := hold(d, nil, bytes.Clone(x.want)); ok && len(all) < 6 {
					_, err = d.s.WriteAt(data[:min(k, n)], int64(at))
					copy(d.want[at:], data[:min(k, n)])
				}
			}
		case 7: // to the host
			var h *fuel.Storage
			if h, err = x.s.To(w.ctx, cpu, nil); err == nil {
				err = checked{h, x.want}.check("To")
				if e := h.Close(); err == nil {
					err = e
				}
			}
		case 8: // closed with work in the queue
			var d *fuel.Storage
			if d, err = fuel.AllocUninit(w.dev, fuel.U8, n, nil); err == nil {
				_, err = w.q.Copy(d, b.s)
				if e := d.Close(); err == nil {
					err = e
				}
			}
		}
		if err != nil {
			return err
		}
	}
	for i, x := range all {
		if err := x.check(fmt.Sprintf("storage %d", i)); err != nil {
			return err
		}
	}
	return nil
}

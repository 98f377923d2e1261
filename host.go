package fuel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/check"
	"github.com/go-fuel/fuel/internal/race"
)

// hostDriver is the CPU as a driver, wired in.
var hostDriver = &backend.Driver{
	Kind:    backend.CPU,
	Package: "github.com/go-fuel/fuel",
	Probe: func(context.Context) (backend.Info, error) {
		return backend.Info{Tier: cpu.Tier(), Note: cpu.TierNote(), Devices: []backend.DeviceInfo{hostInfo()}}, nil
	},
	Open: func(context.Context, int) (backend.Device, error) { return hostDevice.be, nil },
}

func hostInfo() backend.DeviceInfo {
	h := (*host)(nil)
	return backend.DeviceInfo{
		Name:      runtime.GOOS + "/" + runtime.GOARCH,
		Memory:    h.Memory(),
		Alignment: cpu.Align,
		Unified:   true,
	}
}

// hostDevice is there from the start: the CPU needs no probe.
var hostDevice = newDevice(Device{}, &host{}, backend.DeviceInfo{Alignment: cpu.Align, Unified: true})

// host is the CPU as a device. Storage methods work on its memory directly;
// its queue is for Queue.
type host struct {
	queue backend.Serial
	dead  quarantine
	alone atomic.Int64 // live blocks that are a mapping each, for checked mode and to be page-locked

	padding atomic.Int64 // bytes of those beyond what was asked for
	pinned  atomic.Int64 // bytes that are page-locked for a GPU
}

// pool has the host's memory, of the whole process. It is made at its first
// use, so that a program that uses none pays nothing.
var pool = sync.OnceValue(func() *cpu.Pool { return cpu.NewPool(nil) })

// poolUnderRace makes race builds use the pool: for its own tests.
var poolUnderRace = false

// hookedFrom is the length in bytes from which the collector frees a Region that
// was dropped. Below it the hook would cost more than the block.
const hookedFrom = 64 << 10

// Values of Buffer.Handle. A block of the pool has its ID above these bits.
const (
	goHeap  = 0
	alone   = 1
	pooled  = 2
	idShift = 2
)

func (h *host) Memory() backend.MemInfo {
	b := cpu.HostBudget()
	return backend.MemInfo{Total: b.Total, Free: b.Free}
}

func (h *host) Alloc(n int, zero bool) (backend.Buffer, error) {
	b, _, err := h.alloc(n, zero, false, 0)
	return b, err
}

// alloc is Alloc with a wish for huge pages, and what came of it. With unit it is
// a mapping of its own, of whole units at a multiple of unit bytes: to be page-
// locked. Host has all of it as its capacity.
func (h *host) alloc(n int, zero, huge bool, unit int) (backend.Buffer, cpu.HugePages, error) {
	own := unit > 0
	outcome := cpu.HugePages{Asked: huge}
	// The race detector sees the Go heap only.
	if !cpu.HaveReserve || race.Enabled && !poolUnderRace && !own {
		if huge {
			outcome.Refused = "the block is on the Go heap"
		}
		if int64(n) > cpu.MaxHeap {
			return backend.Buffer{}, outcome, fmt.Errorf("%w: the Go heap has no %d bytes", backend.ErrNoMemory, n)
		}
		b := cpu.AlignedHeap(n)
		poison(b, !zero)
		return backend.Buffer{Host: b, Size: n, Handle: goHeap}, outcome, nil
	}
	if own || check.On() && h.alone.Load() < maxAlone {
		whole, ok := cpu.AlignUp(n, max(unit, 1))
		if !ok {
			return backend.Buffer{}, outcome, fmt.Errorf("%w: %d bytes", backend.ErrNoMemory, n)
		}
		b, err := cpu.ReserveAligned(whole, unit)
		if err != nil {
			h.Trim(0)
			b, err = cpu.ReserveAligned(whole, unit)
		}
		if err != nil {
			return backend.Buffer{}, outcome, err
		}
		b = b[:n]
		switch {
		case huge && own:
			outcome.Refused = "Options.Pinned makes the block a mapping of its own, in ordinary pages"
		case huge:
			outcome.Refused = "the block is made to be unreadable once it is freed, in checked mode"
		}
		h.alone.Add(1)
		h.padding.Add(int64(len(wholeOf(b)) - n))
		poison(b, !zero)
		return backend.Buffer{Host: b, Size: n, Handle: alone}, outcome, nil
	}
	b, err := take(n, zero, huge)
	if err != nil && h.dead.empty() {
		b, err = take(n, zero, huge)
	}
	if err != nil {
		return backend.Buffer{}, outcome, err
	}
	poison(b.Bytes, !zero)
	return backend.Buffer{Host: b.Bytes, Size: n, Handle: b.ID<<idShift | pooled}, b.HugePages, nil
}

// take gets a block from the pool.
func take(n int, zero, huge bool) (cpu.Block, error) {
	if huge {
		return pool().GetHuge(n, zero)
	}
	return pool().Get(n, zero)
}

// poison makes use of bytes that mean nothing visible, in checked mode: 0xFF
// is NaN in every float format but two, and -1 in integers.
func poison(b []byte, meaningless bool) {
	if meaningless && check.On() {
		cpu.Fill(b, []byte{0xFF})
	}
}

// extent returns the memory around b that fuel owns, and that nobody else uses,
// or says why there is none.
func (h *host) extent(b backend.Buffer) (mem []byte, why string) {
	switch b.Handle & (1<<idShift - 1) {
	case alone:
		return wholeOf(b.Host), ""
	case pooled:
		mem = pool().Extent(cpu.Block{Bytes: b.Host, ID: b.Handle >> idShift})
	case goHeap:
		if race.Enabled {
			return nil, "it is on the Go heap, as memory is where the race detector has to see it"
		}
		return nil, "it is on the Go heap"
	}
	if mem == nil {
		why = "it is a small block, whose pages are others' too (blocks above 1 MiB have their own, and those of Options.Pinned)"
	}
	return mem, why
}

func (h *host) Free(b backend.Buffer, after backend.Point) {
	if !h.queue.Done(after) {
		h.queue.Do(func() error {
			h.free(b)
			hostDevice.holdLimit() // the core did when the block was not in the cache yet
			return nil
		})
		return
	}
	h.free(b)
}

func (h *host) free(b backend.Buffer) {
	switch b.Handle & (1<<idShift - 1) {
	case goHeap:
		poison(b.Host, true)
	case pooled:
		poison(b.Host, true)
		pool().Put(cpu.Block{Bytes: b.Host, ID: b.Handle >> idShift})
	case alone:
		h.alone.Add(-1)
		h.padding.Add(int64(len(b.Host) - len(wholeOf(b.Host))))
		block := b.Host[:cap(b.Host)]
		if check.On() {
			block = h.dead.swap(block)
		}
		if block != nil {
			release(block)
		}
	}
}

// Trim gives back what the pool keeps, until target bytes are left. The
// quarantine keeps addresses and no memory, so it does not count, and goes
// where everything has to.
func (h *host) Trim(target int64) (freed int64) {
	if target <= 0 {
		h.dead.empty()
	}
	return pool().Trim(target)
}

func (h *host) Cache() backend.CacheInfo {
	s := pool().Stats()
	return backend.CacheInfo{Bytes: s.Cached, Largest: s.LargestCached, Padding: s.Padding + h.padding.Load()}
}

func (h *host) Cached() int64 { return pool().Cached() }

func (h *host) SetCache(max int64, idle time.Duration) {
	pool().SetMaxCached(max)
	pool().SetIdleTrim(idle)
}

// wholeOf is all of a mapping that b begins.
func wholeOf(b []byte) []byte { return cpu.Pages(b[:cap(b)]) }

// release gives a block back, whose contents are gone already.
func release(block []byte) { givenBack(cpu.Release(block)) }

// givenBack takes what the system said of memory that it got back. Where the
// process has as many mappings as it may the addresses are lost.
func givenBack(err error) {
	if err != nil && !errors.Is(err, cpu.ErrNoMemory) {
		panic("BUG: fuel: " + err.Error()) // a wrong address or length
	}
}

// A quarantine keeps freed blocks unreadable for a while, in checked mode, so
// that a late access faults instead of reading what came after.
type quarantine struct {
	mu     sync.Mutex
	blocks [][]byte
}

// quarantined bounds the blocks that are kept, and maxAlone those that are
// live; each is one mapping, and Linux allows a process 65,530
// (vm.max_map_count). What goes beyond comes from the pool, where a late
// access does not fault, but finds 0xFF.
const (
	quarantined = 4096
	maxAlone    = 16384
)

// swap takes b in and returns the oldest block where there are too many, to be
// released, else nil.
func (q *quarantine) swap(b []byte) (oldest []byte) {
	if err := cpu.Forbid(b); err != nil {
		cpu.Fill(b, []byte{0xFF}) // poisoned, if it cannot be made unreadable
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.blocks = append(q.blocks, b)
	if len(q.blocks) <= quarantined {
		return nil
	}
	oldest = q.blocks[0]
	q.blocks[0] = nil
	q.blocks = q.blocks[1:]
	return oldest
}

// empty releases all blocks, and reports whether there were any.
func (q *quarantine) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	some := len(q.blocks) > 0
	for _, b := range q.blocks {
		release(b)
	}
	q.blocks = nil
	return some
}

// guarded runs a leaf that reads b, as Guard does where b may fault.
func guarded(b backend.Buffer, leaf func()) error {
	if b.MayFault {
		return cpu.Guard(leaf)
	}
	leaf()
	return nil
}

func (h *host) Fill(b backend.Buffer, off, n int, pattern []byte) (backend.Point, error) {
	p := [16]byte{}
	p16 := p[:copy(p[:], pattern)]
	return h.queue.Do(func() error {
		cpu.Fill(b.Host[off:off+n], p16)
		return nil
	}), nil
}

func (h *host) Copy(dst backend.Buffer, dstOff int, src backend.Buffer, srcOff, n int) (backend.Point, error) {
	return h.queue.Do(func() error {
		return guarded(src, func() { cpu.Copy(dst.Host[dstOff:dstOff+n], src.Host[srcOff:srcOff+n]) })
	}), nil
}

func (h *host) Upload(dst backend.Buffer, off int, src []byte) (backend.Point, bool, error) {
	p := h.queue.Do(func() error {
		cpu.Copy(dst.Host[off:off+len(src)], src)
		return nil
	})
	return p, false, h.queue.Wait(context.Background(), p)
}

func (h *host) UploadFrom(dst backend.Buffer, off, n int, read func(p []byte, at int) error) (backend.Point, bool, error) {
	p := h.queue.Do(func() error { return read(dst.Host[off:off+n], 0) })
	return p, false, h.queue.Wait(context.Background(), p)
}

func (h *host) Download(dst []byte, src backend.Buffer, off int) (bool, error) {
	return false, h.queue.Wait(context.Background(), h.queue.Do(func() error {
		return guarded(src, func() { cpu.Copy(dst, src.Host[off:off+len(dst)]) })
	}))
}

func (h *host) Staging(backend.Buffer, int, []byte, bool) (int, string) { return 0, "" }

func (h *host) Done(p backend.Point) bool { return h.queue.Done(p) }

func (h *host) Wait(ctx context.Context, p backend.Point) error { return h.queue.Wait(ctx, p) }

func (h *host) WaitExternal(x backend.External) (backend.Point, error) {
	return h.queue.Do(func() error {
		if x.Done != nil {
			<-x.Done
		}
		return nil
	}), nil
}

func (h *host) Handles(backend.Buffer) backend.Handles { return backend.Handles{} }

func (h *host) Close() error {
	h.queue.Drain()
	return nil
}

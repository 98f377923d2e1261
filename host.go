package fuel

import (
	"context"
	"fmt"
	"runtime"
	"sync"

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
}

// fromSystem is the length in bytes from which memory comes from the system
// and not from the Go heap: there a refusal is an error, where the Go heap
// would end the program, and the collector's goal does not count it. Below it
// a mapping of its own for each block would waste most of a page.
const fromSystem = 64 << 10

// maxHeap is what Go can address at most; above, make panics.
const maxHeap = min(1<<47, int64(^uint(0)>>1)-cpu.Align)

// Values of Buffer.Handle.
const (
	goHeap     = 0
	fromSysMem = 1
)

func (h *host) Memory() backend.MemInfo {
	total, free := cpu.HostMemory()
	return backend.MemInfo{Total: total, Free: free}
}

func (h *host) Alloc(n int, zero bool) (backend.Buffer, error) {
	// The race detector sees the Go heap only.
	if cpu.HaveReserve && !race.Enabled && (n >= fromSystem || check.On()) {
		b, err := cpu.Reserve(n)
		if err != nil && h.dead.empty() {
			b, err = cpu.Reserve(n)
		}
		if err != nil {
			return backend.Buffer{}, err
		}
		poison(b, !zero)
		return backend.Buffer{Host: b, Size: n, Handle: fromSysMem}, nil
	}
	if int64(n) > maxHeap {
		return backend.Buffer{}, fmt.Errorf("%w: the Go heap has no %d bytes", backend.ErrNoMemory, n)
	}
	b := cpu.AlignedHeap(n)
	poison(b, !zero)
	return backend.Buffer{Host: b, Size: n, Handle: goHeap}, nil
}

// poison makes use of bytes that mean nothing visible, in checked mode: 0xFF
// is NaN in every float format but two, and -1 in integers.
func poison(b []byte, meaningless bool) {
	if meaningless && check.On() {
		cpu.Fill(b, []byte{0xFF})
	}
}

func (h *host) Free(b backend.Buffer, after backend.Point) {
	if !h.queue.Done(after) {
		h.queue.Do(func() error { h.free(b); return nil })
		return
	}
	h.free(b)
}

func (h *host) free(b backend.Buffer) {
	if b.Handle == goHeap {
		poison(b.Host, true)
		return
	}
	block := b.Host
	if check.On() {
		block = h.dead.swap(block)
	}
	if block != nil {
		release(block)
	}
}

func release(block []byte) {
	if err := cpu.Release(block); err != nil {
		panic("BUG: fuel: " + err.Error()) // only a wrong address or length can fail
	}
}

// A quarantine keeps freed blocks unreadable for a while, in checked mode, so
// that a late access faults instead of reading what came after.
type quarantine struct {
	mu     sync.Mutex
	blocks [][]byte
}

// quarantined bounds the blocks that are kept; each is one mapping.
const quarantined = 4096

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

// empty releases all blocks, since memory is short, and reports whether there
// were any.
func (q *quarantine) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, b := range q.blocks {
		release(b)
	}
	any := len(q.blocks) > 0
	q.blocks = nil
	return any
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

func (h *host) Upload(dst backend.Buffer, off int, src []byte) (backend.Point, error) {
	p := h.queue.Do(func() error {
		cpu.Copy(dst.Host[off:off+len(src)], src)
		return nil
	})
	return p, h.queue.Wait(context.Background(), p)
}

func (h *host) Download(dst []byte, src backend.Buffer, off int) error {
	return h.queue.Wait(context.Background(), h.queue.Do(func() error {
		return guarded(src, func() { cpu.Copy(dst, src.Host[off:off+len(dst)]) })
	}))
}

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

package gpu_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// A softPort is a Port that keeps memory in Go and is stricter than any
// driver: what it is asked for against the contract fails the test.
type softPort struct {
	t    testing.TB
	lim  gpu.Limits
	kind softKind
	q    backend.Serial

	mu     sync.Mutex
	blocks map[uint64]*softBlock
	next   uint64
	sub    backend.Point
	closed bool
	lost   bool

	allocations int // ever
	most        int // at once
	submits     int
	ops         map[gpu.OpKind]int

	refuse func(n int, use gpu.Use) error // may fail an Allocate
	give   func() error                   // for a test's refuse
	fail   func(p backend.Point) error    // may fail a Submit
	sync   func() error                   // may fail a Flush or an Invalidate
	await  func() error                   // may fail an Await
	delay  time.Duration                  // before each batch
}

// A softKind is what the memory of Storages is like. Staging is always mapped.
type softKind struct {
	name                     string
	mapped, coherent, cached bool
	staging                  bool // coherent staging
}

type softBlock struct {
	gpu.Block
	dev  []byte // what the device sees
	use  gpu.Use
	work int // batches that use it
}

func newSoftPort(t testing.TB, kind softKind, lim gpu.Limits) *softPort {
	p := &softPort{t: t, lim: lim, kind: kind, blocks: map[uint64]*softBlock{}, ops: map[gpu.OpKind]int{}}
	p.q.Before = func() {
		if p.delay > 0 {
			time.Sleep(p.delay)
		}
	}
	return p
}

func (p *softPort) wrong(format string, args ...any) {
	p.t.Errorf("port: "+format, args...)
}

func (p *softPort) Allocate(n int, use gpu.Use) (gpu.Block, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost {
		return gpu.Block{}, backend.ErrLost
	}
	if n <= 0 || p.lim.MaxBlock > 0 && n > p.lim.MaxBlock {
		p.wrong("an allocation of %d bytes", n)
	}
	if int64(n) > 8<<30 {
		return gpu.Block{}, fmt.Errorf("%w: %d bytes", backend.ErrNoMemory, n)
	}
	if p.refuse != nil {
		if err := p.refuse(n, use); err != nil {
			return gpu.Block{}, err
		}
	}
	p.next++
	p.allocations++
	b := &softBlock{Block: gpu.Block{ID: p.next, Size: n}, use: use, dev: make([]byte, n)}
	stain(b.dev, 0xDB) // another program's
	mapped, coherent := true, p.kind.staging
	b.Cached = true
	if use == gpu.Storage {
		mapped, coherent, b.Cached = p.kind.mapped, p.kind.coherent, p.kind.cached
	}
	if mapped {
		b.Coherent = coherent
		b.Host = b.dev
		if !coherent {
			b.Host = make([]byte, n)
			stain(b.Host, 0xDC)
		}
	}
	p.blocks[b.ID] = b
	p.most = max(p.most, len(p.blocks))
	if m := p.lim.MaxAllocations; m > 0 && len(p.blocks) > m {
		p.wrong("%d allocations at once, of %d", len(p.blocks), m)
	}
	return b.Block, nil
}

// stain writes over the beginning of a block, which is what tests use. All of
// it would be memory that the machine has to find.
func stain(b []byte, with byte) { cpu.Fill(b[:min(len(b), 2<<20)], []byte{with}) }

func (p *softPort) Release(b gpu.Block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.blocks[b.ID]
	if k == nil {
		p.wrong("release of block %d, which is not there", b.ID)
		return
	}
	if k.work > 0 && !p.lost {
		p.wrong("release of block %d while work uses it", b.ID)
	}
	delete(p.blocks, b.ID)
}

// find returns a block for a range; p.mu is held.
func (p *softPort) find(b gpu.Block, off, n int) *softBlock {
	k := p.blocks[b.ID]
	if k == nil {
		p.wrong("work on block %d, which is not there", b.ID)
		return &softBlock{dev: make([]byte, off+n)}
	}
	if off < 0 || n <= 0 || off > k.Size-n {
		p.wrong("bytes %d to %d of a block of %d", off, off+n, k.Size)
		return &softBlock{dev: make([]byte, max(off, 0)+max(n, 0))}
	}
	return k
}

func (p *softPort) Submit(at backend.Point, ops []gpu.Op) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.wrong("work for a closed device")
	}
	if at != p.sub+1 {
		p.wrong("Point %d after %d", at, p.sub)
	}
	if p.lost {
		return backend.ErrLost
	}
	if p.fail != nil {
		if err := p.fail(at); err != nil {
			return err
		}
	}
	if len(ops) == 0 {
		p.wrong("no work at %d", at)
	}
	p.submits++
	var do []func()
	var used []*softBlock
	for _, op := range ops {
		p.ops[op.Kind]++
		if op.Kind != gpu.OpWait && op.N > gpu.MaxOp {
			p.wrong("an op of %d bytes", op.N)
		}
		switch op.Kind {
		case gpu.OpCopy:
			d, s := p.find(op.Dst, op.DstOff, op.N), p.find(op.Src, op.SrcOff, op.N)
			if d == s && op.DstOff < op.SrcOff+op.N && op.SrcOff < op.DstOff+op.N {
				p.wrong("a copy of %d bytes from %d to %d overlaps", op.N, op.SrcOff, op.DstOff)
			}
			if u := p.lim.CopyUnit; u > 1 && (op.DstOff|op.SrcOff|op.N)%u != 0 {
				p.wrong("a copy of %d bytes from %d to %d, and the unit is %d", op.N, op.SrcOff, op.DstOff, u)
			}
			used = append(used, d, s)
			do = append(do, func() { copy(d.dev[op.DstOff:][:op.N], s.dev[op.SrcOff:][:op.N]) })
		case gpu.OpFill:
			d := p.find(op.Dst, op.DstOff, op.N)
			if op.DstOff%p.lim.FillAlign != 0 || op.N%p.lim.FillUnit != 0 || (p.lim.FillUnit == 1 || p.lim.FillByte) && op.Word != op.Word&0xFF*0x01010101 {
				p.wrong("a fill of %d bytes at %d with %#x", op.N, op.DstOff, op.Word)
			}
			used = append(used, d)
			do = append(do, func() {
				cpu.Fill(d.dev[op.DstOff:][:op.N&^3], binary.LittleEndian.AppendUint32(nil, op.Word))
				cpu.Fill(d.dev[op.DstOff+op.N&^3:][:op.N&3], []byte{byte(op.Word)})
			})
		case gpu.OpWait:
			do = append(do, func() { <-op.External.Done })
		}
	}
	for _, b := range used {
		b.work++
	}
	p.sub = at
	p.q.Do(func() error {
		for _, f := range do {
			f()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, b := range used {
			b.work--
		}
		return nil
	})
	return nil
}

func (p *softPort) Reached() (backend.Point, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lost {
		return 0, backend.ErrLost
	}
	n := backend.Point(0)
	for lo, hi := backend.Point(0), p.sub; lo <= hi; {
		mid := (lo + hi) / 2
		if p.q.Done(mid) {
			n, lo = mid, mid+1
		} else if mid == 0 {
			break
		} else {
			hi = mid - 1
		}
	}
	return n, nil
}

func (p *softPort) Await(ctx context.Context, at backend.Point) error {
	for {
		p.mu.Lock()
		lost := p.lost
		var err error
		if p.await != nil {
			err = p.await()
		}
		p.mu.Unlock()
		if lost {
			return backend.ErrLost
		}
		if err != nil {
			return err
		}
		c, stop := context.WithTimeout(ctx, time.Millisecond)
		err = p.q.Wait(c, at)
		stop()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func (p *softPort) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
}

func (p *softPort) atoms(what string, b gpu.Block, off, n int) *softBlock {
	k := p.find(b, off, n)
	if k.Coherent || k.Host == nil || off%p.lim.Atom != 0 || n%p.lim.Atom != 0 && off+n != k.Size {
		p.wrong("%s of %d bytes at %d", what, n, off)
	}
	return k
}

func (p *softPort) Flush(b gpu.Block, off, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sync != nil {
		if err := p.sync(); err != nil {
			return err
		}
	}
	k := p.atoms("flush", b, off, n)
	copy(k.dev[off:off+n], k.Host[off:off+n])
	return nil
}

func (p *softPort) Invalidate(b gpu.Block, off, n int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sync != nil {
		if err := p.sync(); err != nil {
			return err
		}
	}
	k := p.atoms("invalidate", b, off, n)
	copy(k.Host[off:off+n], k.dev[off:off+n])
	return nil
}

func (p *softPort) Memory() backend.MemInfo {
	if p.lim.Heap == 0 {
		return backend.MemInfo{Total: backend.Unknown, Free: backend.Unknown}
	}
	return backend.MemInfo{Total: int64(p.lim.Heap), Free: backend.Unknown}
}

func (p *softPort) Handles(b gpu.Block) backend.Handles {
	return backend.Handles{Buffer: b.ID, Device: 1, Queue: 2}
}

func (p *softPort) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		p.wrong("closed twice")
	}
	p.closed = true
	if !p.lost && !p.q.Done(p.sub) {
		p.wrong("closed while work runs")
	}
	if len(p.blocks) > 0 {
		p.wrong("closed with %d blocks", len(p.blocks))
	}
	return nil
}

// register makes a device over p the first of kind Vulkan for one test.
func register(t testing.TB, p *softPort, c gpu.Config) fuel.Device {
	info := backend.Info{Library: "soft", Devices: []backend.DeviceInfo{{
		Name: p.kind.name, Memory: p.Memory(), MaxAlloc: p.lim.MaxBlock, Alignment: p.lim.Align,
	}}}
	restore := backend.Replace(backend.Vulkan, &backend.Driver{
		Kind: backend.Vulkan, Package: "soft",
		Probe: func(context.Context) (backend.Info, error) { return info, nil },
		Open: func(context.Context, int) (backend.Device, error) {
			return gpu.New(p, p.lim, c), nil
		},
	})
	t.Cleanup(func() {
		restore()
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.closed {
			t.Error("the device was not closed")
		}
	})
	return fuel.Device{Kind: fuel.Vulkan}
}

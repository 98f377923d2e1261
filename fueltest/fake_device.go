package fueltest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel/internal/backend"
)

// A fakeDevice is one device of a Fake. Its fields are guarded by the fake's
// lock.
type fakeDevice struct {
	f       *Fake
	index   int
	queue   backend.Serial
	staging *staging // nil where memory is coherent

	live     map[uint64]*fakeBuffer // by handle, until their memory may be reused
	pending  []*fakeBuffer          // freed, but maybe in use by queued work
	spare    map[int][]uint64       // addresses that may be reused, by their extent
	next     uint64                 // address that was never used
	used     int64                  // bytes
	pins     []*fakePin
	pinsEver []*fakePin

	begun   backend.Point // of the work that runs or is next
	wanted  backend.Point // what somebody waited for
	lost    bool
	closing bool
	closed  bool
	over    chan struct{} // closed when lost or closing: external work is not waited for
}

var _ backend.Device = (*fakeDevice)(nil)

func newFakeDevice(f *Fake, index int) *fakeDevice {
	d := &fakeDevice{
		f: f, index: index, next: uint64(f.opt.Alignment),
		live: map[uint64]*fakeBuffer{}, spare: map[int][]uint64{}, over: make(chan struct{}),
	}
	if f.opt.NonCoherent {
		d.staging = newStaging(f)
	}
	return d
}

// What memory holds that nobody wrote to, that was freed, and that is around
// an allocation.
const (
	fresh = 0xA5
	freed = 0x5A
	guard = 0xC3
)

// guardSize is the number of bytes watched on either side.
const guardSize = 64

var guards = strings.Repeat(string([]byte{guard}), guardSize)

// A fakeBuffer is one allocation.
type fakeBuffer struct {
	handle  uint64
	address uint64
	extent  int           // of address space, bytes
	mem     []byte        // guard, the bytes, guard; nil if imported
	host    []byte        // imported: the host's own memory
	release func()        // imported: to be called when the device has done with it
	cleared backend.Point // when its first zeroing has passed
	lastUse backend.Point // of the work given to the device
	freed   bool
	until   backend.Point // when freed memory may be reused
}

func (b *fakeBuffer) size() int {
	if b.release != nil {
		return len(b.host)
	}
	return len(b.mem) - 2*guardSize
}

func (b *fakeBuffer) bytes(off, n int) []byte {
	if b.release != nil {
		return b.host[off : off+n : off+n]
	}
	return b.mem[guardSize+off : guardSize+off+n : guardSize+off+n]
}

// intact reports whether nobody wrote beside the bytes.
func (b *fakeBuffer) intact() bool {
	if b.release != nil {
		return true
	}
	end := len(b.mem) - guardSize
	return string(b.mem[:guardSize]) == guards && string(b.mem[end:]) == guards
}

// scribble makes every byte of b the same, by copies that double.
func scribble(b []byte, with byte) {
	if len(b) == 0 {
		return
	}
	b[0] = with
	for n := 1; n < len(b); {
		n += copy(b[n:], b[:n])
	}
}

// errBroken is what a call gets that breaks the contract.
var errBroken = errors.New("fueltest: the call breaks the contract with drivers")

// begin counts a call and says what it is to fail with: at once, or when the
// work that it queues is waited for.
func (d *fakeDevice) begin(op Op) (early, late error) {
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[op]++
	f.failable++
	err := f.due(op)
	if n := f.opt.LostFrom; n > 0 && f.failable >= n || errors.Is(err, backend.ErrLost) {
		d.lose()
	}
	switch {
	case d.closed:
		return fmt.Errorf("fake device %d: %w", d.index, backend.ErrClosed), nil
	case d.lost:
		return d.lostError(), nil
	case err != nil && f.opt.FailLate && op.queues():
		return nil, err
	}
	return err, nil
}

func (d *fakeDevice) lostError() error {
	return fmt.Errorf("fake device %d: %w", d.index, backend.ErrLost)
}

// lose makes the device lost. The lock is held.
func (d *fakeDevice) lose() {
	if !d.lost {
		d.lost = true
		d.stopWaiting()
	}
}

// stopWaiting ends what queued work waits for. The lock is held.
func (d *fakeDevice) stopWaiting() {
	select {
	case <-d.over:
	default:
		close(d.over)
	}
	d.f.wake.Broadcast()
}

// find returns the allocation behind b after looking at the range of a call.
func (d *fakeDevice) find(op Op, b backend.Buffer, off, n int, writes bool) (*fakeBuffer, error) {
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if n == 0 {
		f.zeroLength++
		f.violate("%s of length zero", op)
		return nil, errBroken
	}
	buf := d.lookup(op, b)
	switch {
	case buf == nil:
		return nil, errBroken
	case buf.freed:
		f.violate("%s of memory that was freed", op)
		return nil, errBroken
	case buf.release != nil && writes:
		f.violate("%s of memory that was imported, which is only read", op)
		return nil, errBroken
	case off < 0 || n < 0 || off > buf.size() || n > buf.size()-off:
		f.violate("%s of bytes %d to %d of an allocation of %d", op, off, off+n, buf.size())
		return nil, errBroken
	}
	return buf, nil
}

// lookup returns the allocation behind b, nil where there is none. The lock is
// held.
func (d *fakeDevice) lookup(op Op, b backend.Buffer) *fakeBuffer {
	buf := d.live[b.Handle]
	switch {
	case buf == nil:
		what := "no allocation, or one that was freed"
		for _, other := range d.f.devices {
			if other.live[b.Handle] != nil {
				what = fmt.Sprintf("an allocation of device %d", other.index)
			}
		}
		d.f.violate("%s on device %d of handle %d, which is %s", op, d.index, b.Handle, what)
	case b.Size != buf.size() || b.Host != nil || b.MayFault:
		d.f.violate("%s of a buffer that is not as alloc returned it: %d bytes, not %d", op, b.Size, buf.size())
	}
	return buf
}

// submit queues work that uses buffers.
func (d *fakeDevice) submit(work func() error, uses ...*fakeBuffer) backend.Point {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	p := d.queue.Do(func() error {
		if err := d.turn(); err != nil {
			return err
		}
		return work()
	})
	for _, b := range uses {
		b.lastUse = p
	}
	return p
}

// turn blocks the queue until the next piece of work may run.
func (d *fakeDevice) turn() error {
	f := d.f
	f.mu.Lock()
	d.begun++
	for !d.closing && !d.lost && (f.held || f.opt.Lazy && d.wanted < d.begun) {
		f.wake.Wait()
	}
	lost := d.lost
	f.mu.Unlock()
	if lost {
		return d.lostError()
	}
	if f.opt.Delay > 0 {
		time.Sleep(f.opt.Delay)
	}
	return nil
}

// await waits for work, and gets it going.
func (d *fakeDevice) await(ctx context.Context, p backend.Point) error {
	d.f.mu.Lock()
	d.wanted = max(d.wanted, p)
	d.f.wake.Broadcast()
	d.f.mu.Unlock()
	return d.queue.Wait(ctx, p)
}

func (d *fakeDevice) Memory() backend.MemInfo {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.f.calls[OpMemory]++
	if d.lost || d.closed {
		return backend.MemInfo{Total: backend.Unknown, Free: backend.Unknown}
	}
	d.reap()
	return backend.MemInfo{Total: d.f.opt.Memory, Free: d.f.opt.Memory - d.used}
}

// lastHandle numbers the allocations of all fakes, so that no handle is ever
// that of another.
var lastHandle atomic.Uint64

func (d *fakeDevice) Alloc(n int, zero bool) (backend.Buffer, error) {
	if err, _ := d.begin(OpAlloc); err != nil {
		return backend.Buffer{}, err
	}
	buf, err := d.reserve(n)
	if err != nil {
		return backend.Buffer{}, err
	}
	if zero {
		// Late, as a driver may: whatever uses the memory comes after.
		p := d.submit(func() error { clear(buf.bytes(0, n)); return nil })
		d.f.mu.Lock()
		buf.cleared = p
		d.f.mu.Unlock()
	}
	return backend.Buffer{Handle: buf.handle, Size: n}, nil
}

func (d *fakeDevice) reserve(n int) (*fakeBuffer, error) {
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	d.reap()
	switch {
	case n <= 0:
		f.zeroLength++
		f.violate("alloc of %d bytes", n)
		return nil, errBroken
	case f.opt.MaxAlloc > 0 && n > f.opt.MaxAlloc:
		return nil, fmt.Errorf("fake device %d: %w", d.index, backend.ErrTooLarge)
	case int64(n) > f.opt.Memory-d.used:
		return nil, fmt.Errorf("fake device %d: %w", d.index, backend.ErrNoMemory)
	}
	buf := &fakeBuffer{handle: lastHandle.Add(1), mem: make([]byte, n+2*guardSize)}
	scribble(buf.mem, guard)
	scribble(buf.bytes(0, n), fresh)
	buf.extent = (n + f.opt.Alignment - 1) / f.opt.Alignment * f.opt.Alignment
	buf.address = d.addressFor(buf.extent)
	d.live[buf.handle] = buf
	d.used += int64(n)
	return buf, nil
}

// addressFor returns address space, that freed last first: what is reused too
// early is found out.
func (d *fakeDevice) addressFor(extent int) uint64 {
	if spare := d.spare[extent]; len(spare) > 0 {
		d.spare[extent] = spare[:len(spare)-1]
		return spare[len(spare)-1]
	}
	at := d.next
	d.next += uint64(extent + d.f.opt.Alignment)
	return at
}

func (d *fakeDevice) Free(b backend.Buffer, after backend.Point) {
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[OpFree]++
	buf := d.lookup(OpFree, b)
	if buf == nil {
		return
	}
	switch {
	case buf.freed:
		f.violate("memory was freed twice")
		return
	case after > d.queue.Last():
		f.violate("memory was freed after work %d, and there is none but %d", after, d.queue.Last())
	case buf.lastUse > after && !d.queue.Done(buf.lastUse):
		f.violate("memory was freed for reuse after work %d, but work %d uses it", after, buf.lastUse)
	}
	buf.freed, buf.until = true, max(after, buf.cleared)
	d.pending = append(d.pending, buf)
	d.reap()
	if buf.release != nil && d.live[buf.handle] != nil {
		go func() { // so that it does not wait for the next call
			_ = d.queue.Wait(context.Background(), buf.until)
			f.mu.Lock()
			defer f.mu.Unlock()
			d.reap()
		}()
	}
}

// reap makes freed memory available where the work that uses it has passed.
// The lock is held.
func (d *fakeDevice) reap() {
	left := d.pending[:0]
	for _, b := range d.pending {
		if !d.queue.Done(b.until) {
			left = append(left, b)
			continue
		}
		d.look(b)
		d.spare[b.extent] = append(d.spare[b.extent], b.address)
		delete(d.live, b.handle)
		if b.release != nil {
			b.release() // host memory: nothing of it is this fake's
			continue
		}
		scribble(b.bytes(0, b.size()), freed)
		d.used -= int64(b.size())
	}
	clear(d.pending[len(left):])
	d.pending = left
}

// look fails the test where somebody wrote beside an allocation. The lock is
// held.
func (d *fakeDevice) look(b *fakeBuffer) {
	if !b.intact() {
		d.f.violate("something wrote beside an allocation of %d bytes", b.size())
	}
}

// finish says what is left at the end of the test. The lock is held.
func (d *fakeDevice) finish() {
	if !d.closed {
		d.f.violate("device %d was not closed", d.index)
	}
	if n := len(d.live); n > 0 {
		d.f.violate("%d allocations of device %d, %d bytes, are left: their Storages were not closed before the end of the test", n, d.index, d.used)
	}
	for _, b := range d.live {
		d.look(b)
	}
	for _, x := range d.pinsEver {
		if !x.gone {
			d.f.violate("%d bytes of page-locked memory are left: their Storages were not closed before the end of the test", len(x.mem))
		}
	}
}

func (d *fakeDevice) Fill(b backend.Buffer, off, n int, pattern []byte) (backend.Point, error) {
	early, late := d.begin(OpFill)
	if early != nil {
		return 0, early
	}
	dst, err := d.find(OpFill, b, off, n, true)
	if err != nil {
		return 0, err
	}
	switch k := len(pattern); {
	case k != 1 && k != 2 && k != 4 && k != 8 && k != 16, n%k != 0:
		d.breach("fill of %d bytes with a pattern of %d", n, k)
		return 0, errBroken
	}
	pattern = bytes.Clone(pattern)
	return d.submit(func() error {
		to := dst.bytes(off, n)
		if late != nil {
			scribble(to, fresh)
			return late
		}
		for i := 0; i < n; i += len(pattern) {
			copy(to[i:], pattern)
		}
		return nil
	}, dst), nil
}

// breach is violate for callers that do not hold the lock.
func (d *fakeDevice) breach(format string, args ...any) {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.f.violate(format, args...)
}

func (d *fakeDevice) Copy(dst backend.Buffer, dstOff int, src backend.Buffer, srcOff, n int) (backend.Point, error) {
	early, late := d.begin(OpCopy)
	if early != nil {
		return 0, early
	}
	to, err := d.find(OpCopy, dst, dstOff, n, true)
	if err != nil {
		return 0, err
	}
	from, err := d.find(OpCopy, src, srcOff, n, false)
	if err != nil {
		return 0, err
	}
	return d.submit(func() error {
		if late != nil {
			scribble(to.bytes(dstOff, n), fresh)
			return late
		}
		copy(to.bytes(dstOff, n), from.bytes(srcOff, n))
		return nil
	}, to, from), nil
}

func (d *fakeDevice) Upload(dst backend.Buffer, off int, src []byte) (p backend.Point, staged bool, err error) {
	early, late := d.begin(OpUpload)
	if early != nil {
		return 0, false, early
	}
	to, err := d.find(OpUpload, dst, off, len(src), true)
	if err != nil {
		return 0, false, err
	}
	pinned := d.pinned(src)
	if d.staging != nil && !pinned {
		p, err = d.uploadStaged(to, off, src, late)
		return p, true, err
	}
	// The caller may change src when this returns.
	own := make([]byte, len(src))
	if err := d.fromHost(own, src); err != nil {
		return 0, false, err
	}
	p = d.submit(func() error {
		if late != nil {
			scribble(to.bytes(off, len(own)), fresh)
			return late
		}
		copy(to.bytes(off, len(own)), own)
		return nil
	}, to)
	if d.f.opt.Unified || pinned {
		// Its error is for who waits for p.
		_ = d.await(context.Background(), p)
	}
	return p, !d.f.opt.Unified && !pinned, nil
}

// UploadFrom is Upload of what read gets, in two parts at once.
func (d *fakeDevice) UploadFrom(dst backend.Buffer, off, n int, read func(p []byte, at int) error) (backend.Point, bool, error) {
	b := make([]byte, n)
	half := n / 2
	var first error
	var wg sync.WaitGroup
	if half > 0 {
		wg.Go(func() { first = read(b[:half], 0) })
	}
	err := read(b[half:], half)
	wg.Wait()
	if err = cmp.Or(first, err); err != nil {
		return 0, false, err
	}
	return d.Upload(dst, off, b)
}

func (d *fakeDevice) Staging(b backend.Buffer, _ int, mem []byte, read bool) (size int, why string) {
	pinned := d.pinned(mem)
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	switch {
	case pinned:
		return 0, ""
	case d.staging != nil:
		return stagingSize, "host and device do not see each other's writes"
	case d.f.opt.Unified:
		return 0, ""
	case b.Size > 0 && d.lookup(OpUpload, b) != nil && d.lookup(OpUpload, b).release != nil:
		return 0, "" // the host's own
	}
	return fakeStaging, "the host cannot reach its memory"
}

// fakeStaging is what a fake says of the memory that it stages through. It
// takes as much as it needs.
const fakeStaging = 1 << 20

// fromHost copies what the core gave, which must not fault.
func (d *fakeDevice) fromHost(dst, src []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			d.breach("upload of host memory that faults: %v", r)
			err = errBroken
		}
	}()
	copy(dst, src)
	return nil
}

func (d *fakeDevice) Download(dst []byte, src backend.Buffer, off int) (staged bool, err error) {
	if err, _ := d.begin(OpDownload); err != nil {
		return false, err
	}
	from, err := d.find(OpDownload, src, off, len(dst), false)
	if err != nil {
		return false, err
	}
	pinned := d.pinned(dst)
	if d.staging != nil && !pinned {
		return true, d.downloadStaged(dst, from, off)
	}
	// The queue never writes to dst, so nothing does after an error.
	own := make([]byte, len(dst))
	p := d.submit(func() error {
		copy(own, from.bytes(off, len(own)))
		return nil
	}, from)
	if err := d.await(context.Background(), p); err != nil {
		return false, err
	}
	copy(dst, own)
	return !d.f.opt.Unified && from.release == nil && !pinned, nil
}

func (d *fakeDevice) ImportAlign() int { return d.f.opt.ImportAlign }

func (d *fakeDevice) Import(mem []byte, _ bool, release func()) (backend.Buffer, error) {
	if err, _ := d.begin(OpImport); err != nil {
		return backend.Buffer{}, err
	}
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, unit := uintptr(unsafe.Pointer(unsafe.SliceData(mem))), f.opt.ImportAlign; unit == 0 || len(mem) == 0 || len(mem)%unit != 0 || at%uintptr(unit) != 0 || release == nil {
		f.violate("import of %d bytes at %#x: no whole pieces of %d", len(mem), at, unit)
		return backend.Buffer{}, errBroken
	}
	buf := &fakeBuffer{handle: lastHandle.Add(1), host: mem, release: sync.OnceFunc(release), extent: len(mem)}
	buf.address = d.addressFor(buf.extent)
	d.live[buf.handle] = buf
	return backend.Buffer{Handle: buf.handle, Size: len(mem)}, nil
}

// A fakePin is host memory that is page-locked.
type fakePin struct {
	d    *fakeDevice
	mem  []byte
	over bool // the device was closed, or Unpin called
	gone bool // Unpin was called
}

func (d *fakeDevice) PinAlign() int { return d.f.opt.ImportAlign }

func (d *fakeDevice) Pin(mem []byte) (backend.Pin, error) {
	if err, _ := d.begin(OpPin); err != nil {
		return nil, err
	}
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if at, unit := uintptr(unsafe.Pointer(unsafe.SliceData(mem))), f.opt.ImportAlign; unit == 0 || len(mem) == 0 || len(mem)%unit != 0 || at%uintptr(unit) != 0 {
		f.violate("page-locking of %d bytes at %#x: no whole pieces of %d", len(mem), at, unit)
		return nil, errBroken
	}
	x := &fakePin{d: d, mem: mem}
	d.pins = append(d.pins, x)
	d.pinsEver = append(d.pinsEver, x)
	return x, nil
}

// pinned reports whether all of mem is page-locked.
func (d *fakeDevice) pinned(mem []byte) bool {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	return slices.ContainsFunc(d.pins, func(x *fakePin) bool {
		begin, at := uintptr(unsafe.Pointer(unsafe.SliceData(x.mem))), uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
		return at >= begin && at-begin < uintptr(len(x.mem)) && uintptr(len(mem)) <= uintptr(len(x.mem))-(at-begin)
	})
}

func (x *fakePin) Held() bool {
	x.d.f.mu.Lock()
	defer x.d.f.mu.Unlock()
	return !x.over
}

func (x *fakePin) Unpin(gone func()) {
	f := x.d.f
	f.mu.Lock()
	if x.gone {
		f.violate("page-locked memory was given back twice")
	}
	x.gone = true
	x.d.unpin(x)
	f.mu.Unlock()
	gone()
}

// unpin ends a pin, whose memory must still be there. The lock is held.
func (d *fakeDevice) unpin(x *fakePin) {
	if x.over {
		return
	}
	x.over = true
	d.pins = slices.DeleteFunc(d.pins, func(o *fakePin) bool { return o == x })
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			d.f.violate("page-locked memory went before the driver had let go of it")
		}
	}()
	_ = bytes.Count(x.mem, []byte{0}) // reads all of it
}

func (d *fakeDevice) Done(p backend.Point) bool {
	d.f.count(OpDone)
	return d.queue.Done(p)
}

func (d *fakeDevice) Wait(ctx context.Context, p backend.Point) error {
	if err, _ := d.begin(OpWait); err != nil {
		return err
	}
	if last := d.queue.Last(); p > last {
		d.breach("wait for work %d, and there is none but %d", p, last)
		return errBroken
	}
	return d.await(ctx, p)
}

func (d *fakeDevice) WaitExternal(x backend.External) (backend.Point, error) {
	if err, _ := d.begin(OpWaitExternal); err != nil {
		return 0, err
	}
	done := x.Done
	if done == nil {
		d.f.mu.Lock()
		done = d.f.events[x.Handle]
		d.f.mu.Unlock()
		if done == nil {
			return 0, fmt.Errorf("fake device %d: there is no event %d", d.index, x.Handle)
		}
	}
	return d.submit(func() error {
		select {
		case <-done:
		case <-d.over:
		}
		return nil
	}), nil
}

func (d *fakeDevice) Handles(b backend.Buffer) backend.Handles {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.f.calls[OpHandles]++
	if d.closed {
		return backend.Handles{}
	}
	buf := d.lookup(OpHandles, b)
	if buf == nil {
		return backend.Handles{}
	}
	return backend.Handles{
		Buffer: buf.address, Device: uint64(d.index + 1), Queue: uint64(d.index + 1001), Address: buf.address,
	}
}

func (d *fakeDevice) Close() error {
	f := d.f
	f.mu.Lock()
	f.calls[OpClose]++
	if d.closed {
		f.violate("device %d was closed twice", d.index)
	}
	d.closing, d.closed = true, true
	d.stopWaiting()
	f.mu.Unlock()
	d.queue.Drain()
	f.mu.Lock()
	defer f.mu.Unlock()
	d.reap()
	for _, b := range d.live {
		d.look(b)
		if b.release != nil {
			b.release()
		}
	}
	for len(d.pins) > 0 {
		d.unpin(d.pins[0])
	}
	return nil
}

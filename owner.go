package fuel

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/race"
)

// An owner is a mutable identity: which region it uses now. The Views of a
// Storage share its owner; every Clone has one of its own.
//
// The rules that keep it right without a lock on the fast paths:
//
//   - r is set when the owner is made and changes only in private, under mu,
//     while somebody holds the owner.
//   - Whoever uses r after loading it first counts itself into r.word and then
//     looks whether the owner still uses r, and begins again if not.
//   - An owner that is held cannot lose its region.
type owner struct {
	r *region // through loadRegion and storeRegion

	// holds counts the open handles and running mutations, less one, so that
	// the zero value is an owner with one handle. Below zero it is over.
	holds race.Int64

	off, size int // extent in owner coordinates, bytes

	id      atomic.Uint64 // 0: not asked for yet
	version race.Uint64

	// shadow stands for the extent in the eyes of the race detector, which
	// does not see mapped and wrapped memory, nor that a read before a private
	// copy and a write after it are of the same bytes. It has no size without
	// -race.
	shadow race.Shadow

	mu sync.Mutex // serializes private copies and Take
}

// touchRead tells the race detector that n bytes are read through the owner,
// from off on in owner coordinates.
func (o *owner) touchRead(off, n int) { o.shadow.Read(off-o.off, n, o.size) }

// touchWrite is touchRead for a write.
func (o *owner) touchWrite(off, n int) { o.shadow.Write(off-o.off, n, o.size) }

// ids hands out what ID returns.
var ids atomic.Uint64

// hold keeps the owner's region from being given up. It fails where the owner
// is over.
func (o *owner) hold() bool {
	for {
		n := o.holds.Load()
		if n < 0 {
			return false
		}
		if o.holds.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// letGo ends a hold, or a handle, and gives the region up with the last one.
func (o *owner) letGo() {
	if o.holds.Add(-1) < 0 {
		loadRegion(&o.r).dropOwner()
	}
}

// changed counts a mutation. It is called when it begins and when it ends, so that
// nobody takes a value that was read in between for a final one.
func (o *owner) changed() {
	o.version.Add(1)
}

// identity returns the owner's id, drawing one at the first call: most owners
// are never asked.
func (o *owner) identity() uint64 {
	for {
		if id := o.id.Load(); id != 0 {
			return id
		}
		o.id.CompareAndSwap(0, ids.Add(1))
	}
}

// private returns the owner's region with a writer counted in, after making
// it the owner's alone where others share it or it is read-only. With discard
// the old bytes need not be kept. The caller holds the owner.
//
// Where it fails everything is as it was.
func (o *owner) private(ctx context.Context, discard bool) (*region, error) {
	r := loadRegion(&o.r)
	r.giveWay()
	if r.tryWrite() {
		if loadRegion(&o.r) == r {
			return r, nil
		}
		r.leaveWrite() // another owner's by now
	}
	if r.mem.shared != nil {
		if ok, err := r.writeInPlace(ctx); ok || err != nil {
			return r, err
		}
	}
	// The old region may go with this, and with it a caller's own memory, whose
	// release may call anything: not under the lock.
	var joined, left *region
	defer func() {
		if joined != nil {
			joined.unshare()
		}
		if left != nil {
			left.dropOwner()
		}
	}()
	if err := o.lock(ctx); err != nil {
		return nil, err
	}
	defer o.mu.Unlock()
	old := loadRegion(&o.r) // stays: only who has mu may change it
	if !old.joinOrWrite() {
		return old, nil
	}
	joined = old // as an owner too many, this copy keeps everybody from writing to it
	fresh, err := o.copyOf(ctx, old, discard, nil)
	if err != nil {
		return nil, err
	}
	fresh.word.Add(oneWriter)
	storeRegion(&o.r, fresh)
	o.id.Store(0)
	left = old
	return fresh, nil
}

// lock takes mu, but waits for another's private copy no longer than ctx allows.
func (o *owner) lock(ctx context.Context) error {
	if ctx.Done() == nil {
		o.mu.Lock()
		return nil
	}
	for d := time.Microsecond; !o.mu.TryLock(); d = min(2*d, time.Millisecond) {
		if err := ctx.Err(); err != nil {
			return err
		}
		time.Sleep(d)
	}
	return nil
}

// joinOrWrite counts the caller in as a writer and returns false if the memory
// may be written, else as one more owner and returns true.
func (r *region) joinOrWrite() (joined bool) {
	for {
		if r.tryWrite() {
			return false
		}
		ok, _ := r.tryShare()
		if ok {
			return true
		}
		// A writer: of this owner, since it is the only one. The next try to
		// write succeeds.
	}
}

// copyOf allocates a region for the owner's extent on the device of old, and
// fills it from there unless discard is set.
func (o *owner) copyOf(ctx context.Context, old *region, discard bool, progress func(done int)) (*region, error) {
	skew := o.skew(old)
	w := old.mem.wishes
	if p := old.mem.pinning.Load(); p.held() == nil {
		w.pinned = p.dev // by Pin, maybe
	}
	fresh, err := allocRegion(ctx, old.mem.dev, o.size+skew, false, o.off-skew, w)
	if err != nil || o.size == 0 {
		return fresh, err
	}
	if !discard {
		_, _, err = copyBytes(ctx, copyPath(fresh, old), fresh, o.off, old, o.off, o.size, progress)
		if err != nil {
			fresh.dropOwner()
			return nil, stopped{0, err} // the operation itself has not begun
		}
	}
	old.mem.dev.copies.Add(1)
	return fresh, nil
}

// skew is how far after an aligned address the owner's first byte goes in a
// private copy: as far as it was, so that every handle keeps the alignment that
// it has. Bytes of a file are where the format left them; the copy of a tensor
// is better off aligned.
func (o *owner) skew(old *region) int {
	if o.size == 0 || old.mem.kind == MemoryMapped || old.mem.file {
		return 0
	}
	if old.host() {
		return int(uintptr(unsafe.Pointer(unsafe.SliceData(old.bytes(o.off, 1)))) % cpu.Align)
	}
	return (o.off - old.origin) % max(1, old.mem.dev.info.Alignment)
}

// copyBytes copies n bytes between regions, in owner coordinates of each, by
// the path that the caller chose, and returns the bytes done, and how many of
// them went through host memory in between. The caller has counted itself in on
// both, and dst may be written, with no queued work before.
func copyBytes(ctx context.Context, path CopyPath, dst *region, dstOff int, src *region, srcOff, n int, progress func(done int)) (done, staged int, err error) {
	if n == 0 {
		return 0, 0, nil
	}
	if err := src.settle(ctx); err != nil {
		return 0, 0, err
	}
	switch path {
	case PathHost:
		done, err = copyHost(ctx, dst, dstOff, src, srcOff, n, progress)
	case PathDownload:
		done, err = steps(ctx, n, func(off, end int) error {
			through, err := src.download(dst.bytes(dstOff+off, end-off), srcOff+off)
			if through && err == nil {
				staged += end - off
			}
			return err
		}, progress)
	case PathUpload:
		upload, length := dst.upload, step
		if src.mem.buf.MayFault {
			upload, length = dst.uploadGuarded, guardedStep
		}
		done, err = stepsOf(ctx, length, n, func(off, end int) error {
			through, err := upload(dstOff+off, src.bytes(srcOff+off, end-off))
			if through && err == nil {
				staged += end - off
			}
			return err
		}, progress)
	case PathDevice:
		done, err = copyDevice(ctx, dst, dstOff, src, srcOff, n, progress)
	case PathPeer:
		done, err = copyPeer(ctx, dst, dstOff, src, srcOff, n, progress)
	default:
		done, err = bounce(ctx, dst, dstOff, src, srcOff, n, progress)
		staged = done
	}
	return done, staged, err
}

// reaches is nil where bytes get from one device to another directly.
func reaches(dst, src *device) error {
	p, ok := dst.be.(backend.Peer)
	if !ok || dst.id.Kind != src.id.Kind {
		return fmt.Errorf("%s has no direct way from %s", dst.id, src.id)
	}
	return dst.noted(p.Reaches(src.be), 0)
}

func copyPeer(ctx context.Context, dst *region, dstOff int, src *region, srcOff, n int, progress func(done int)) (int, error) {
	return steps(ctx, n, func(off, end int) error {
		for _, d := range []*device{dst.mem.dev, src.mem.dev} {
			if err := d.usable(); err != nil {
				return err
			}
		}
		err := dst.mem.dev.be.(backend.Peer).CopyPeer(dst.mem.buf, dstOff-dst.origin+off, src.mem.dev.be, src.mem.buf, srcOff-src.origin+off, end-off)
		return dst.mem.dev.noted(err, end-off)
	}, progress)
}

// copyHost copies within host memory, where the ranges may be parts of one.
func copyHost(ctx context.Context, dst *region, dstOff int, src *region, srcOff, n int, progress func(done int)) (int, error) {
	d, s := dst.bytes(dstOff, n), src.bytes(srcOff, n)
	if n <= cpu.Piece { // for the sake of the closure
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := guarded(src.mem.buf, func() { cpu.Copy(d, s) }); err != nil {
			return 0, fromDriver(err)
		}
		if progress != nil {
			progress(n)
		}
		return n, nil
	}
	// Pieces in any order would read what others wrote.
	if cpu.Overlap(d, s) {
		done, err := copyOverlapping(ctx, d, s, src.mem.buf, progress)
		return done, fromDriver(err)
	}
	done, err := cpu.Run(ctx, n, func(off, end int) error {
		return guarded(src.mem.buf, func() { cpu.CopyPart(d[off:end], s[off:end], n) })
	}, progress)
	return done, fromDriver(err)
}

// copyOverlapping copies in pieces, from the end where dst lies above src, so
// that no piece reads what another wrote.
func copyOverlapping(ctx context.Context, d, s []byte, from backend.Buffer, progress func(done int)) (done int, err error) {
	up := uintptr(unsafe.Pointer(unsafe.SliceData(d))) > uintptr(unsafe.Pointer(unsafe.SliceData(s)))
	for done < len(d) {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		k := min(cpu.Piece, len(d)-done)
		at := done
		if up {
			at = len(d) - done - k
		}
		if err := guarded(from, func() { cpu.Copy(d[at:at+k], s[at:at+k]) }); err != nil {
			return done, err
		}
		done += k
		if progress != nil {
			progress(done)
		}
		runtime.Gosched()
	}
	return done, nil
}

// step is the most that one driver call copies: long copies trip the
// watchdogs of GPU drivers (gfx-rs/wgpu#8133), and the context is looked at
// between.
const step = 64 << 20

// guardedStep is the most that one call copies of a mapped file: the disk may be
// slow, and whoever else copies to the device waits for the staging memory.
const guardedStep = 8 << 20

// steps calls f for consecutive ranges of [0, n) in order.
func steps(ctx context.Context, n int, f func(off, end int) error, progress func(done int)) (int, error) {
	return stepsOf(ctx, step, n, f, progress)
}

func stepsOf(ctx context.Context, length, n int, f func(off, end int) error, progress func(done int)) (int, error) {
	for off := 0; off < n; {
		if err := ctx.Err(); err != nil {
			return off, err
		}
		end := off + min(length, n-off)
		if err := f(off, end); err != nil {
			return off, err
		}
		off = end
		if progress != nil {
			progress(off)
		}
	}
	return n, nil
}

func copyDevice(ctx context.Context, dst *region, dstOff int, src *region, srcOff, n int, progress func(done int)) (int, error) {
	dev := dst.mem.dev
	length := step
	if dst == src && dstOff < srcOff+n && srcOff < dstOff+n {
		length = n // the driver makes one overlapping copy right, not several
	}
	done := 0
	for done < n {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		if err := dev.usable(); err != nil {
			return done, err
		}
		k := min(length, n-done)
		p, err := dev.be.Copy(dst.mem.buf, dstOff-dst.origin+done, src.mem.buf, srcOff-src.origin+done, k)
		if err == nil {
			raise(&src.mem.lastUse, p)
			err = dst.await(ctx, p)
		}
		if err != nil {
			return done, dev.noted(err, k)
		}
		done += k
		if progress != nil {
			progress(done)
		}
	}
	return n, nil
}

// await notes that work at p writes the region, and waits for it.
func (r *region) await(ctx context.Context, p backend.Point) error {
	raise(&r.mem.lastUse, p)
	return r.mem.dev.be.Wait(ctx, p)
}

// upload copies host memory that cannot fault to a range and waits for it: the
// memory is the caller's, so the work on it is never abandoned.
func (r *region) upload(off int, src []byte) (staged bool, err error) {
	dev := r.mem.dev
	if err := dev.usable(); err != nil {
		return false, err
	}
	p, staged, err := dev.be.Upload(r.mem.buf, off-r.origin, src)
	if err == nil {
		err = r.await(context.Background(), p)
	}
	return staged, dev.noted(err, len(src))
}

// uploadGuarded is upload of memory that may fault.
func (r *region) uploadGuarded(off int, src []byte) (staged bool, err error) {
	dev := r.mem.dev
	if err := dev.usable(); err != nil {
		return false, err
	}
	p, staged, err := dev.be.UploadFrom(r.mem.buf, off-r.origin, len(src), func(p []byte, at int) error {
		return guarded(backend.Buffer{MayFault: true}, func() { cpu.Copy(p, src[at:at+len(p)]) })
	})
	if err == nil {
		err = r.await(context.Background(), p)
	}
	return staged, dev.noted(err, len(src))
}

func (r *region) download(dst []byte, off int) (staged bool, err error) {
	dev := r.mem.dev
	if err := dev.usable(); err != nil {
		return false, err
	}
	staged, err = dev.be.Download(dst, r.mem.buf, off-r.origin)
	return staged, dev.noted(err, len(dst))
}

// bounceSize is the length of the host memory through which bytes go that
// have no direct way: large enough that the cost of a driver call does not
// count, small enough for the second-level cache of most hosts.
const bounceSize = 1 << 20

// bounces keeps them for reuse.
var bounces = sync.Pool{New: func() any { b := cpu.AlignedHeap(bounceSize); return &b }}

// bounce copies through host memory, between devices.
func bounce(ctx context.Context, dst *region, dstOff int, src *region, srcOff, n int, progress func(done int)) (int, error) {
	buf := bounces.Get().(*[]byte)
	defer bounces.Put(buf)
	done := 0
	for done < n {
		if err := ctx.Err(); err != nil {
			return done, err
		}
		b := (*buf)[:min(bounceSize, n-done)]
		if err := src.read(b, srcOff+done); err != nil {
			return done, err
		}
		if _, err := dst.upload(dstOff+done, b); err != nil {
			return done, err
		}
		done += len(b)
		if progress != nil {
			progress(done)
		}
	}
	return n, nil
}

// read copies a range of the region to host memory, where no queued work writes
// it.
func (r *region) read(p []byte, off int) error {
	if len(p) == 0 {
		return nil
	}
	if !r.host() {
		_, err := r.download(p, off)
		return err
	}
	b := r.bytes(off, len(p))
	// A raw slice of the same memory, or too short to be worth the closure.
	if len(p) <= cpu.Piece || cpu.Overlap(p, b) {
		return fromDriver(guarded(r.mem.buf, func() { cpu.Copy(p, b) }))
	}
	_, err := cpu.Run(context.Background(), len(p), func(i, end int) error {
		return guarded(r.mem.buf, func() { cpu.CopyPart(p[i:end], b[i:end], len(p)) })
	}, nil)
	return fromDriver(err)
}

// write copies host memory to a range of the region, where no queued work uses
// it.
func (r *region) write(off int, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if !r.host() {
		_, err := r.upload(off, p)
		return err
	}
	b := r.bytes(off, len(p))
	if len(p) <= cpu.Piece || cpu.Overlap(p, b) { // as in read
		cpu.Copy(b, p)
		return nil
	}
	_, err := cpu.Run(context.Background(), len(p), func(i, end int) error {
		cpu.CopyPart(b[i:end], p[i:end], len(p))
		return nil
	}, nil)
	return err
}

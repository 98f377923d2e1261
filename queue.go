package fuel

import (
	"context"
	"fmt"

	"github.com/go-fuel/fuel/internal/backend"
)

// A Queue is a device's ordered stream of work, asynchronous: its methods
// return when the work is in the queue. Work runs in the order in which it was
// given, after all that was given before, also by Storage methods. Every
// device has one; two values for the same device are the same Queue. It is
// safe for use by several goroutines.
//
// A Storage may be closed while queued work uses it: its memory stays until
// the work has passed. A Clone that is made after a Copy was queued sees what
// the copy writes.
//
// Storage methods wait for queued work that they depend on, those that take a
// context no longer than that. A read of bytes of which some were to be written
// by work that failed fails with its error, which comes from Wait as well, until
// all bytes of the Storage that has them are written at once: by Zero, Fill,
// CopyFrom and the like, also queued, or through MutableBytes, Mutate and
// VisitMutable of all of them. A write of a part leaves it so, also of that part.
// A Copy that is queued does not look whether its source was written: Wait on the
// Point of that tells.
type Queue struct {
	dev *device
}

// A Point is a place in a Queue: all work up to and including the one that
// returned it. The zero Point has always passed.
type Point struct {
	dev *device
	p   backend.Point
}

// An External is work outside fuel that a Queue can wait for. Which fields
// count depends on the Kind of the Queue's device.
type External struct {
	// Done, for the CPU: closed when the work is done.
	Done <-chan struct{}

	// Handle, for a GPU: CUevent, VkSemaphore (timeline) or MTLSharedEvent.
	Handle uint64

	// Value, for Vulkan and Metal: what the semaphore or event must reach.
	Value uint64
}

// QueueOf returns the Queue of a device. For errors see Alloc.
func QueueOf(dev Device) (*Queue, error) {
	d, err := openDevice(context.Background(), dev)
	if err == nil {
		err = d.usable()
	}
	if err != nil {
		return nil, opError("QueueOf", dev, 0, err)
	}
	return &Queue{d}, nil
}

// Device returns the device of the Queue.
func (q *Queue) Device() Device { return q.dev.id }

// Copy queues a copy of all of src to dst, which must have the same dtype,
// encoding and length and be on the Queue's device, else it is ErrMismatch. A
// private copy that dst needs is made at once. An error of the copy itself
// comes from Wait.
func (q *Queue) Copy(dst, src *Storage) (Point, error) {
	if err := dst.matches(src); err != nil {
		return Point{}, dst.fail("Queue.Copy", err)
	}
	var from *region
	var err error
	if dst.own != src.own { // first: where src cannot be used dst stays as it is
		if from, err = src.pin(); err != nil {
			return Point{}, dst.fail("Queue.Copy", err)
		}
		defer from.unpin()
		if from.mem.dev != q.dev {
			return Point{}, dst.fail("Queue.Copy", dst.orClosed(fmt.Errorf("%w: a storage on %s, and the queue is of %s", ErrMismatch, from.mem.dev.id, q.dev.id)))
		}
	}
	p, err := q.write(dst, dst.own != src.own, func(r *region) (backend.Point, error) {
		from := from
		if from == nil { // after the private copy, which src has moved to
			if src.closed.Load() {
				return 0, ErrClosed
			}
			from = r
		}
		src.own.touchRead(src.off, src.size)
		p, err := q.dev.be.Copy(r.mem.buf, dst.off-r.origin, from.mem.buf, src.off-from.origin, dst.size)
		if err == nil {
			raise(&from.mem.lastUse, p)
		}
		return p, err
	})
	return p, dst.fail("Queue.Copy", err)
}

// Zero queues the clearing of all of dst, which must be on the Queue's device.
func (q *Queue) Zero(dst *Storage) (Point, error) {
	p, err := q.fill(dst, zeroByte)
	return p, dst.fail("Queue.Zero", err)
}

// Fill queues a Fill of all of dst, which must be on the Queue's device. The
// pattern is as Storage.Fill has it, and may be changed afterwards.
func (q *Queue) Fill(dst *Storage, pattern []byte) (Point, error) {
	p, err := q.fill(dst, pattern)
	return p, dst.fail("Queue.Fill", err)
}

func (q *Queue) fill(dst *Storage, pattern []byte) (Point, error) {
	if err := checkPattern(pattern, dst.size); err != nil {
		return Point{}, dst.orClosed(err)
	}
	pattern = dst.apart(pattern)
	return q.write(dst, true, func(r *region) (backend.Point, error) {
		return q.dev.be.Fill(r.mem.buf, dst.off-r.origin, dst.size, pattern)
	})
}

// write queues work that writes all of dst.
func (q *Queue) write(dst *Storage, discard bool, work func(*region) (backend.Point, error)) (Point, error) {
	if d := dst.Device(); d != q.dev.id {
		return Point{}, fmt.Errorf("%w: a storage on %s, and the queue is of %s", ErrMismatch, d, q.dev.id)
	}
	if dst.size == 0 {
		return Point{}, dst.orClosed(nil)
	}
	r, err := dst.beginWrite(context.Background(), 0, dst.size, discard)
	if err != nil {
		return Point{}, err
	}
	defer dst.endWrite(r)
	p, err := work(r)
	if err != nil {
		return Point{}, q.dev.noted(err, dst.size)
	}
	r.mem.queued(p, discard && dst.size == dst.own.size)
	return Point{q.dev, p}, nil
}

// Done reports whether p has passed. It does not block. A Point of another
// Queue is one that this one cannot tell of: it panics.
func (q *Queue) Done(p Point) bool {
	q.mustOwn(p)
	return p.dev == nil || q.dev.be.Done(p.p)
}

// Wait returns when p has passed, with the error of the work that returned p,
// or with ctx's error; the work goes on then. It panics for a Point of another
// Queue.
func (q *Queue) Wait(ctx context.Context, p Point) error {
	q.mustOwn(p)
	if p.dev == nil {
		return nil
	}
	return opError("Queue.Wait", q.dev.id, 0, q.dev.noted(q.dev.be.Wait(ctx, p.p), 0))
}

func (q *Queue) mustOwn(p Point) {
	if p.dev != nil && p.dev != q.dev {
		panic(fmt.Sprintf("fuel.Queue: a Point of %s, and the queue is of %s", p.dev.id, q.dev.id))
	}
}

// WaitExternal makes all work that is queued later wait until x is done. The
// Point that it returns passes then.
func (q *Queue) WaitExternal(x External) (Point, error) {
	p, err := q.dev.be.WaitExternal(backend.External{Handle: x.Handle, Value: x.Value, Done: x.Done})
	if err != nil {
		return Point{}, opError("Queue.WaitExternal", q.dev.id, 0, q.dev.noted(err, 0))
	}
	return Point{q.dev, p}, nil
}

// UsedUntil keeps the memory of s from being reused, however it is closed,
// until p has passed: for work of the caller's own that got its handles from
// Visit. p must be of the device that s is on, else it is ErrMismatch. It does
// not keep anybody from writing to s.
func (s *Storage) UsedUntil(p Point) error {
	r, err := s.pin()
	if err != nil {
		return s.fail("UsedUntil", err)
	}
	defer r.unpin()
	if p.dev == nil {
		return nil
	}
	if p.dev != r.mem.dev {
		return s.fail("UsedUntil", fmt.Errorf("%w: a Point of %s for a storage on %s", ErrMismatch, p.dev.id, r.mem.dev.id))
	}
	raise(&r.mem.lastUse, p.p)
	return nil
}

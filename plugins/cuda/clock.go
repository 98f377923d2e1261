package cuda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/dl"
	"github.com/go-fuel/fuel/internal/gpu"
)

// A clock tells which work has passed: an event is recorded after each batch.
type clock struct {
	port *port

	mu     sync.Mutex
	flying []*event // in order
	free   []*event
	now    backend.Point
}

// An event is a CUevent and the Point that it was recorded for last.
type event struct {
	handle  uintptr
	point   backend.Point
	waiting int  // for it; it is not used again meanwhile
	passed  bool // it is not in flying any more
}

// event returns one that nothing uses. The device's context is current.
func (c *clock) event() (*event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.free) == 0 {
		if err := c.advance(); err != nil {
			return nil, err
		}
	}
	if k := len(c.free); k > 0 {
		e := c.free[k-1]
		c.free = c.free[:k-1]
		e.passed = false
		return e, nil
	}
	e := new(event)
	return e, c.port.failed("cuEventCreate", c.port.EventCreate.Call(uintptr(unsafe.Pointer(&e.handle)), blockingSync|noTiming))
}

// failed is for calls with an event of this clock's, which is no valid handle only
// where somebody has reset the device.
func (c *clock) failed(call string, r dl.Result) error {
	err := c.port.failed(call, r)
	if result(r.Int32()) == invalidHandle {
		return fmt.Errorf("%w: %w", backend.ErrLost, err)
	}
	return err
}

func (c *clock) unused(e *event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free = append(c.free, e)
}

func (c *clock) add(e *event, at backend.Point) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.point = at
	c.flying = append(c.flying, e)
}

// advance looks which events have passed. The device's context is current, and
// c.mu is held.
func (c *clock) advance() error {
	n := 0
	defer func() { c.flying = slices.Delete(c.flying, 0, n) }()
	for _, e := range c.flying {
		r := c.port.EventQuery.Call(e.handle)
		if result(r.Int32()) == notReady {
			return nil
		}
		if err := c.failed("cuEventQuery", r); err != nil {
			return err
		}
		n++
		c.now = e.point
		e.passed = true
		if e.waiting == 0 {
			c.free = append(c.free, e)
		}
	}
	return nil
}

func (c *clock) reached() (backend.Point, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.flying) == 0 {
		return c.now, nil
	}
	err := c.port.in(c.advance)
	return c.now, err
}

// await waits in the driver where ctx cannot end it, else it looks now and then.
func (c *clock) await(ctx context.Context, at backend.Point) error {
	if ctx.Done() != nil {
		return gpu.Poll(ctx, func() (bool, error) {
			now, err := c.reached()
			return now >= at, err
		})
	}
	e := c.take(at)
	if e == nil {
		return nil
	}
	defer c.drop(e)
	return c.port.in(func() (err error) {
		for range 2 { // a passing failure is no answer
			err = c.failed("cuEventSynchronize", c.port.EventSynchronize.Call(e.handle))
			if err == nil || errors.Is(err, backend.ErrLost) {
				break
			}
		}
		return err
	})
}

// take returns the event of a Point, or nil where it has passed.
func (c *clock) take(at backend.Point) *event {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearchFunc(c.flying, at, func(e *event, at backend.Point) int { return cmp.Compare(e.point, at) })
	if at <= c.now || i == len(c.flying) {
		return nil
	}
	c.flying[i].waiting++
	return c.flying[i]
}

func (c *clock) drop(e *event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.waiting--; e.waiting == 0 && e.passed {
		c.free = append(c.free, e)
	}
}

// destroy gives the events back. The device's context is current.
func (c *clock) destroy() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := append(c.free, c.flying...)
	c.free, c.flying = nil, nil
	for _, e := range all {
		if e2 := c.port.failed("cuEventDestroy", c.port.EventDestroy.Call(e.handle)); unlessLost(e2) != nil {
			err = e2
			c.free = append(c.free, e)
		}
	}
	return err
}

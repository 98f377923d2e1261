package cuda

import (
	"errors"
	"slices"
	"sync"
	"unsafe"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

const (
	attributeHostRegister     = 99 // CUdevice_attribute
	attributeReadOnlyRegister = 113
	hostRegisterPortable      = 1 // CU_MEMHOSTREGISTER_*: page-locked for all contexts
	hostRegisterDeviceMap     = 2 // with an address for work
	hostRegisterReadOnly      = 8
)

// registrations are the host memory that the driver has page-locked for others:
// it stays theirs, and is theirs alone again when the device is gone.
type registrations struct {
	mu   sync.Mutex // held while the driver registers, which takes its time
	look sync.RWMutex
	list []*registration // changes under both
}

// A registration is one range of it. The driver refuses ranges that overlap
// (CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED), so those within have no other.
type registration struct {
	mem    []byte
	fixed  bool    // work only reads it
	device uintptr // its address for work
	users  int
	later  []func() // to be called when the driver has let go
}

// start is the address of memory that is not Go's.
func start(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

// holding returns the registration that n bytes at an address are in, else nil.
func (g *registrations) holding(addr uintptr, n int) *registration {
	for _, r := range g.list {
		begin := start(r.mem)
		if addr >= begin && addr-begin <= uintptr(len(r.mem)) && uintptr(n) <= uintptr(len(r.mem))-(addr-begin) {
			return r
		}
	}
	return nil
}

// ImportAlign implements gpu.Importer.
func (p *port) ImportAlign() int { return p.phys.hostAlign() }

// Import implements gpu.Importer.
func (p *port) Import(mem []byte, fixed bool) (gpu.Block, error) {
	g := &p.registered
	g.mu.Lock()
	defer g.mu.Unlock()
	p.unregisterLeft()
	addr := start(mem) // not Go's: the driver keeps it
	r := g.holding(addr, len(mem))
	switch {
	case r == nil:
		r = &registration{mem: mem, fixed: fixed}
		if err := p.register(r); err != nil {
			return gpu.Block{}, err
		}
		g.look.Lock()
		g.list = append(g.list, r)
		g.look.Unlock()
	case r.fixed && !fixed:
		return gpu.Block{}, errors.New("it is page-locked already, to be read only")
	}
	r.users++
	return gpu.Block{ID: uint64(addr) | registeredMemory, Size: len(mem)}, nil
}

func (p *port) register(r *registration) error {
	flags := uintptr(hostRegisterPortable | hostRegisterDeviceMap)
	if r.fixed && p.phys.registersFixed {
		flags |= hostRegisterReadOnly
	}
	addr := start(r.mem)
	return p.in(func() error {
		if err := p.failed("cuMemHostRegister", p.MemHostRegister.Call(addr, uintptr(len(r.mem)), flags)); err != nil {
			return err
		}
		err := p.failed("cuMemHostGetDevicePointer", p.MemHostGetDevicePointer.Call(uintptr(unsafe.Pointer(&r.device)), addr, 0))
		if err != nil && p.unregister(r) == nil {
			return err
		}
		return nil // what cannot be undone is used, for copies
	})
}

// unregister makes the driver let go of memory. The device's context is current.
// Whoever reset the device has done that already.
func (p *port) unregister(r *registration) error {
	err := p.failed("cuMemHostUnregister", p.MemHostUnregister.Call(start(r.mem)))
	if errors.Is(err, notRegistered) {
		return nil
	}
	return err
}

// LetGo implements gpu.Importer. Memory that the driver does not let go of stays:
// at the address of what was unmapped it would take other memory for it. That of
// a lost device the driver lets go of with the device.
func (p *port) LetGo(b gpu.Block, later func()) bool {
	g := &p.registered
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.holding(addressOf(b, 0), b.Size)
	if r.users--; r.users > 0 {
		return true // those who use it keep it
	}
	if p.in(func() error { return p.unregister(r) }) != nil {
		r.later = append(r.later, later)
		return false
	}
	g.drop(r)
	return true
}

// drop forgets a registration, whose memory is its owners' again.
func (g *registrations) drop(r *registration) {
	g.look.Lock()
	g.list = slices.DeleteFunc(g.list, func(o *registration) bool { return o == r })
	g.look.Unlock()
	for _, f := range r.later {
		f()
	}
}

// unregisterLeft tries once more what the driver has refused. g.mu is held.
func (p *port) unregisterLeft() (err error) {
	for _, r := range slices.Clone(p.registered.list) {
		if r.users > 0 {
			continue
		}
		if e := p.in(func() error { return p.unregister(r) }); e != nil {
			err = e
		} else {
			p.registered.drop(r)
		}
	}
	return err
}

// closeRegistrations is for the end of the device, when nobody uses any. Those
// of a lost one go with its context, which lost ends.
func (p *port) closeRegistrations(end func() error) error {
	g := &p.registered
	g.mu.Lock()
	defer g.mu.Unlock()
	var err error
	for range 2 {
		if err = p.unregisterLeft(); err == nil {
			break
		}
	}
	if e := end(); e != nil || err != nil && !errors.Is(err, backend.ErrLost) {
		return errors.Join(err, e)
	}
	for len(g.list) > 0 {
		g.drop(g.list[0])
	}
	return nil
}

// deviceAddress is where work finds registered memory, 0 where the driver does
// not tell.
func (p *port) deviceAddress(b gpu.Block) uintptr {
	g := &p.registered
	g.look.RLock()
	defer g.look.RUnlock()
	r := g.holding(addressOf(b, 0), b.Size)
	if r == nil || r.device == 0 {
		return 0
	}
	return r.device + addressOf(b, 0) - start(r.mem)
}

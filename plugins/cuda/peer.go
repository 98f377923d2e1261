package cuda

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel/cpu"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// peers remembers which devices' bytes get to this one directly.
type peers struct {
	mu    sync.Mutex
	known map[*port]error
}

// Reaches implements gpu.PeerPort. That the driver says yes is not enough: with
// an IOMMU, and on boards that do not forward it right, other bytes arrive than
// were sent (open-gpu-kernel-modules#1257).
func (p *port) Reaches(from gpu.Port) error {
	o, ours := from.(*port)
	if !ours {
		return errors.New("another driver's device")
	}
	p.peers.mu.Lock()
	defer p.peers.mu.Unlock()
	err, known := p.peers.known[o]
	if known {
		return err
	}
	maps.DeleteFunc(p.peers.known, func(o *port, _ error) bool { return o.closed.Load() })
	if err = p.meet(o); err != nil {
		err = fmt.Errorf("from %s to %s: %w", o.phys.name, p.phys.name, err)
	}
	if err == nil || errors.Is(err, errWrongBytes) { // all else may pass
		if p.peers.known == nil {
			p.peers.known = map[*port]error{}
		}
		p.peers.known[o] = err
	}
	return err
}

// meet enables the way from o, which stays enabled: others may use it, too.
func (p *port) meet(o *port) error {
	if !p.library.mayReach(p.phys, o.phys) {
		return errors.New("the devices cannot reach each other")
	}
	err := p.in(func() error {
		r := p.CtxEnablePeerAccess.Call(o.context, 0)
		if result(r.Int32()) == peerAlreadyEnabled {
			return nil
		}
		return p.own(p.failed("cuCtxEnablePeerAccess", r))
	})
	if err != nil {
		return err
	}
	return p.tryPeer(o)
}

// mayReach asks the driver, for both what is needed and whether it is there.
func (l *library) mayReach(to, from *physical) bool {
	if to == from || to.broken != nil || from.broken != nil || !l.DeviceCanAccessPeer.Valid() || !l.CtxEnablePeerAccess.Valid() || !l.MemcpyPeer.Valid() {
		return false
	}
	can := new(int32)
	r := l.DeviceCanAccessPeer.Call(uintptr(unsafe.Pointer(can)), uintptr(uint32(to.device)), uintptr(uint32(from.device)))
	return r.Int32() == 0 && *can != 0
}

// What is copied to see that it arrives: several packets, and more than once,
// since what came before may show instead of what was sent.
const (
	trialSize  = 4 << 20
	trialTimes = 3
)

var errWrongBytes = errors.New("other bytes arrive than are sent: see CopyOptions.Peer")

func (p *port) tryPeer(o *port) (err error) {
	host, err := cpu.Reserve(2 * trialSize)
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrNoMemory, err)
	}
	sent, got := host[:trialSize], host[trialSize:]
	var source, target gpu.Block
	defer func() {
		for _, x := range []struct {
			p *port
			b gpu.Block
		}{{o, source}, {p, target}} {
			if x.b.ID != 0 {
				x.p.Release(x.b)
			}
		}
		err = errors.Join(err, cpu.Release(host))
	}()
	if source, err = o.Allocate(trialSize, gpu.Storage); err != nil {
		return ofOther(err)
	}
	if target, err = p.Allocate(trialSize, gpu.Storage); err != nil {
		return err
	}
	for turn := range trialTimes {
		for i := range sent {
			sent[i] = byte(i>>12*31 + i*7 + turn*101)
		}
		cpu.Fill(got, []byte{^byte(turn)})
		err := o.alone(func(stream uintptr) error {
			return o.failed("cuMemcpyHtoDAsync", o.MemcpyHtoD.Call(addressOf(source, 0), uintptr(unsafe.Pointer(&sent[0])), trialSize, stream))
		})
		if err != nil {
			return ofOther(err)
		}
		err = p.alone(func(stream uintptr) error {
			// In two parts, at no round address.
			const first = trialSize/3 + 1
			for _, part := range [][2]int{{0, first}, {first, trialSize - first}} {
				r := p.MemcpyPeer.Call(addressOf(target, part[0]), p.context, addressOf(source, part[0]), o.context, uintptr(part[1]), stream)
				if err := p.own(p.failed("cuMemcpyPeerAsync", r)); err != nil {
					return err
				}
			}
			return p.failed("cuMemcpyDtoHAsync", p.MemcpyDtoH.Call(uintptr(unsafe.Pointer(&got[0])), addressOf(target, 0), trialSize, stream))
		})
		if err != nil {
			return err
		}
		if !bytes.Equal(sent, got) {
			return errWrongBytes
		}
	}
	return nil
}

// own is the error of a call that names things of another context. What that call
// says may be about the other one: then it is no loss of this device, whose
// context still answers.
func (p *port) own(err error) error {
	if !errors.Is(err, backend.ErrLost) {
		return err
	}
	sizes := new([2]uintptr)
	if p.failed("cuMemGetInfo", p.MemGetInfo.Call(uintptr(unsafe.Pointer(&sizes[0])), uintptr(unsafe.Pointer(&sizes[1])))) != nil {
		return err
	}
	return fmt.Errorf("of another device or context: %v", err)
}

// ofOther is an error of the other device, whose loss is not this one's.
func ofOther(err error) error { return fmt.Errorf("the source: %v", err) }

// alone runs f with a stream of its own, and waits for what f queued there.
func (p *port) alone(f func(stream uintptr) error) error {
	return p.in(func() error {
		stream := new(uintptr)
		if err := p.failed("cuStreamCreate", p.StreamCreate.Call(uintptr(unsafe.Pointer(stream)), nonBlocking)); err != nil {
			return err
		}
		err := f(*stream)
		var first error
		for { // what is queued uses memory that the caller frees then
			r := p.StreamSynchronize.Call(*stream)
			wait := p.failed("cuStreamSynchronize", r)
			first = cmp.Or(first, wait)
			if unlessLost(wait) == nil || result(r.Int32()) == invalidHandle { // somebody has reset the device
				break
			}
			time.Sleep(time.Millisecond)
		}
		return errors.Join(err, first, p.failed("cuStreamDestroy", p.StreamDestroy.Call(*stream)))
	})
}

package metal

import (
	"errors"
	"os"
	"slices"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// A description is a device as Metal describes it. The object is the owner's to
// release.
type description struct {
	object     object
	name       string
	registry   uint64
	unified    bool
	workingSet int // bytes that the system recommends not to exceed; 0 is unknown
	maxBuffer  int // bytes
}

// hostAlign is the unit of host memory that the device takes: a buffer without a
// copy is of whole pages. 0 is none.
func (d *description) hostAlign() int {
	if !d.unified {
		return 0
	}
	return os.Getpagesize()
}

var errNoDevice = errors.New("there is no Metal device: a virtual machine has one only where its host gives it one")

// devices lists all devices, the system's default one first.
func (m *metal) devices() (list []description, err error) {
	m.pool(func() {
		// It may be nil over ssh and in tmux.
		if d := m.defaultDevice(); d != 0 {
			list = append(list, m.describe(d))
		}
		all := m.allDevices()
		for i := range int(m.send(all, count)) {
			d := m.describe(m.get(all, objectAtIndex, uintptr(i)))
			if !slices.ContainsFunc(list, func(o description) bool { return o.registry == d.registry }) {
				m.send(d.object, retain)
				list = append(list, d)
			}
		}
		m.send(all, release)
	})
	if list == nil {
		return nil, errNoDevice
	}
	return list, nil
}

func (m *metal) describe(d object) description {
	return description{
		object:     d,
		name:       m.text(m.get(d, name)),
		registry:   uint64(m.send(d, registryID)),
		unified:    m.send(d, hasUnifiedMemory).Bool(),
		workingSet: gpu.Int(uint64(m.send(d, recommendedMaxWorkingSetSize))),
		maxBuffer:  gpu.Int(uint64(m.send(d, maxBufferLength))),
	}
}

// drop releases the devices of a list.
func (m *metal) drop(list []description) {
	m.pool(func() {
		for _, d := range list {
			m.send(d.object, release)
		}
	})
}

// align is what every binding of a buffer takes at its offset: 256 bytes for
// constants on Macs that are not of Apple silicon.
const align = 256

func (d *description) limits() gpu.Limits {
	lim := gpu.Limits{
		MaxBlock:  d.maxBuffer,
		Heap:      d.workingSet,
		Shared:    d.unified,
		Align:     align,
		Atom:      1,
		CopyUnit:  4, // Metal.jl#349
		FillUnit:  4,
		FillAlign: 4,
		FillByte:  true,
	}
	if d.workingSet > 0 {
		lim.MaxBlock = min(lim.MaxBlock, d.workingSet)
	}
	return lim
}

func (m *metal) info(d *description) backend.DeviceInfo {
	return backend.DeviceInfo{
		Name:      d.name,
		Memory:    m.memory(d),
		MaxAlloc:  d.limits().MaxBlock,
		Alignment: align,
		Unified:   d.unified,

		Pinned:     d.unified,
		HostImport: d.unified,
		HostAlign:  d.hostAlign(),
	}
}

// memory counts what this process has. Metal does not tell of others.
func (m *metal) memory(d *description) backend.MemInfo {
	if d.workingSet == 0 {
		return backend.MemInfo{Total: backend.Unknown, Free: backend.Unknown}
	}
	var used int
	m.pool(func() { used = gpu.Int(uint64(m.send(d.object, currentAllocatedSize))) })
	return backend.MemInfo{Total: int64(d.workingSet), Free: int64(max(d.workingSet-used, 0))}
}

package vulkan

import (
	"math"
	"slices"

	"github.com/go-fuel/fuel/internal/gpu"
)

// Bits of VkMemoryPropertyFlags and VkMemoryHeapFlags.
const (
	deviceLocal  = 1 << 0
	hostVisible  = 1 << 1
	hostCoherent = 1 << 2
	hostCached   = 1 << 3
	ordinary     = 1<<4 - 1 // beyond are lazily allocated, protected, uncached and the like
	heapOfDevice = 1 << 0
)

// A layout says which types of memory are for what: indices of memory types,
// the best first.
type layout struct {
	storage  []uint32 // each of another heap
	upload   []uint32
	readback []uint32
	unified  bool // the host reaches all of the device's memory
	heap     int  // bytes of the heaps of storage
}

// plan chooses types of memory for buffers, which may be in the types of which
// allowed has the bit. The numbers are those that drivers report: see
// TestMemoryTypesOfRealDevices.
func plan(m *physicalDeviceMemoryProperties, allowed uint32) layout {
	types := m.memoryTypes[:min(m.memoryTypeCount, uint32(len(m.memoryTypes)))]
	heaps := m.memoryHeaps[:min(m.memoryHeapCount, uint32(len(m.memoryHeaps)))]
	usable := func(i int) bool {
		return allowed>>i&1 != 0 && types[i].propertyFlags&^ordinary == 0 && int(types[i].heapIndex) < len(heaps)
	}
	l := layout{unified: unified(types, heaps, usable)}

	// The largest heap of the device's own, and others as large, more or less:
	// some drivers split one (ggml-org/llama.cpp#16832). A small one, as the
	// 256 MiB that the host reaches of a GPU without resizable BAR, is not for
	// Storages.
	var largest uint64
	for i, t := range types {
		if usable(i) && t.propertyFlags&deviceLocal != 0 {
			largest = max(largest, heaps[t.heapIndex].size)
		}
	}
	l.storage = choose(types, usable, func(flags uint32, heap uint32) int {
		if largest > 0 && flags&deviceLocal == 0 || heaps[heap].size <= largest/4 {
			return 0
		}
		const direct = hostVisible | hostCoherent
		switch score := 1; {
		case flags&direct != direct: // mapping it would not help
			return score
		case flags&hostCached != 0 && l.unified:
			return score + 2
		default:
			return score + 1
		}
	})
	l.storage = onePerHeap(l.storage, types, heaps)
	for _, i := range l.storage {
		l.heap = addInt(l.heap, heaps[types[i].heapIndex].size)
	}
	l.upload = choose(types, usable, func(flags, _ uint32) int {
		if flags&hostVisible == 0 {
			return 0
		}
		// Coherent saves flushes; memory of the device's is scarce where it is
		// not all of it, and nobody reads it here, so caches do not help.
		return 1 + 4*bit(flags, hostCoherent) + 2*(1-bit(flags, deviceLocal)) + 1 - bit(flags, hostCached)
	})
	l.readback = choose(types, usable, func(flags, _ uint32) int {
		if flags&hostVisible == 0 {
			return 0
		}
		// Reading uncached memory is some forty times slower.
		return 1 + 4*bit(flags, hostCached) + 2*bit(flags, hostCoherent) + 1 - bit(flags, deviceLocal)
	})
	return l
}

// unified reports whether the host reaches every heap of the device's own.
func unified(types []memoryType, heaps []memoryHeap, usable func(int) bool) bool {
	own, reached := 0, 0
	for h, heap := range heaps {
		if heap.flags&heapOfDevice == 0 {
			continue
		}
		local, visible := false, false
		for i, t := range types {
			if int(t.heapIndex) == h && usable(i) && t.propertyFlags&deviceLocal != 0 {
				local = true
				visible = visible || t.propertyFlags&hostVisible != 0
			}
		}
		if local {
			own++
		}
		if visible {
			reached++
		}
	}
	return own > 0 && own == reached
}

// choose returns the types with a score above 0, the highest first.
func choose(types []memoryType, usable func(int) bool, score func(flags, heap uint32) int) []uint32 {
	var picked []uint32
	points := func(i uint32) int { return score(types[i].propertyFlags, types[i].heapIndex) }
	for i := range types {
		if usable(i) && points(uint32(i)) > 0 {
			picked = append(picked, uint32(i))
		}
	}
	slices.SortStableFunc(picked, func(a, b uint32) int { return points(b) - points(a) })
	return picked
}

// onePerHeap keeps the best type of each heap, larger heaps first.
func onePerHeap(picked []uint32, types []memoryType, heaps []memoryHeap) []uint32 {
	var kept []uint32
	seen := map[uint32]bool{}
	for _, i := range picked {
		if h := types[i].heapIndex; !seen[h] {
			seen[h] = true
			kept = append(kept, i)
		}
	}
	slices.SortStableFunc(kept, func(a, b uint32) int {
		x, y := heaps[types[a].heapIndex].size, heaps[types[b].heapIndex].size
		switch {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return kept
}

func bit(flags, b uint32) int {
	if flags&b != 0 {
		return 1
	}
	return 0
}

// addInt adds without wrapping.
func addInt(a int, b uint64) int { return a + gpu.Int(min(b, uint64(math.MaxInt-a))) }

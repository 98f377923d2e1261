package vulkan

import (
	"reflect"
	"testing"

	"github.com/go-fuel/fuel/internal/gpu"
)

const (
	mib = 1 << 20
	gib = 1 << 30

	// Bits of AMD's and for protected and lazily allocated memory, which no
	// buffer of fuel's may be in without asking for it.
	lazily      = 1 << 4
	protected   = 1 << 5
	amdCoherent = 1 << 6
	amdUncached = 1 << 7
)

// reported builds what a driver reports: heaps, and types as pairs of flags and
// heap.
func reported(heaps []memoryHeap, types ...memoryType) *physicalDeviceMemoryProperties {
	m := &physicalDeviceMemoryProperties{memoryTypeCount: uint32(len(types)), memoryHeapCount: uint32(len(heaps))}
	copy(m.memoryHeaps[:], heaps)
	copy(m.memoryTypes[:], types)
	return m
}

func own(size uint64) memoryHeap   { return memoryHeap{size, heapOfDevice} }
func other(size uint64) memoryHeap { return memoryHeap{size, 0} }

// realDevices are the memories of devices that people have. The source of each
// is named; where a report shows only a part, the rest is what the driver's
// source says.
var realDevices = []struct {
	name, source string
	memory       *physicalDeviceMemoryProperties
	want         layout
}{{
	name: "NVIDIA discrete, 214 MiB BAR", source: "nvpro-samples/vk_slang_editor#1 (heaps), haasn/libplacebo#178 (types)",
	memory: reported([]memoryHeap{own(4120903680), other(17154371584), own(224395264)},
		memoryType{0, 1}, memoryType{1, 0}, memoryType{0, 1}, memoryType{6, 1}, memoryType{14, 1}, memoryType{7, 2}),
	want: layout{storage: []uint32{1}, upload: []uint32{3, 4, 5}, readback: []uint32{4, 3, 5}, heap: gpu.Int(4120903680)},
}, {
	name: "NVIDIA discrete, resizable BAR", source: "haasn/libplacebo#178",
	memory: reported([]memoryHeap{own(8 * gib), other(16 * gib)},
		memoryType{0, 1}, memoryType{1, 0}, memoryType{6, 1}, memoryType{14, 1}, memoryType{7, 0}),
	want: layout{storage: []uint32{4}, upload: []uint32{2, 3, 4}, readback: []uint32{3, 2, 4}, unified: true, heap: gpu.Int(8 * gib)},
}, {
	name: "NVIDIA discrete, 246 MiB BAR", source: "KhronosGroup/Vulkan-Tools#446",
	memory: reported([]memoryHeap{own(8589934592), other(6227162112), own(257949696)},
		memoryType{0, 1}, memoryType{1, 0}, memoryType{6, 1}, memoryType{14, 1}, memoryType{7, 2}),
	want: layout{storage: []uint32{1}, upload: []uint32{2, 3, 4}, readback: []uint32{3, 2, 4}, heap: gpu.Int(8 * gib)},
}, {
	name: "AMD discrete, 256 MiB BAR", source: "nowrep/obs-vkcapture#6, ggml-org/llama.cpp#5441",
	memory: reported([]memoryHeap{own(8321499136), other(8573157376), own(256 * mib)},
		memoryType{1, 0}, memoryType{6, 1}, memoryType{7, 2}, memoryType{14, 1},
		memoryType{1 | amdCoherent | amdUncached, 0}, memoryType{6 | amdCoherent | amdUncached, 1},
		memoryType{7 | amdCoherent | amdUncached, 2}, memoryType{14 | amdCoherent | amdUncached, 1}),
	want: layout{storage: []uint32{0}, upload: []uint32{1, 3, 2}, readback: []uint32{3, 1, 2}, heap: gpu.Int(8321499136)},
}, {
	name: "AMD discrete, resizable BAR", source: "colinmarc/magic-mirror#5; types after the third: Mesa's radv_device.c",
	memory: reported([]memoryHeap{other(67396808704), own(17163091968)},
		memoryType{1, 1}, memoryType{1, 1}, memoryType{6, 0}, memoryType{7, 1}, memoryType{7, 1}, memoryType{14, 0}, memoryType{14, 0},
		memoryType{1 | amdCoherent | amdUncached, 1}, memoryType{6 | amdCoherent | amdUncached, 0},
		memoryType{7 | amdCoherent | amdUncached, 1}, memoryType{14 | amdCoherent | amdUncached, 0}),
	want: layout{storage: []uint32{3}, upload: []uint32{2, 5, 6, 3, 4}, readback: []uint32{5, 6, 2, 3, 4}, unified: true, heap: gpu.Int(17163091968)},
}, {
	name: "AMD integrated, Windows, 256 MiB window", source: "GpuZelenograd/memtest_vulkan#22, upscayl/upscayl#1314",
	memory: reported([]memoryHeap{own(1879048192), other(7215251456), own(256 * mib)},
		memoryType{1, 0}, memoryType{6, 1}, memoryType{7, 2}, memoryType{14, 1}, memoryType{1 | amdCoherent, 0}, memoryType{6 | amdCoherent, 1}),
	want: layout{storage: []uint32{0}, upload: []uint32{1, 3, 2}, readback: []uint32{3, 1, 2}, heap: gpu.Int(1879048192)},
}, {
	name: "AMD Strix Halo, 96 GiB in two heaps", source: "ggml-org/llama.cpp#16832",
	memory: reported([]memoryHeap{own(32 * gib), other(16 * gib), own(64 * gib)},
		memoryType{1, 0}, memoryType{6, 1}, memoryType{7, 2}, memoryType{14, 1}),
	want: layout{storage: []uint32{2, 0}, upload: []uint32{1, 3, 2}, readback: []uint32{3, 1, 2}, heap: gpu.Int(96 * gib)},
}, {
	name: "AMD integrated, Linux, a third of the memory apart", source: "KhronosGroup/Vulkan-Tools#582",
	memory: reported([]memoryHeap{other(1431654400), own(2863312896)},
		memoryType{1, 1}, memoryType{6, 0}, memoryType{7, 1}, memoryType{14, 0}),
	want: layout{storage: []uint32{2}, upload: []uint32{1, 3, 2}, readback: []uint32{3, 1, 2}, unified: true, heap: gpu.Int(2863312896)},
}, {
	name: "Intel integrated with LLC", source: "GPUOpen-Effects/FidelityFX-FSR2#87; types: Mesa 22.3's anv_device.c",
	memory: reported([]memoryHeap{own(8 * gib)}, memoryType{15, 0}),
	want:   layout{storage: []uint32{0}, upload: []uint32{0}, readback: []uint32{0}, unified: true, heap: gpu.Int(8 * gib)},
}, {
	name: "Intel integrated without LLC", source: "Mesa 22.3's anv_device.c",
	memory: reported([]memoryHeap{own(8 * gib)}, memoryType{7, 0}, memoryType{11, 0}),
	want:   layout{storage: []uint32{0}, upload: []uint32{0, 1}, readback: []uint32{1, 0}, unified: true, heap: gpu.Int(8 * gib)},
}, {
	name: "Raspberry Pi 5: nothing is cached", source: "VENDOR-APIS.md; Mesa's v3dv_device.c",
	memory: reported([]memoryHeap{own(4 * gib)}, memoryType{7, 0}),
	want:   layout{storage: []uint32{0}, upload: []uint32{0}, readback: []uint32{0}, unified: true, heap: gpu.Int(4 * gib)},
}, {
	name: "Apple M1 through MoltenVK", source: "KhronosGroup/MoltenVK#2292",
	memory: reported([]memoryHeap{own(16 * gib)}, memoryType{1, 0}, memoryType{15, 0}, memoryType{11, 0}, memoryType{1 | lazily, 0}),
	want:   layout{storage: []uint32{1}, upload: []uint32{1, 2}, readback: []uint32{1, 2}, unified: true, heap: gpu.Int(16 * gib)},
}, {
	name: "Jetson Xavier NX, a second small heap", source: "ggml-org/llama.cpp#6406; types after the first are not in it",
	memory: reported([]memoryHeap{own(7187120128), own(704643072)}, memoryType{1, 0}, memoryType{7, 0}, memoryType{15, 0}, memoryType{1 | protected, 1}),
	want:   layout{storage: []uint32{2}, upload: []uint32{1, 2}, readback: []uint32{2, 1}, unified: true, heap: gpu.Int(7187120128)},
}, {
	name: "Adreno, protected memory apart", source: "ggml-org/llama.cpp#5198; types after the second are not in it",
	memory: reported([]memoryHeap{own(3826401280), own(256 * mib)}, memoryType{1, 0}, memoryType{11, 0}, memoryType{7, 0}, memoryType{15, 0}, memoryType{1 | protected, 1}),
	want:   layout{storage: []uint32{3}, upload: []uint32{2, 3, 1}, readback: []uint32{3, 1, 2}, unified: true, heap: gpu.Int(3826401280)},
}, {
	name: "llvmpipe", source: "vulkaninfo of Mesa 22.3.6",
	memory: reported([]memoryHeap{own(2 * gib)}, memoryType{15, 0}),
	want:   layout{storage: []uint32{0}, upload: []uint32{0}, readback: []uint32{0}, unified: true, heap: gpu.Int(2 * gib)},
}, {
	name: "nothing of the device's own", source: "no device: the specification asks for some",
	memory: reported([]memoryHeap{other(gib)}, memoryType{6, 0}),
	want:   layout{storage: []uint32{0}, upload: []uint32{0}, readback: []uint32{0}, heap: gpu.Int(gib)},
}}

func TestMemoryTypesOfRealDevices(t *testing.T) {
	for _, d := range realDevices {
		t.Run(d.name, func(t *testing.T) {
			if got := plan(d.memory, ^uint32(0)); !reflect.DeepEqual(got, d.want) {
				t.Errorf("%+v,\nwant %+v (%s)", got, d.want, d.source)
			}
		})
	}
}

// What a driver reports may be nonsense, and no index may leave its list.
func TestMemoryTypesNeverLeaveTheirList(t *testing.T) {
	for _, m := range []*physicalDeviceMemoryProperties{
		{}, {memoryTypeCount: 99, memoryHeapCount: 99}, reported(nil, memoryType{15, 0}), reported([]memoryHeap{own(gib)}, memoryType{15, 7}),
		reported([]memoryHeap{own(1<<64 - 1), own(1<<64 - 1)}, memoryType{1, 0}, memoryType{1, 1}),
	} {
		l := plan(m, ^uint32(0))
		for _, list := range [][]uint32{l.storage, l.upload, l.readback} {
			for _, i := range list {
				if i >= m.memoryTypeCount || m.memoryTypes[i].heapIndex >= m.memoryHeapCount {
					t.Errorf("type %d of %d", i, m.memoryTypeCount)
				}
			}
		}
		if l.heap < 0 {
			t.Errorf("%d bytes", l.heap)
		}
	}
	for _, d := range realDevices {
		for bits := range uint32(1) << min(d.memory.memoryTypeCount, 8) {
			l := plan(d.memory, bits)
			for _, list := range [][]uint32{l.storage, l.upload, l.readback} {
				for _, i := range list {
					if bits>>i&1 == 0 {
						t.Fatalf("%s: type %d, and %#x are allowed", d.name, i, bits)
					}
				}
			}
		}
	}
}

// A budget may be above the heap, and the use above the budget.
func TestFreeMemoryNeverWraps(t *testing.T) {
	for _, c := range []struct{ size, budget, used, free uint64 }{
		{8 * gib, 7 * gib, gib, 6 * gib}, {8 * gib, 7 * gib, 7*gib + 1, 0}, {8 * gib, 20 * gib, gib, 7 * gib}, {8 * gib, 0, 0, 0},
		{8 * gib, 1<<64 - 1, 1<<64 - 1, 0},
	} {
		if got := freeOf(c.size, c.budget, c.used); got != int64(c.free) {
			t.Errorf("heap %d, budget %d, used %d: %d free, want %d", c.size, c.budget, c.used, got, c.free)
		}
	}
}

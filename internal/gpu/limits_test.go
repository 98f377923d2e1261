package gpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-fuel/fuel/internal/backend"
)

// toInt is a recorded figure as an int, as plugins have it.

// Heaps of real devices, as the threads named have them; MaxBlock where one
// tells it. Rows without a source are made up, to be small.
var recorded = []struct {
	name, source   string
	lim            Limits
	first, most    int // slabs
	allocations    int // of Storages
	leftForStaging int
}{
	{"NVIDIA discrete", "nvpro-samples/vk_slang_editor#1", Limits{Heap: Int(4120903680), MaxAllocations: 4096, Align: 256, Atom: 64}, 64 << 20, 256 << 20, 4032, 0},
	{"AMD discrete, blocks of 2 GiB", "ggml-org/llama.cpp#5441, #15054", Limits{Heap: Int(8321499136), MaxBlock: Int(2 << 30), MaxAllocations: 4096, Align: 256, Atom: 128}, 64 << 20, 256 << 20, 4032, 0},
	{"AMD, its window of 256 MiB", "nowrep/obs-vkcapture#6", Limits{Heap: 256 << 20, MaxAllocations: 4096, Align: 256, Atom: 128}, 32 << 20, 32 << 20, 4032, 0},
	{"Apple M1 through MoltenVK", "KhronosGroup/MoltenVK#2292", Limits{Heap: Int(16 << 30), MaxAllocations: Int(1<<32 - 1), Align: 256, Atom: 64, Shared: true}, 64 << 20, 256 << 20, 4032, 16 << 20},
	{"Adreno", "ggml-org/llama.cpp#5198", Limits{Heap: Int(3826401280), MaxAllocations: 4096, Align: 256, Atom: 64, Shared: true}, 64 << 20, 256 << 20, 4032, 16 << 20},
	{"llvmpipe", "vulkaninfo of Mesa 22.3.6", Limits{Heap: Int(2 << 30), MaxAllocations: 4096, Align: 256, Atom: 64, Shared: true}, 64 << 20, 256 << 20, 4032, 16 << 20},
	{"a heap of 1 GiB", "", Limits{Heap: 1 << 30, MaxAllocations: 4096, Align: 256, Atom: 64, Shared: true}, 64 << 20, 128 << 20, 4032, 16 << 20},
	{"a heap of 128 MiB", "", Limits{Heap: 128 << 20, MaxBlock: 64 << 20, MaxAllocations: 4096, Align: 256, Atom: 256, Shared: true}, 16 << 20, 16 << 20, 4032, 8 << 20},
	{"nothing told", "", Limits{Align: 64, Atom: 1}, 64 << 20, 256 << 20, 4032, 0},
	{"small blocks", "", Limits{MaxBlock: 1<<20 + 100, MaxAllocations: 16, Align: 256, Atom: 1}, 1 << 20, 1 << 20, 12, 0},
}

func TestSlabsNeverExceedWhatTheDeviceHas(t *testing.T) {
	for _, k := range recorded {
		m := newMemory(nil, k.lim, nil)
		if a, b := slabSize(k.lim, firstSlab), slabSize(k.lim, mostSlab); a != k.first || b != k.most {
			t.Errorf("%s: slabs of %d to %d bytes, want %d to %d", k.name, a, b, k.first, k.most)
		}
		if n := m.cap(); n != k.allocations {
			t.Errorf("%s: %d allocations, want %d", k.name, n, k.allocations)
		}
		if n := k.lim.forStaging(); n != k.leftForStaging {
			t.Errorf("%s: %d bytes for staging, want %d", k.name, n, k.leftForStaging)
		}
	}
}

func always(backend.Point) bool { return true }

// 20,000 tensors of a few bytes (report 85), on every device.
func TestManyTinyBuffersNeverTakeManyAllocations(t *testing.T) {
	for _, k := range recorded {
		if k.lim.MaxAllocations == 16 { // which are fewer bytes
			continue
		}
		p := &clockPort{}
		m := newMemory(p, k.lim, always)
		for i := range 20_000 {
			if _, _, err := m.alloc(i%4096 + 1); err != nil {
				t.Fatalf("%s: %v", k.name, err)
			}
		}
		if p.blocks > 16 {
			t.Errorf("%s: %d allocations for %d bytes", k.name, p.blocks, m.asked)
		}
		m.close()
		if p.blocks != 0 {
			t.Errorf("%s: %d allocations stay", k.name, p.blocks)
		}
	}
}

// Slabs that are many are no reason for small ones: 64 MiB doubled with every
// one of them is more than an int of 32 bits has.
func TestNewSlabsNeverShrink(t *testing.T) {
	p := &clockPort{}
	m := newMemory(p, Limits{Align: 64, Atom: 1}, always)
	defer m.close()
	for i := range 12 {
		if err := m.grow(64); err != nil {
			t.Fatal(err)
		}
		if want := min(firstSlab<<min(i, 2), mostSlab); m.newest.Size != want {
			t.Errorf("slab %d has %d bytes, want %d", i, m.newest.Size, want)
		}
	}
}

// The allocations that Storages leave are there for staging, without which
// nothing that they hold can be read.
func TestStoragesNeverTakeTheAllocationsOfStaging(t *testing.T) {
	for _, most := range []int{3, 4, 8, 4096} {
		p := &clockPort{}
		m := newMemory(p, Limits{Align: 64, Atom: 1, MaxBlock: 4096, MaxAllocations: most}, always)
		var err error
		n := 0
		for err == nil {
			if _, _, err = m.alloc(4096); err == nil {
				n++
			}
		}
		if !errors.Is(err, backend.ErrNoMemory) || n != m.cap() || n > most-2 || !strings.Contains(err.Error(), fmt.Sprint(n)) {
			t.Errorf("of %d: %d allocations, then %v", most, n, err)
		}
		for _, use := range []Use{Upload, Readback} {
			if _, err := m.stage(4096, use); err != nil {
				t.Errorf("of %d: staging: %v", most, err)
			}
		}
		if p.blocks > most {
			t.Errorf("%d allocations of %d", p.blocks, most)
		}
	}
}

// The largest size that a device tells need not be one that fits its alignment.
func TestTooLargeNeverNamesASizeThatIsRefusedToo(t *testing.T) {
	d := New(&clockPort{}, Limits{Align: 256, Atom: 1, FillUnit: 4, FillAlign: 4, MaxBlock: 1<<20 - 1}, Config{})
	_, err := d.Alloc(1<<20-1, false)
	var n, most int
	if !errors.Is(err, backend.ErrTooLarge) {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(strings.TrimPrefix(err.Error(), backend.ErrTooLarge.Error()), ": %d bytes, and one allocation has %d at most", &n, &most); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Alloc(most, false); err != nil {
		t.Errorf("%d bytes, which one allocation has: %v", most, err)
	}
	d.mem.close()
}

// A heap that is full says so without the driver, and says what is left.
func TestFullHeapNeverAsksTheDriver(t *testing.T) {
	p := &clockPort{}
	m := newMemory(p, Limits{Align: 256, Atom: 1, Heap: 64 << 20, Shared: true}, always)
	defer m.close()
	p.refuse = func(n int) error {
		if room := 60<<20 - m.held; n > room {
			t.Errorf("the driver is asked for %d bytes where %d are left", n, room)
		}
		return nil
	}
	if _, _, err := m.alloc(40 << 20); err != nil {
		t.Fatal(err)
	}
	_, _, err := m.alloc(30 << 20)
	want := fmt.Sprintf("%d bytes, and %d are left of %d", 30<<20, 20<<20, 64<<20)
	if !errors.Is(err, backend.ErrNoMemory) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if _, _, err := m.alloc(20 << 20); err != nil {
		t.Errorf("what is left: %v", err)
	}
}

// Empty slabs are given up before a request is refused, and only then.
func TestEmptySlabsNeverStandInTheWay(t *testing.T) {
	p := &clockPort{}
	m := newMemory(p, Limits{Align: 256, Atom: 1, Heap: 256 << 20}, always)
	defer m.close()
	m.max = 1 << 40
	var list []backend.Buffer
	for range 8 {
		_, h, err := m.alloc(20 << 20)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, backend.Buffer{Handle: h, Size: 20 << 20})
	}
	for _, b := range list {
		m.free(b, 0)
	}
	if m.cached() == 0 {
		t.Fatal("nothing is kept")
	}
	if _, _, err := m.alloc(200 << 20); err != nil {
		t.Errorf("200 MiB beside %d that are kept: %v", m.cached(), err)
	}
}

func TestAtomsNeverCutAnAtomNorLeaveTheBlock(t *testing.T) {
	for _, atom := range []int{1, 4, 64, 128, 256} {
		for _, k := range []struct{ off, n, size int }{
			{0, 1, 1 << 20},
			{0, atom, 1 << 20},
			{atom, atom + 1, 1 << 20},
			{2*atom - 1, 2, 1 << 20},
			{1<<20 - 1, 1, 1 << 20},
			{1 << 20, 7, 1<<20 + 7}, // ends with the Block, whole atoms or not
			{1<<20 + 3, 2, 1<<20 + 7},
		} {
			s := staging{d: &Device{lim: Limits{Atom: atom}}, block: Block{Size: k.size}}
			start, length := s.atoms(k.off, k.n)
			end := start + length
			switch {
			case start > k.off || end < k.off+k.n || end > k.size || start < 0:
				t.Errorf("atom %d: %+v: %d to %d does not hold it", atom, k, start, end)
			case start%atom != 0 || end%atom != 0 && end != k.size:
				t.Errorf("atom %d: %+v: %d to %d cuts an atom", atom, k, start, end)
			case start <= k.off-atom || end >= k.off+k.n+atom:
				t.Errorf("atom %d: %+v: %d to %d is more than it need be", atom, k, start, end)
			}
		}
	}
}

// A plan done by hand on bytes gives what the pattern repeated gives.
func TestPlanOfAFillNeverMissesAByte(t *testing.T) {
	const room = 256
	for _, unit := range []int{1, 4} {
		for _, align := range []int{1, 4, 16, 64} {
			if align < unit {
				continue
			}
			d := &Device{lim: Limits{FillUnit: unit, FillAlign: align}}
			for _, pattern := range []string{"\x00", "a", "ab", "aa", "abcd", "abab", "aaaa", "abcdefgh", "abcdabcd", "abcdefghijklmnop", "abcdabcdabcdabcd", "abcdabcdabcdabce"} {
				for off := range align + 4 {
					for n := len(pattern); n < room-align-4; n += len(pattern) {
						f := d.plan(off, n, []byte(pattern))
						want := bytes.Repeat([]byte(pattern), n/len(pattern))
						seed := bytes.Repeat([]byte(pattern), room/len(pattern))
						got := make([]byte, n)
						switch {
						case f.head+f.tail > 0 || f.seed == 0:
							body := n - f.head - f.tail
							if (off+f.head)%align != 0 || body <= 0 || body%unit != 0 || unit == 1 && f.word != f.word&0xFF*0x01010101 {
								t.Fatalf("unit %d, align %d, %q, %d bytes at %d: %+v", unit, align, pattern, n, off, f)
							}
							if max(f.head, f.tail) > f.seed {
								t.Fatalf("%+v: less seed than edge", f)
							}
							copy(got, seed[:f.head])
							word := bytes.Repeat(binary.LittleEndian.AppendUint32(nil, f.word), room)
							copy(got[f.head:f.head+body], word)
							copy(got[n-f.tail:], seed[(f.head+body)%4:])
						default:
							if f.seed > n || f.seed%len(pattern) != 0 {
								t.Fatalf("%+v: a seed of %d bytes", f, f.seed)
							}
							copy(got, seed[:f.seed])
							for have := f.seed; have < n; have += have {
								copy(got[have:], got[:have])
							}
						}
						if !bytes.Equal(got, want) {
							t.Fatalf("unit %d, align %d, %q, %d bytes at %d: %+v: %q", unit, align, pattern, n, off, f, got)
						}
					}
				}
			}
		}
	}
}

// Two gigabytes less a little, where an int of 32 bits ends.
func TestLongWorkNeverRunsPastItsEnd(t *testing.T) {
	const n = 1<<31 - 64
	p := &clockPort{}
	d := New(p, Limits{Align: 64, Atom: 1, FillUnit: 4, FillAlign: 4}, Config{})
	defer d.mem.close()
	a, err := d.Alloc(n, false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(n, false)
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]func() (backend.Point, error){
		"Copy": func() (backend.Point, error) { return d.Copy(a, 0, b, 0, n) },
		"Fill": func() (backend.Point, error) { return d.Fill(a, 0, n, []byte("abcd")) },
	} {
		at := 0
		p.work = func(ops []Op) error {
			for _, op := range ops {
				if op.DstOff != at || op.N <= 0 || op.N > MaxOp || op.N > n-at {
					return fmt.Errorf("%d bytes at %d, of which %d are done", op.N, op.DstOff, at)
				}
				at += op.N
			}
			return nil
		}
		if _, err := f(); err != nil || at != n {
			t.Errorf("%s: %d bytes of %d: %v", what, at, n, err)
		}
	}
}

package fuel

import (
	"testing"
	"unsafe"

	"github.com/go-fuel/fuel/cpu"
)

// What the device gets is whole units, has all of the part, and is inside of what
// fuel owns: never a byte of others.
func TestImportNeverLeavesItsMemory(t *testing.T) {
	const page = 64 << 10
	mem := cpu.AlignedHeap(5 * page)
	for len(mem) >= 4*page && address(mem)%page != 0 {
		mem = mem[cpu.Align:]
	}
	for _, align := range []int{64, 4096, 16 << 10, page} {
		for _, c := range []struct {
			from, to   int // of all
			off, n     int // of the part
			first, len int // wanted; len 0: none
		}{
			{0, 4 * page, 0, 4 * page, 0, 4 * page},
			{0, 4 * page, 0, 1, 0, align},
			{0, 4 * page, 1, 1, 0, align},
			{0, 4 * page, align - 1, 2, 0, 2 * align},
			{0, 4 * page, align, align, align, align},
			{0, 4 * page, 4*page - 1, 1, 4*page - align, align},
			{0, 4*page - 64, 4*page - 65, 1, 4*page - align, align - 64}, // not whole at the end, unless the unit is 64
			{64, 4 * page, 64, 1, 0, 0},                                  // nor at the beginning
			{0, align, 0, align, 0, align},
		} {
			if align == 64 && (c.from == 64 || c.to == 4*page-64) {
				continue
			}
			want := c.len
			if c.len%align != 0 {
				want = 0
			}
			got, skew, ok := around(mem[c.from:c.to], mem[c.off:c.off+c.n], align)
			if ok != (want > 0) {
				t.Errorf("unit %d, %+v: %v", align, c, ok)
				continue
			}
			if !ok {
				continue
			}
			if &got[0] != &mem[c.first] || len(got) != want || cap(got) != want || skew != c.off-c.first {
				t.Errorf("unit %d, %+v: %d bytes of %d, the part %d into them", align, c, len(got), cap(got), skew)
			}
		}
	}
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

package cpu

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"
)

// committed counts the bytes of b that count against the commit limit.
func committed(t *testing.T, b []byte) (n int) {
	t.Helper()
	for at, end := address(b), address(b)+uintptr(len(b)); at < end; {
		var m windows.MemoryBasicInformation
		if err := windows.VirtualQuery(at, &m, unsafe.Sizeof(m)); err != nil {
			t.Fatal(err)
		}
		part := min(m.BaseAddress+m.RegionSize, end) - at
		if m.State == windows.MEM_COMMIT {
			n += int(part)
		}
		at += part
	}
	return n
}

// What is reserved for blocks to come, and what was given back, must not keep
// others from getting memory.
func TestFreePagesCountNotAgainstTheCommitLimit(t *testing.T) {
	p := newPool(t, 1<<30)
	p.shards = p.shards[:1]
	p.hint.New = func() any { return &p.shards[0] }
	const n = 128 << 10
	a := get(t, p, n, true)
	slab := p.slabs.at(a.ID).mem
	if c := committed(t, slab); c != n {
		t.Errorf("one block of %d: %d bytes of a slab of %d are committed", n, c, len(slab))
	}
	b, c := get(t, p, n, true), get(t, p, n, true)
	p.Put(b)
	if c := committed(t, slab); c != 3*n {
		t.Errorf("two blocks and a cached one: %d", c)
	}
	p.Trim(0)
	if c := committed(t, slab); c != 2*n {
		t.Errorf("after Trim: %d", c)
	}
	b = get(t, p, n, true)
	Fill(b.Bytes, []byte{1})
	if c := committed(t, slab); c != 3*n {
		t.Errorf("taken again: %d", c)
	}
	for _, b := range []Block{a, b, c} {
		p.Put(b)
	}
	wantEmpty(t, p)
}

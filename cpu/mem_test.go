package cpu

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-fuel/fuel/internal/require"
)

// Report 17: a Pi 5 has pages of 16 KiB, others of 64.
func TestNoPageSizeIsAssumed(t *testing.T) {
	for _, page := range []int{4 << 10, 16 << 10, 64 << 10} {
		for _, off := range []int64{0, 1, 4095, 4096, 4097, 16384, 65535, 65536, 1 << 40} {
			for _, n := range []int{0, 1, 4096, 100_000} {
				start, length, skip, ok := window(off, n, page)
				if !ok || start%int64(page) != 0 || start+int64(skip) != off || skip+n != length || skip < 0 || skip >= page {
					t.Errorf("page %d, %d bytes at %d: start %d, length %d, skip %d, %v", page, n, off, start, length, skip, ok)
				}
			}
		}
		const maxInt = int(^uint(0) >> 1)
		for _, c := range []struct {
			off int64
			n   int
		}{{-1, 1}, {0, -1}, {1, maxInt}, {int64(page) - 1, maxInt - page + 2}} {
			if _, _, _, ok := window(c.off, c.n, page); ok {
				t.Errorf("page %d, %d bytes at %d: accepted", page, c.n, c.off)
			}
		}
	}
}

func tempFile(t *testing.T, contents []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, contents, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestMapFileTakesAnyOffset(t *testing.T) {
	contents := make([]byte, 200_000)
	for i := range contents {
		contents[i] = byte(i*31 + i>>8)
	}
	f := tempFile(t, contents)
	for _, off := range []int{0, 1, 63, 4095, 4096, 65535, 65537, 199_999} {
		for _, n := range []int{1, 100, 70_000} {
			if off+n > len(contents) {
				continue
			}
			m, err := MapFile(f, int64(off), n)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.Bytes, contents[off:off+n]) || cap(m.Bytes) != n {
				t.Errorf("%d bytes at %d differ from the file", n, off)
			}
			if err := m.Unmap(); err != nil {
				t.Error(err)
			}
			if err := m.Unmap(); err != nil {
				t.Errorf("the second Unmap: %v", err)
			}
		}
	}
}

func TestReservedMemoryIsZeroAndWritable(t *testing.T) {
	b, err := Reserve(3*os.Getpagesize() + 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(bytes.Trim(b, "\x00")) != 0 {
		t.Error("fresh memory is not zero")
	}
	Fill(b, []byte{1})
	if err := Release(b); err != nil {
		t.Error(err)
	}
}

func TestForbiddenMemoryFaults(t *testing.T) {
	if !HaveReserve {
		require.Skip(t, "mprotect", "no page protection on "+runtime.GOOS)
	}
	b, err := Reserve(100_000)
	if err != nil {
		t.Fatal(err)
	}
	defer Release(b)
	if err := Forbid(b); err != nil {
		t.Fatal(err)
	}
	var x byte
	err = Guard(func() { x = b[50_000] })
	var fault *FaultError
	if !errors.As(err, &fault) {
		t.Fatalf("reading forbidden memory: %v (%d)", err, x)
	}
}

func TestGuardLetsOtherPanicsThrough(t *testing.T) {
	defer func() {
		if r := recover(); r != "mine" {
			t.Errorf("recovered %v", r)
		}
	}()
	_ = Guard(func() { panic("mine") })
}

func TestGuardLetsOtherRuntimeErrorsThrough(t *testing.T) {
	defer func() {
		if _, ok := recover().(runtime.Error); !ok {
			t.Error("an index out of range was taken for a fault")
		}
	}()
	_ = Guard(func() { _ = make([]byte, 1)[len(t.Name())] })
}

// An emulator may tell of a fault without its address.
func TestAFaultWithoutAnAddressIsAFault(t *testing.T) {
	var p *byte
	err := Guard(func() { *p = 1 })
	var fault *FaultError
	if !errors.As(err, &fault) || fault.Addr != 0 {
		t.Errorf("%v", err)
	}
}

func TestRefusedMemoryIsAnError(t *testing.T) {
	// Together more than any address space has room for.
	const huge = int(^uint(0)>>1) - 1<<20
	for range 4 {
		b, err := Reserve(huge)
		if err != nil {
			if !errors.Is(err, ErrNoMemory) {
				t.Fatal(err)
			}
			return
		}
		defer Release(b)
	}
	t.Fatalf("four blocks of %d bytes were given", huge)
}

package gpu_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// numbered returns n bytes that differ from their neighbours and repeat late.
func numbered(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 1)
	}
	return b
}

// A device whose memory is all in use: what is there can be read, written,
// filled and moved, with the little staging that the driver still gives.
func TestFullDeviceIsNeverStuck(t *testing.T) {
	p := newSoftPort(t, memories[0], gpu.Limits{Align: 256, Atom: 64, FillUnit: 4, FillAlign: 16, Heap: 64 << 20, Shared: true})
	p.refuse = func(n int, use gpu.Use) error {
		if use != gpu.Storage && n > 64<<10 {
			return fmt.Errorf("%w: %d bytes of staging", backend.ErrNoMemory, n)
		}
		return nil
	}
	dev := register(t, p, gpu.Config{})
	var list []*fuel.Storage
	for _, size := range []int{32 << 20, 4 << 20, 1 << 20, 64 << 10, 4 << 10, 256} {
		for {
			s, err := fuel.AllocUninit(dev, fuel.U8, size, nil)
			if err != nil {
				break
			}
			list = append(list, s)
		}
	}
	s := list[0]
	n := s.LenBytes()
	want := numbered(n)
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		got := make([]byte, n)
		if k, err := s.ReadAt(got, 0); k != n {
			t.Fatalf("%s: ReadAt: %d, %v", what, k, err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s: wrong bytes", what)
		}
	}
	_, err := s.WriteAt(want, 0)
	check("write", err)
	for _, shift := range []int{1, 1000, 100_000} {
		k := 1 << 20
		copy(want[shift:][:k], want[:k])
		check("move up", s.CopyRange(t.Context(), shift, s, 0, k, nil))
		copy(want[5:][:k], want[shift+5:][:k])
		check("move down", s.CopyRange(t.Context(), 5, s, shift+5, k, nil))
	}
	pattern := []byte("sixteen bytes...")
	const length = 1 << 20
	copy(want[3:], bytes.Repeat(pattern, length/16))
	check("fill", s.FillRange(t.Context(), 3, length, pattern))
	for _, s := range list {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Both directions go through each half of the staging several times, with a
// device that is slow.
func TestStagingIsNeverUsedByBothSides(t *testing.T) {
	p := newSoftPort(t, memories[0], gpu.Limits{Align: 256, Atom: 64, FillUnit: 4, FillAlign: 16, Heap: 256 << 20})
	p.delay = 3 * time.Millisecond
	dev := register(t, p, gpu.Config{})
	const n = 21<<20 + 5
	want := numbered(n)
	for i := range want { // so that no two halves are alike
		want[i] += byte(i >> 20)
	}
	s, err := fuel.AllocUninit(dev, fuel.U8, n, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, n)
	if k, err := s.ReadAt(got, 0); k != n {
		t.Fatalf("ReadAt: %d, %v", k, err)
	}
	if !bytes.Equal(got, want) {
		t.Error("wrong bytes")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

package vulkan

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// A pinned thing that only an integer tells of stays, and goes after Unpin.
func TestPinnedNeverGoesEarly(t *testing.T) {
	var p pinned
	var gone atomic.Bool
	x := &[16]uint64{1}
	runtime.AddCleanup(x, func(int) { gone.Store(true) }, 0)
	if a := address(keep(&p, x)); a == 0 {
		t.Fatal("no address")
	}
	x = nil
	for range 3 {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if gone.Load() {
		t.Fatal("it was collected while it was pinned")
	}
	p.Unpin()
	for range 100 {
		if runtime.GC(); gone.Load() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("it was not collected after Unpin")
}

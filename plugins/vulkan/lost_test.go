package vulkan

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/gpu"
)

// Work may find out in any call that the device is lost. Every later use says
// so, nothing hangs, and what is there can be closed.
func TestLostDeviceIsNeverUsedAgain(t *testing.T) {
	clocks := map[string][]string{
		"timeline": {"vkQueueSubmit", "vkGetSemaphoreCounterValue", "vkWaitSemaphores", "vkBeginCommandBuffer", "vkEndCommandBuffer", "vkAllocateMemory", "vkMapMemory"},
		"fences":   {"vkQueueSubmit", "vkGetFenceStatus", "vkResetFences"},
	}
	for clock, calls := range clocks {
		for _, call := range calls {
			for way, c := range ways {
				t.Run(clock+"/"+call+"/"+way, func(t *testing.T) {
					d := testDriver(c)
					var lost atomic.Bool
					d.port.fences = clock == "fences"
					d.port.inject = func(name string, r result) result {
						if lost.Load() && (name == call || name == "vkDeviceWaitIdle") {
							if name == "vkQueueSubmit" { // the driver did take it
								time.Sleep(50 * time.Millisecond)
							}
							return deviceLost
						}
						return r
					}
					loseDevice(t, use(t, d), func() { lost.Store(true) })
				})
			}
		}
	}
}

func loseDevice(t *testing.T, dev fuel.Device, lose func()) {
	s := value(fuel.FromBytes(dev, fuel.U8, count(1<<20)))(t)
	c := value(s.Clone())(t)
	big := value(fuel.AllocUninit(dev, fuel.U8, 32<<20, nil))(t)
	other := value(fuel.AllocUninit(dev, fuel.U8, 32<<20, nil))(t)
	q := value(fuel.QueueOf(dev))(t)
	before := value(q.Fill(s, []byte{1}))(t)
	ok(t, q.Wait(t.Context(), before))
	lose()

	done := make(chan struct{})
	go func() {
		defer close(done)
		// What is found out depends on the call: by then at the latest.
		found := false
		for i := 0; i < 100 && !found; i++ {
			_, err := s.WriteAt(count(100), 5)
			found = found || errors.Is(err, fuel.ErrDeviceLost)
			p, err := q.Copy(big, other)
			found = found || errors.Is(err, fuel.ErrDeviceLost)
			if err == nil {
				found = found || errors.Is(q.Wait(t.Context(), p), fuel.ErrDeviceLost)
			}
			x, err := fuel.AllocUninit(dev, fuel.U8, 300<<20, nil)
			found = found || errors.Is(err, fuel.ErrDeviceLost)
			if err == nil {
				ok(t, x.Close())
			}
		}
		if !found {
			t.Error("nothing tells that the device is lost")
			return
		}
		for what, err := range map[string]error{
			"Alloc":        errOf(fuel.Alloc(dev, fuel.U8, 10, nil)),
			"FromBytes":    errOf(fuel.FromBytes(dev, fuel.U8, count(10))),
			"ReadAt":       errOf(s.ReadAt(make([]byte, 10), 0)),
			"WriteAt":      errOf(s.WriteAt(make([]byte, 10), 0)),
			"Fill":         s.Fill(t.Context(), []byte{1}),
			"CopyFrom":     c.CopyFrom(t.Context(), s, nil),
			"overlap":      s.CopyRange(t.Context(), 0, s, 1, 100, nil),
			"To":           errOf(s.To(t.Context(), cpu, nil)),
			"Queue.Fill":   errOf(q.Fill(s, []byte{1})),
			"Queue.Copy":   errOf(q.Copy(s, c)),
			"WaitExternal": errOf(q.WaitExternal(fuel.External{Handle: 1})),
			"QueueOf":      errOf(fuel.QueueOf(dev)),
			"Visit":        errOf(fuel.Visit(s, &fuel.Cases[int]{Vulkan: func(fuel.VulkanMemory) (int, error) { return 0, nil }})),
		} {
			if !errors.Is(err, fuel.ErrDeviceLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if !q.Done(before) {
			t.Error("a Point that had passed has not any more")
		}
		if err := q.Wait(t.Context(), before); err != nil {
			t.Errorf("work that was done before: %v", err)
		}
		ok(t, other.Close())
		ok(t, big.Close())
		ok(t, c.Close())
		ok(t, s.Close())
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("it hangs")
	}
}

func errOf[T any](_ T, err error) error { return err }

func TestWaitExternalNeverTakesNoSemaphore(t *testing.T) {
	q := value(fuel.QueueOf(use(t, testDriver(gpu.Config{}))))(t)
	if _, err := q.WaitExternal(fuel.External{Value: 1}); err == nil || !strings.Contains(err.Error(), "Handle is 0") {
		t.Errorf("%v", err)
	}
}

func TestWaitExternalOnFencesIsAClearError(t *testing.T) {
	d := testDriver(gpu.Config{})
	d.port.fences = true
	dev := use(t, d)
	q := value(fuel.QueueOf(dev))(t)
	s := closed(t, value(fuel.FromBytes(dev, fuel.U8, count(1000)))(t))
	_, err := q.WaitExternal(fuel.External{Handle: 1, Value: 1})
	if err == nil || !strings.Contains(err.Error(), "timeline semaphores") || errors.Is(err, fuel.ErrDeviceLost) {
		t.Errorf("%v", err)
	}
	// The queue is as it was.
	p := value(q.Fill(s, []byte{4}))(t)
	ok(t, q.Wait(t.Context(), p))
	if !all(contents(t, s), 4) {
		t.Error("a fill after the error went wrong")
	}
}

package vulkan

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
)

// resident tells how much memory of the system the process has, or -1.
func resident() int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return -1
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		return -1
	}
	return pages * os.Getpagesize()
}

// A processor's driver gives more memory than its heap has, which the system
// takes from somebody in the end. Fuel does not let it.
func TestHeapIsNeverOverdrawn(t *testing.T) {
	for name, c := range ways {
		t.Run(name, func(t *testing.T) {
			dev := use(t, testDriver(c))
			before := value(fuel.MemStats(dev))(t)
			heap := int(fuel.Probe(t.Context())[fuel.Vulkan].Devices[0].Memory.Total)
			witness := closed(t, value(fuel.FromBytes(dev, fuel.U8, count(10_000)))(t))
			start := resident()
			var list []*fuel.Storage
			var err error
			total, refused := witness.LenBytes(), 0
			for size := heap / 8; size >= 1<<20; {
				var s *fuel.Storage
				if s, err = fuel.AllocUninit(dev, fuel.U8, size, nil); err != nil {
					refused++
					var oom *fuel.OutOfMemoryError
					if !errors.As(err, &oom) || !errors.Is(err, fuel.ErrOutOfMemory) {
						t.Fatalf("%v is no *OutOfMemoryError", err)
					}
					if oom.Device != dev || oom.Requested != int64(size) || oom.InUse != int64(total) || oom.Limit != -1 || oom.Err == nil ||
						oom.Free > int64(heap-total) {
						t.Errorf("with %d of %d bytes in use, %d more: %+v", total, heap, size, oom)
					}
					if !strings.Contains(err.Error(), strconv.Itoa(size)+" bytes requested") {
						t.Errorf("no size in %q", err)
					}
					size /= 4
					continue
				}
				list = append(list, closed(t, s))
				if total += size; total > heap {
					t.Fatalf("%d bytes in use, and the heap has %d", total, heap)
				}
			}
			if refused == 0 || total < heap-heap/8 {
				t.Errorf("%d bytes of %d were given, %d requests refused", total, heap, refused)
			}
			if grown := resident() - start; grown > 256<<20 {
				t.Errorf("untouched memory takes %d bytes of the system's", grown)
			}
			// What there is still works, with the device full.
			want := count(10_000)
			copy(want[100:], want[:9000])
			ok(t, witness.CopyRange(t.Context(), 100, witness, 0, 9000, nil))
			if !bytes.Equal(contents(t, witness), want) {
				t.Error("an overlapping copy on a full device went wrong")
			}
			for _, s := range list {
				ok(t, s.Close())
			}
			s := value(fuel.Alloc(dev, fuel.U8, heap/8, nil))(t)
			ok(t, s.Close())
			ok(t, witness.Close())
			if now := value(fuel.MemStats(dev))(t); now.InUse != before.InUse || now.Regions != before.Regions {
				t.Errorf("in use: %+v, and it was %+v", now, before)
			}
		})
	}
}

// What the driver refuses is the same error: all results of Vulkan that mean
// it, from each call that may have them.
func TestDriversRefusalIsNeverAnotherError(t *testing.T) {
	for _, call := range []string{"vkCreateBuffer", "vkAllocateMemory", "vkBindBufferMemory", "vkMapMemory"} {
		for _, r := range []result{outOfHostMemory, outOfDeviceMemory, memoryMapFailed, tooManyObjects} {
			d := testDriver(gpu.Config{})
			refuse := false
			d.port.inject = func(c string, was result) result {
				if refuse && c == call {
					return r
				}
				return was
			}
			t.Run(call+"/"+r.String(), func(t *testing.T) {
				dev := use(t, d)
				value(fuel.MemStats(dev))(t)
				refuse = true
				_, err := fuel.Alloc(dev, fuel.U8, 1000, nil)
				var oom *fuel.OutOfMemoryError
				if !errors.As(err, &oom) || oom.Requested != 1000 || oom.InUse != 0 {
					t.Fatalf("%v", err)
				}
				if !errors.Is(err, backend.ErrNoMemory) || !strings.Contains(err.Error(), call) {
					t.Errorf("%v: it does not tell of the call", err)
				}
				refuse = false
				s := value(fuel.FromBytes(dev, fuel.U8, count(1000)))(t)
				if !bytes.Equal(contents(t, s), count(1000)) {
					t.Error("wrong bytes after a refusal")
				}
				ok(t, s.Close())
			})
		}
	}
}

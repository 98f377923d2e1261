package vulkan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/gpu"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
	"github.com/go-fuel/fuel/internal/rlimit"
)

func init() { children["oom"] = outOfMemory }

// room is the address space that the child has left.
const room = 400 << 20

// outOfMemory runs in a process of its own, under RLIMIT_AS: the heap has much
// more than the driver gives.
func outOfMemory() {
	dev := fuel.Device{Kind: fuel.Vulkan}
	d := testDriver(gpu.Config{Staged: os.Getenv("FUEL_TEST_WAY") == "staged"})
	backend.Replace(backend.Vulkan, d.backend())
	want := count(100_000)
	witness, err := fuel.FromBytes(dev, fuel.U8, want)
	check(err)
	same := func(what string) {
		got := make([]byte, len(want))
		n, err := witness.ReadAt(got, 0)
		assert(n == len(want) && bytes.Equal(got, want), "%s: the witness: %d bytes, %v", what, n, err)
	}
	same("at first")

	check(rlimit.Leave(unix.RLIMIT_AS, room))
	for round := range 3 {
		var list []*fuel.Storage
		total := int64(len(want))
		const size = 20 << 20
		for {
			s, err := fuel.AllocUninit(dev, fuel.U8, size, nil)
			if err != nil {
				var oom *fuel.OutOfMemoryError
				var call *callError
				assert(errors.As(err, &oom) && errors.Is(err, fuel.ErrOutOfMemory), "%v is no *OutOfMemoryError", err)
				assert(oom.Requested == size && oom.InUse == total && oom.Device == dev && oom.Limit == -1, "with %d in use: %+v", total, oom)
				assert(errors.As(err, &call) && call.call == "vkAllocateMemory" && call.result == outOfDeviceMemory, "it is not the driver's: %v", err)
				break
			}
			list = append(list, s)
			total += size
			assert(total < 1<<30, "%d bytes, under a limit of %d", total, room)
		}
		assert(len(list) >= 3, "only %d pieces", len(list))
		same("out of memory")
		_, err := list[0].WriteAt(want, 1)
		check(err)
		check(list[0].CopyRange(context.Background(), 500, list[0], 1, len(want), nil))
		for _, s := range list {
			check(s.Close())
		}
		s, err := fuel.Alloc(dev, fuel.U8, size, nil)
		check(err)
		check(s.Close())
		stats, err := fuel.MemStats(dev)
		check(err)
		assert(stats.InUse == int64(len(want)) && stats.Regions == 1, "round %d: %+v", round, stats)
	}
	same("at last")
	check(witness.Close())
	fmt.Println("ok")
}

func TestDriverOutOfMemoryIsAnErrorAndNothingIsLost(t *testing.T) {
	if race.Enabled {
		require.Skip(t, "norace", "the race detector's shadow memory does not fit under the limit")
	}
	use(t, testDriver(gpu.Config{}))
	for way := range ways {
		out, err := child(t, "oom", "FUEL_TEST_WAY="+way)
		rlimit.Applied(t, out)
		if err != nil || !strings.Contains(out, "ok") {
			t.Errorf("%s: %v\n%s", way, err, out)
		}
	}
}

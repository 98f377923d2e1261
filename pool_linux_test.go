package fuel_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
	"github.com/go-fuel/fuel/internal/rlimit"
)

// resident returns the process's resident anonymous memory.
func resident(t testing.TB) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		require.Skip(t, "smaps", err.Error())
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Anonymous:" {
			return value(strconv.ParseInt(f[1], 10, 64))(t) << 10
		}
	}
	require.Skip(t, "smaps", "smaps_rollup has no line Anonymous")
	return 0
}

// Report 66: zeroing 40 GB of fresh memory makes all of it resident.
func TestZeroedStorageIsNotResidentUntilTouched(t *testing.T) {
	if race.Enabled {
		require.Skip(t, "norace", "under -race memory is the Go heap's")
	}
	n := 256 << 20
	// QEMU's user mode keeps records of every page, touched or not.
	if strconv.IntSize == 64 && os.Getenv("FUEL_TEST_EXEC") == "" {
		n *= 160 // 40 GiB
	}
	before := resident(t)
	s := must(t)(fuel.Alloc(cpu, fuel.U8, n, nil))
	if grown := resident(t) - before; grown > 8<<20 {
		t.Errorf("%d bytes are resident of %d that nobody touched", grown, n)
	}
	for _, off := range []int{0, n / 2, n - 1} {
		var b [1]byte
		if _, err := s.ReadAt(b[:], int64(off)); err != nil || b[0] != 0 {
			t.Errorf("byte %d: %d, %v", off, b[0], err)
		}
		if _, err := s.WriteAt([]byte{1}, int64(off)); err != nil {
			t.Error(err)
		}
	}
	if grown := resident(t) - before; grown > 16<<20 {
		t.Errorf("%d bytes are resident of three that were touched", grown)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func init() { children["cached"] = outOfMemoryWithCache }

// outOfMemoryWithCache runs in a process of its own, under RLIMIT_AS: freed
// memory that is kept must not make an allocation of another size fail.
func outOfMemoryWithCache() {
	check(rlimit.Leave(unix.RLIMIT_AS, room))
	const big = 120 << 20
	for range 3 {
		for _, n := range []int{big, big / 4 * 3, big / 2} {
			s, err := fuel.Alloc(cpu, fuel.U8, n, nil)
			check(err)
			_, err = s.WriteAt([]byte{1}, 0)
			check(err)
			check(s.Close())
		}
		ss := []*fuel.Storage{}
		for range 500 { // small ones
			s, err := fuel.Alloc(cpu, fuel.U8, 200_000, nil)
			check(err)
			ss = append(ss, s)
		}
		for _, s := range ss {
			check(s.Close())
		}
	}
	fmt.Println("ok")
}

// Report 58, against the system.
func TestKeptMemoryDoesNotMakeAnAllocFail(t *testing.T) {
	if race.Enabled {
		require.Skip(t, "norace", "under -race memory is the Go heap's")
	}
	for _, checked := range []string{"0", "1"} { // where what is closed keeps its addresses
		out, err := child(t, "cached", "FUEL_CHECK="+checked)
		rlimit.Applied(t, out)
		if err != nil || !strings.Contains(out, "ok") {
			t.Fatalf("FUEL_CHECK=%s: %v\n%s", checked, err, out)
		}
	}
}

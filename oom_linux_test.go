package fuel_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
	"github.com/go-fuel/fuel/internal/rlimit"
)

func init() { children["oom"] = outOfMemory }

// room is the address space that the child has left, and most is what it asks
// for. A 32-bit host has less of both.
const (
	room = 192 << 20
	most = 256 << 20
)

func check(err error) {
	if err != nil {
		fmt.Println("FAIL:", err)
		os.Exit(1)
	}
}

func assert(ok bool, format string, args ...any) {
	if !ok {
		check(fmt.Errorf(format, args...))
	}
}

// outOfMemory runs in a process of its own, under RLIMIT_AS.
func outOfMemory() {
	check(rlimit.Leave(room))
	_, err := fuel.Alloc(cpu, fuel.F32, most/4, nil)
	refused(err, most)

	// Inside copy-on-write, with the original and its clone intact.
	const half = 120 << 20
	s, err := fuel.Alloc(cpu, fuel.U8, half, nil)
	check(err)
	_, err = s.WriteAt([]byte("bytes"), 7)
	check(err)
	c, err := s.Clone()
	check(err)
	id, version := s.ID(), s.Version()
	_, err = s.WriteAt([]byte("other"), 7)
	refused(err, half)
	_, err = s.MutableBytes()
	refused(err, half)
	refused(s.Mutate(func([]byte) error { panic("called") }), half)
	var got [5]byte
	for _, h := range []*fuel.Storage{s, c} {
		_, err := h.ReadAt(got[:], 7)
		check(err)
		assert(bytes.Equal(got[:], []byte("bytes")), "after a refused copy: %q", got)
	}
	assert(s.ID() == id && s.Version() == version, "a refused copy changed ID or Version")
	stats, err := fuel.MemStats(cpu)
	check(err)
	assert(stats.InUse == half && stats.Regions == 1, "%+v", stats)

	// The last owner needs no copy.
	check(c.Close())
	_, err = s.WriteAt([]byte("other"), 7)
	check(err)
	check(s.Close())
	s, err = fuel.Alloc(cpu, fuel.U8, half, nil) // and the memory is back
	check(err)
	check(s.Close())
	fmt.Println("ok")
}

func refused(err error, n int64) {
	var oom *fuel.OutOfMemoryError
	assert(errors.As(err, &oom) && errors.Is(err, fuel.ErrOutOfMemory), "%v is no *OutOfMemoryError", err)
	assert(oom.Requested == n && oom.Device == cpu && oom.Limit == -1 && oom.Free != 0 && oom.Err != nil, "%+v", oom)
}

// Report 57, and what aborts in the crate: a refused allocation is an error.
func TestOutOfMemoryIsAnErrorAndNothingIsLost(t *testing.T) {
	if race.Enabled {
		require.Skip(t, "norace", "under -race memory is the Go heap's, which cannot report that it is full")
	}
	out, err := child(t, "oom")
	rlimit.Applied(t, out)
	if err != nil || !strings.Contains(out, "ok") {
		t.Fatalf("%v\n%s", err, out)
	}
}

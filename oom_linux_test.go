package fuel_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
	"github.com/go-fuel/fuel/internal/rlimit"
)

func init() {
	children["oom"] = outOfMemory
	for name, resource := range rlimits {
		children[name] = func() { fitsInto(name, resource) }
	}
}

// rlimits are limits of a process that make the system refuse memory.
var rlimits = map[string]int{"RLIMIT_AS": unix.RLIMIT_AS, "RLIMIT_DATA": unix.RLIMIT_DATA}

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
	check(rlimit.Leave(unix.RLIMIT_AS, room))
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

// fitsInto runs in a process of its own, under the limit.
func fitsInto(name string, resource int) {
	check(rlimit.Leave(resource, room))
	f := fuel.WouldFit(cpu, most)
	assert(f.State == fuel.FitsNot && f.By == name && f.Available <= room && f.Available > room/2, "with %d bytes of %s left, %d: %+v", room, name, most, f)
	_, err := fuel.Alloc(cpu, fuel.U8, most, nil)
	refused(err, most)
	size := int(f.Available / 2)
	f = fuel.WouldFit(cpu, int64(size))
	assert(f.State == fuel.Fits, "%d bytes: %+v", size, f)
	s, err := fuel.Alloc(cpu, fuel.U8, size, nil)
	check(err)
	after := fuel.WouldFit(cpu, 0)
	assert(after.Available <= f.Available-int64(size), "after %d bytes: %+v, and before %+v", size, after, f)
	check(s.Close())

	// What is mapped already takes no more when it gets its pages.
	_, err = fuel.Trim(cpu, 0)
	check(err)
	file := memfd(&mainTest{}, room/5*3, unix.MFD_ALLOW_SEALING, unix.F_SEAL_SHRINK)
	s, err = fuel.OpenShared(file, fuel.U8, 0, room/5*3, nil)
	check(err)
	check(s.Close())
	fmt.Println("ok")
}

// The host has memory that the process may not have.
func TestWouldFitNeverForgetsALimitOfTheProcess(t *testing.T) {
	if race.Enabled {
		require.Skip(t, "norace", "under -race memory is the Go heap's, which cannot report that it is full")
	}
	for name := range rlimits {
		out, err := child(t, name)
		rlimit.Applied(t, out)
		if err != nil || !strings.Contains(out, "ok") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

package fuel_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
	"github.com/go-fuel/fuel/internal/rlimit"
)

func init() {
	children["map refused"], children["many maps"] = mapRefused, manyMaps
}

// sparse makes a file of n zeros.
func sparse(n int) *os.File {
	f, err := os.CreateTemp("", "fuel")
	check(err)
	check(os.Remove(f.Name()))
	check(f.Truncate(int64(n)))
	return f
}

// mapRefused runs in a process of its own, under RLIMIT_AS.
func mapRefused() {
	check(rlimit.Leave(unix.RLIMIT_AS, room))
	f := sparse(most)
	_, err := fuel.Map(f, fuel.U8, 0, most)
	refused(err, most)
	_, err = fuel.Map(f, fuel.F32, 4, most/4-1)
	refused(err, most-4)

	// What is kept of freed memory goes first.
	const half = 100 << 20 // one fits, two do not
	shared, err := fuel.NewShared(fuel.U8, half, nil)
	check(err)
	memfd, _, err := fuel.SharedFile(shared)
	check(err)
	check(shared.Close())
	for what, m := range map[string]func() (*fuel.Storage, error){
		"Map":        func() (*fuel.Storage, error) { return fuel.Map(f, fuel.U8, 0, half) },
		"NewShared":  func() (*fuel.Storage, error) { return fuel.NewShared(fuel.U8, half, nil) },
		"OpenShared": func() (*fuel.Storage, error) { return fuel.OpenShared(memfd, fuel.U8, 0, half, nil) },
	} {
		s, err := fuel.Alloc(cpu, fuel.U8, half, nil)
		check(err)
		_, err = s.WriteAt([]byte{1}, 0)
		check(err)
		check(s.Close())
		s, err = m()
		assert(err == nil, "%s: %v", what, err)
		check(s.Close())
	}
	stats, err := fuel.MemStats(cpu)
	check(err)
	assert(stats.InUse == 0 && stats.Regions == 0, "%+v", stats)
	fmt.Println("ok")
}

func TestARefusedMappingIsOutOfMemory(t *testing.T) {
	if race.Enabled {
		require.Skip(t, "norace", "under -race memory is the Go heap's, which cannot report that it is full")
	}
	out, err := child(t, "map refused")
	rlimit.Applied(t, out)
	if err != nil || !strings.Contains(out, "ok") {
		t.Fatalf("%v\n%s", err, out)
	}
}

// manyMaps runs in a process of its own, which gets as many mappings as the
// system allows. It closes those in the middle of one, which would make a hole.
func manyMaps() {
	spare := make([]byte, 32<<20) // Go ends the process where the system refuses
	runtime.KeepAlive(spare)
	runtime.GC()
	const n, part = 64, 64 << 10
	f := sparse(n * part)
	shared, err := fuel.NewShared(fuel.U8, n*part, nil)
	check(err)
	memfd, _, err := fuel.SharedFile(shared)
	check(err)
	var files, memfds [n]*fuel.Storage
	for i := n - 1; i >= 0; i-- { // the system places mappings from top to bottom
		files[i], err = fuel.Map(f, fuel.U8, int64(i*part), part)
		check(err)
	}
	for i := n - 1; i >= 0; i-- {
		memfds[i], err = fuel.OpenShared(memfd, fuel.U8, int64(i*part), part, nil)
		check(err)
	}
	// Those that lie between their neighbours, every other one.
	var between []*fuel.Storage
	for what, handles := range map[string][]*fuel.Storage{"files": files[:], "memfds": memfds[:]} {
		at := func(i int) uintptr {
			b, err := handles[i].Bytes()
			check(err)
			return uintptr(unsafe.Pointer(&b[0]))
		}
		few := len(between)
		for i := 1; i < n-1; i += 2 {
			if at(i)-at(i-1) == part && at(i+1)-at(i) == part {
				between = append(between, handles[i])
			}
		}
		if len(between) < few+8 {
			fmt.Println("no limit: few of the", what, "lie side by side")
			return
		}
	}
	b, err := os.ReadFile("/proc/sys/vm/max_map_count")
	check(err)
	most, err := strconv.Atoi(strings.TrimSpace(string(b)))
	check(err)
	pages, page := 2*most, os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, pages*page, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		fmt.Printf("no limit: %d mappings are more than the address space has room for: %v\n", most, err)
		return
	}
	for i := 0; err == nil && i < pages; i += 2 {
		err = unix.Mprotect(mem[i*page:(i+1)*page], unix.PROT_READ)
	}
	full := err
	for _, s := range between {
		if full == unix.ENOMEM {
			check(s.Close())
		}
	}
	unmapped := unix.Munmap(mem) // Go needs some for what follows
	check(unmapped)
	if full == nil {
		fmt.Println("no limit")
		return
	}
	assert(full == unix.ENOMEM, "%v", full)
	for _, s := range append(files[:], memfds[:]...) {
		if !slices.Contains(between, s) {
			check(s.Close())
		}
	}
	check(shared.Close())
	stats, err := fuel.MemStats(cpu)
	check(err)
	assert(stats.InUse == 0 && stats.Regions == 0, "%+v", stats)
	fmt.Println("ok")
}

// Linux bounds the mappings of a process (vm.max_map_count, 65,530 mostly), and
// counts neighbours of one file as one.
func TestCloseOfAMappingBetweenOthersNeverPanics(t *testing.T) {
	if race.Enabled {
		require.Skip(t, "norace", "the race detector ends a process that gets no mapping")
	}
	out, err := child(t, "many maps")
	if err == nil && strings.HasPrefix(out, "no limit") {
		require.Skip(t, "maps", "the system counts no mappings, or another way: "+out)
	}
	if err != nil || !strings.Contains(out, "ok") {
		t.Fatalf("%v\n%s", err, out)
	}
}

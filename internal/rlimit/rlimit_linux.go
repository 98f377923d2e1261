package rlimit

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// over is how much more than it may a process asks for, to see the limit.
const over = 64 << 20

// Leave leaves the process room bytes beyond what it has now: of addresses with
// RLIMIT_AS, of private memory that can be written with RLIMIT_DATA. Go's own
// heap gets what it may need before: it ends the process where the system
// refuses. Where the system takes the limit and does not apply it the process
// ends, and Applied skips the test.
func Leave(resource, room int) error {
	spare := make([]byte, 32<<20)
	runtime.KeepAlive(spare)
	runtime.GC()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	field := 0
	if resource == unix.RLIMIT_DATA {
		field = 5
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[field])
	if err != nil {
		return err
	}
	n := uint64(pages)*uint64(os.Getpagesize()) + uint64(room)
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n}); err != nil {
		return err
	}
	more, err := unix.Mmap(-1, 0, room+over, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	if err := unix.Munmap(more); err != nil {
		return err
	}
	fmt.Println(unapplied)
	os.Exit(0)
	return nil
}

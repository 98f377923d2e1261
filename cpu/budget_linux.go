package cpu

import (
	"os"

	"golang.org/x/sys/unix"
)

// HostBudget tells what the machine, every control group of the process, with
// its ancestors, version 1 and 2, and the limits of the process itself
// (RLIMIT_AS, RLIMIT_DATA) allow. It reads a handful of files.
func HostBudget() Budget {
	fsys := os.DirFS("/")
	b := ReadBudget(fsys)
	space, _ := rlimit(unix.RLIMIT_AS)
	data, hard := rlimit(unix.RLIMIT_DATA)
	if data == 0 {
		data = hard // so does the kernel, for Valgrind
	}
	b.rlimits(fsys, int64(pageSize), space, data)
	return b
}

func rlimit(resource int) (soft, hard uint64) {
	var l unix.Rlimit
	if unix.Getrlimit(resource, &l) != nil { // forbidden, as by a seccomp filter
		return noLimit, noLimit
	}
	return l.Cur, l.Max
}

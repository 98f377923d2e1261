package cpu

import (
	"bytes"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// A Budget is what host memory allows the process. A figure of -1 is unknown.
type Budget struct {
	Total int64 // bytes that the process can ever have
	Free  int64 // bytes that it could get now, as the system estimates it

	// By is what Free comes from: "host", "cgroup" and the directory whose limit
	// it is, "RLIMIT_AS" or "RLIMIT_DATA". Empty where Free is unknown.
	By string
}

// least lowers the budget to what a limit allows.
func (b *Budget) least(total, free int64, by string) {
	if total >= 0 && (b.Total < 0 || total < b.Total) {
		b.Total = total
	}
	if free >= 0 && (b.Free < 0 || free < b.Free) {
		b.Free, b.By = free, by
	}
}

// cgroups lowers the budget to what the process's control groups of memory and
// all their ancestors allow, as far as they can be seen under fsys, the root
// of the file system. See cgroups(7), Documentation/admin-guide/cgroup-v2.rst
// and cgroup-v1/memory.rst of the kernel.
//
// A host with 450 GB free and a limit of 102 GB has 102 GB (tabicl#145).
func (b *Budget) cgroups(fsys fs.FS) {
	mine, err := fs.ReadFile(fsys, "proc/self/cgroup")
	if err != nil {
		return
	}
	mounts, err := fs.ReadFile(fsys, "proc/self/mountinfo")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(mine)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) < 3 {
			continue
		}
		v2 := f[0] == "0" && f[1] == ""
		if !v2 && !has(f[1], "memory") {
			continue
		}
		for line := range strings.Lines(string(mounts)) {
			m, ok := parseMount(line, v2)
			if !ok {
				continue
			}
			for dir := m.dir(f[2]); ; dir = path.Dir(dir) {
				total, free := groupLimit(fsys, strings.TrimPrefix(dir, "/"), v2)
				b.least(total, free, "cgroup "+dir)
				if dir == m.point || len(dir) <= 1 {
					break
				}
			}
		}
	}
}

// has reports whether a list with commas has an item.
func has(list, item string) bool {
	for s := range strings.SplitSeq(list, ",") {
		if s == item {
			return true
		}
	}
	return false
}

// A mount is where a hierarchy of control groups can be seen.
type mount struct {
	root  string // the group that is at point
	point string
}

// parseMount reads a line of /proc/self/mountinfo (proc_pid_mountinfo(5)). ok
// is false where it is no hierarchy that limits memory.
func parseMount(line string, v2 bool) (m mount, ok bool) {
	head, tail, found := strings.Cut(line, " - ")
	h, t := strings.Fields(head), strings.Fields(tail)
	if !found || len(h) < 6 || len(t) < 3 {
		return mount{}, false
	}
	m = mount{root: path.Clean(unescape(h[3])), point: path.Clean(unescape(h[4]))}
	if v2 {
		return m, t[0] == "cgroup2"
	}
	return m, t[0] == "cgroup" && has(t[2], "memory")
}

// unescape undoes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// dir returns the directory of a group. A path that is outside of what is
// mounted, as in a container that sees only its own group, is at the mount.
func (m mount) dir(group string) string {
	group = path.Clean("/" + group)
	if m.root == "/" {
		return path.Join(m.point, group)
	}
	if rest, ok := strings.CutPrefix(group, m.root); ok && (rest == "" || rest[0] == '/') {
		return path.Join(m.point, rest)
	}
	return m.point
}

// groupLimit reads the limit of one group and how far it is from it, -1 where
// there is none. Pages of files that were not used lately count as free: the
// kernel drops them first.
func groupLimit(fsys fs.FS, dir string, v2 bool) (limit, free int64) {
	names := [...]string{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
	if v2 {
		names = [...]string{"memory.max", "memory.current", "inactive_file"}
	}
	limit = number(fsys, path.Join(dir, names[0]))
	if v2 { // above this one the kernel slows the process down to nearly nothing
		if high := number(fsys, path.Join(dir, "memory.high")); high >= 0 && (limit < 0 || high < limit) {
			limit = high
		}
	}
	stat, _ := fs.ReadFile(fsys, path.Join(dir, "memory.stat")) // without it usage is all
	if !v2 {
		// Ancestors that cannot be seen.
		if above := statNumber(stat, "hierarchical_memory_limit"); above >= 0 && (limit < 0 || above < limit) {
			limit = above
		}
	}
	if limit < 0 || limit >= unlimited {
		return -1, -1
	}
	used := number(fsys, path.Join(dir, names[1]))
	if used < 0 {
		return limit, -1
	}
	used -= max(0, statNumber(stat, names[2]))
	return limit, max(0, limit-max(0, used))
}

// unlimited is what version 1 has for "no limit", for every size of page:
// 2^63-1 rounded down to a page.
const unlimited = 1<<63 - 1<<20

// number reads a file with one number, -1 where there is none or it is "max".
func number(fsys fs.FS, name string) int64 {
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return -1
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil {
		return -1
	}
	return int64(min(n, 1<<63-1))
}

func statNumber(stat []byte, name string) int64 {
	for line := range bytes.Lines(stat) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == name {
			if n, err := strconv.ParseUint(string(f[1]), 10, 64); err == nil {
				return int64(min(n, 1<<63-1))
			}
		}
	}
	return -1
}

// meminfo reads /proc/meminfo.
func (b *Budget) meminfo(fsys fs.FS) {
	info, err := fs.ReadFile(fsys, "proc/meminfo")
	if err != nil {
		return
	}
	kib := func(name string) int64 {
		for line := range bytes.Lines(info) {
			f := bytes.Fields(line)
			if len(f) < 2 || string(f[0]) != name {
				continue
			}
			if n, err := strconv.ParseInt(string(f[1]), 10, 53); err == nil {
				return n << 10
			}
		}
		return -1
	}
	b.least(kib("MemTotal:"), kib("MemAvailable:"), "host")
}

// noLimit is RLIM_INFINITY.
const noLimit = 1<<64 - 1

// rlimits lowers the budget to what limits of the process leave, in bytes: space
// is for all its mappings (RLIMIT_AS), data for the private ones that can be
// written, as those of Reserve are (RLIMIT_DATA, since Linux 4.7). page is what
// /proc counts in. See getrlimit(2) and proc_pid_statm(5), whose data includes
// the stack: a little more than what counts.
func (b *Budget) rlimits(fsys fs.FS, page int64, space, data uint64) {
	if space == noLimit && data == noLimit {
		return
	}
	statm, _ := fs.ReadFile(fsys, "proc/self/statm")
	used := bytes.Fields(statm)
	for _, l := range []struct {
		by    string
		limit uint64
		field int
	}{{"RLIMIT_AS", space, 0}, {"RLIMIT_DATA", data, 5}} {
		if l.limit > 1<<63-1 {
			continue
		}
		limit, free := int64(l.limit), int64(-1)
		if l.field < len(used) {
			if pages, err := strconv.ParseInt(string(used[l.field]), 10, 40); err == nil {
				free = max(0, limit-pages*page)
			}
		}
		b.least(limit, free, l.by)
	}
}

// ReadBudget reads from /proc and the control groups under fsys, the root of a
// Linux file system, what HostBudget tells, but for the limits of the process
// itself.
func ReadBudget(fsys fs.FS) Budget {
	b := Budget{Total: -1, Free: -1}
	b.meminfo(fsys)
	b.cgroups(fsys)
	return b
}

package cpu

import (
	"fmt"
	"testing"
	"testing/fstest"
)

// tree makes a file system of names and contents.
func tree(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 450800000 kB\nMemFree: 1 kB\nMemAvailable: 440000000 kB\n")}}
	for name, s := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(s)}
	}
	return fsys
}

const gib = 1 << 30

// Report 60: 450 GB of the host for 102 GB of the container.
func TestBudgetIsNotTheHostsInsideACgroup(t *testing.T) {
	v2 := "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
	v1 := "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
	num := func(n int64) string { return fmt.Sprintln(n) }
	for _, c := range []struct {
		name        string
		files       map[string]string
		total, free int64
		by          string
	}{
		{"no groups", nil, 450800000 << 10, 440000000 << 10, "host"},
		{"v2, the group itself", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/b/memory.max": num(100 * gib), "sys/fs/cgroup/a/b/memory.current": num(30 * gib),
			"sys/fs/cgroup/a/b/memory.stat": "anon 5\ninactive_file 10737418240\n",
			"sys/fs/cgroup/a/memory.max":    "max\n",
		}, 100 * gib, 80 * gib, "cgroup /sys/fs/cgroup/a/b"},
		{"v2, a grandparent", map[string]string{
			"proc/self/cgroup": "0::/a/b/c\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/b/c/memory.max": num(90 * gib), "sys/fs/cgroup/a/b/c/memory.current": num(10 * gib),
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": num(95 * gib),
			"sys/fs/cgroup/a/memory.max": num(100 * gib), "sys/fs/cgroup/a/memory.current": num(95 * gib),
		}, 90 * gib, 5 * gib, "cgroup /sys/fs/cgroup/a"},
		{"v2, memory.high", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/memory.max": num(90 * gib), "sys/fs/cgroup/a/memory.high": num(20 * gib), "sys/fs/cgroup/a/memory.current": num(15 * gib),
		}, 20 * gib, 5 * gib, "cgroup /sys/fs/cgroup/a"},
		{"v2, over the limit", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/memory.max": num(9 * gib), "sys/fs/cgroup/a/memory.current": num(15 * gib),
		}, 9 * gib, 0, "cgroup /sys/fs/cgroup/a"},
		{"v2, a namespace of its own", map[string]string{
			"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/memory.max": num(9 * gib), "sys/fs/cgroup/memory.current": num(4 * gib),
		}, 9 * gib, 5 * gib, "cgroup /sys/fs/cgroup"},
		{"v2, above its namespace", map[string]string{
			"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/memory.max": num(9 * gib), "sys/fs/cgroup/memory.current": num(4 * gib),
		}, 9 * gib, 5 * gib, "cgroup /sys/fs/cgroup"},
		{"v2, no usage", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/memory.max": num(9 * gib),
		}, 9 * gib, 440000000 << 10, "host"},
		{"v1, the group itself", map[string]string{
			"proc/self/cgroup": "5:cpu:/x\n4:memory:/a/b\n0::/\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": num(100 * gib), "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": num(50 * gib),
			"sys/fs/cgroup/memory/a/b/memory.stat":         "inactive_file 1\ntotal_inactive_file 21474836480\nhierarchical_memory_limit 107374182400\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1\n",
		}, 100 * gib, 70 * gib, "cgroup /sys/fs/cgroup/memory/a/b"},
		{"v1, a parent", map[string]string{
			"proc/self/cgroup": "4:hugetlb,memory:/a/b\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes":   num(8 * gib), "sys/fs/cgroup/memory/a/memory.usage_in_bytes": num(2 * gib),
		}, 8 * gib, 6 * gib, "cgroup /sys/fs/cgroup/memory/a"},
		{"v1, an ancestor out of sight", map[string]string{
			"proc/self/cgroup":                           "4:memory:/docker/abc\n",
			"proc/self/mountinfo":                        "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": num(1 * gib),
			"sys/fs/cgroup/memory/memory.stat": "hierarchical_memory_limit 4294967296\n",
		}, 4 * gib, 3 * gib, "cgroup /sys/fs/cgroup/memory"},
		{"v1, no limit anywhere", map[string]string{
			"proc/self/cgroup": "4:memory:/a\n", "proc/self/mountinfo": v1,
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/a/memory.usage_in_bytes": "1\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854710272\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
		}, 450800000 << 10, 440000000 << 10, "host"},
		{"a mount with a space", map[string]string{
			"proc/self/cgroup": "0::/a\n", "proc/self/mountinfo": "31 23 0:28 / /my\\040groups rw - cgroup2 none rw\n",
			"my groups/a/memory.max": num(gib), "my groups/a/memory.current": "0\n",
		}, gib, gib, "cgroup /my groups/a"},
		{"garbage", map[string]string{
			"proc/self/cgroup": "\n0::\n:::\nx\n4:memory\n0::/a\n", "proc/self/mountinfo": "\n - \n1 2 3\n31 23 0:28 / / rw - cgroup2\n" + v2,
			"sys/fs/cgroup/a/memory.max": "-5\n", "sys/fs/cgroup/memory.max": "many\n", "sys/fs/cgroup/memory.stat": "a b c\ninactive_file\n",
		}, 450800000 << 10, 440000000 << 10, "host"},
	} {
		if b := ReadBudget(tree(c.files)); b.Total != c.total || b.Free != c.free || b.By != c.by {
			t.Errorf("%s: %+v, want total %d, free %d, by %s", c.name, b, c.total, c.free, c.by)
		}
	}
	if b := ReadBudget(fstest.MapFS{}); b.Total != -1 || b.Free != -1 || b.By != "" {
		t.Errorf("nothing to read: %+v", b)
	}
	t.Logf("here: %+v", HostBudget())
}

// The limits of a process count when it has any, and only what each is for.
func TestBudgetIsNotTheHostsUnderALimitOfTheProcess(t *testing.T) {
	const page = 16 << 10
	statm := map[string]string{"proc/self/statm": fmt.Sprintln(3*gib/page, 9, 9, 9, 0, gib/page, 0)}
	for _, c := range []struct {
		name        string
		files       map[string]string
		space, data uint64
		total, free int64
		by          string
	}{
		{"none", statm, noLimit, noLimit, 450800000 << 10, 440000000 << 10, "host"},
		{"addresses", statm, 10 * gib, noLimit, 10 * gib, 7 * gib, "RLIMIT_AS"},
		{"data", statm, noLimit, 10 * gib, 10 * gib, 9 * gib, "RLIMIT_DATA"},
		{"both", statm, 8 * gib, 5 * gib, 5 * gib, 4 * gib, "RLIMIT_DATA"},
		{"above the host", statm, 1 << 62, 1<<63 - 1, 450800000 << 10, 440000000 << 10, "host"},
		{"beyond a number", statm, 1 << 63, noLimit - 1, 450800000 << 10, 440000000 << 10, "host"},
		{"set below what there is", statm, 2 * gib, noLimit, 2 * gib, 0, "RLIMIT_AS"},
		{"nothing", statm, noLimit, 0, 0, 0, "RLIMIT_DATA"},
		{"what there is is unknown", nil, 10 * gib, noLimit, 10 * gib, 440000000 << 10, "host"},
		{"garbage", map[string]string{"proc/self/statm": "many 1\n"}, 10 * gib, 9 * gib, 9 * gib, 440000000 << 10, "host"},
	} {
		b := ReadBudget(tree(c.files))
		if b.rlimits(tree(c.files), page, c.space, c.data); b.Total != c.total || b.Free != c.free || b.By != c.by {
			t.Errorf("%s: %+v, want total %d, free %d, by %s", c.name, b, c.total, c.free, c.by)
		}
	}
}

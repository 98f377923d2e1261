package safetensors

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-fuel/fuel"
)

// mappings returns how many mappings of the file there are, and how many bytes
// of them are resident.
func mappings(t *testing.T, path string) (n int, resident int64) {
	t.Helper()
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inside := false
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if first, _, _ := strings.Cut(line, " "); !strings.HasSuffix(first, ":") { // an address range
			inside = strings.HasSuffix(line, path)
			if inside {
				n++
			}
		}
		if rss, ok := strings.CutPrefix(line, "Rss:"); ok && inside {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rss, "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			resident += kib << 10
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return n, resident
}

func TestManyTensorsDoNotTakeManyMappings(t *testing.T) { // safetensors#758, #759; candle#2079
	noLeaks(t)
	const n, size = 50, 8192
	entries := make([]string, n)
	for i := range entries {
		entries[i] = entryOf(fmt.Sprint(i), "U8", fmt.Sprint(size), size*i, size*(i+1))
	}
	path := save(t, zeros(headerOf(entries...), n*size))
	f, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	before, err := fuel.MemStats(fuel.Device{})
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := f.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	if after, _ := fuel.MemStats(fuel.Device{}); after.Regions != before.Regions || after.InUse != before.InUse {
		t.Errorf("tensors took memory: %+v, then %+v", before, after)
	}
	if m, _ := mappings(t, path); m != 1 {
		t.Errorf("%d mappings", m)
	}
	if got := tensors[0].Data.Region(); got.Owners != n+1 || got.Memory != fuel.MemoryMapped || !got.ReadOnly {
		t.Errorf("region %+v", got)
	}
	closeAll(t, f)
	for i, x := range tensors {
		if m, _ := mappings(t, path); m != 1 {
			t.Fatalf("%d mappings with %d tensors open", m, n-i)
		}
		closeAll(t, x.Data)
	}
	if m, _ := mappings(t, path); m != 0 {
		t.Errorf("%d mappings after the last Close", m)
	}
	// The File alone keeps it too.
	if f, err = Open(path, nil); err != nil {
		t.Fatal(err)
	}
	closeAll(t, tensor(t, f, "7"))
	if m, _ := mappings(t, path); m != 1 {
		t.Errorf("%d mappings with the File open", m)
	}
	closeAll(t, f)
	if m, _ := mappings(t, path); m != 0 {
		t.Errorf("%d mappings after the File's Close", m)
	}
}

// A File whose tensors were all copied, or that could not be opened, keeps no
// mapping longer than it needs to.
func TestFailedOpenDoesNotStayMapped(t *testing.T) {
	noLeaks(t)
	header := headerOf(entryOf("a", "F32", "2", 0, 8))
	for (len(header)+8)%4 != 1 {
		header += " "
	}
	path := save(t, zeros(header, 8))
	if _, err := Open(path, &Options{RequireZeroCopy: true}); err == nil {
		t.Fatal("taken")
	}
	if m, _ := mappings(t, path); m != 0 {
		t.Errorf("%d mappings", m)
	}
	f, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := tensor(t, f, "a")
	closeAll(t, f)
	if m, _ := mappings(t, path); m != 0 {
		t.Errorf("%d mappings, and the tensor is elsewhere", m)
	}
	closeAll(t, s)
}

func TestOpenDoesNotTouchTheData(t *testing.T) {
	noLeaks(t)
	const size = 64 << 20
	header := headerOf(entryOf("a", "U8", fmt.Sprint(size), 0, size))
	path := save(t, fileOf(header, nil))
	if err := os.Truncate(path, int64(8+len(header)+size)); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := tensor(t, f, "a")
	if m, resident := mappings(t, path); m != 1 || resident > 1<<20 {
		t.Errorf("%d mappings, %d bytes resident", m, resident)
	}
	closeAll(t, s, f)
}

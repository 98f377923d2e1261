package cpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-fuel/fuel/internal/race"
	"github.com/go-fuel/fuel/internal/require"
)

// newPool has no clock, so that nothing happens behind the test's back.
func newPool(t testing.TB, cached int64) *Pool {
	t.Helper()
	p := NewPool(&PoolOptions{MaxCached: cached, IdleTrim: -1})
	t.Cleanup(func() { p.Trim(0) })
	return p
}

func get(t testing.TB, p *Pool, n int, zero bool) Block {
	t.Helper()
	b, err := p.Get(n, zero)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// wantEmpty fails the test unless everything was put back.
func wantEmpty(t testing.TB, p *Pool) {
	t.Helper()
	s := p.Stats()
	if s.InUse != 0 || s.Blocks != 0 || s.Padding != 0 || p.inUse.Load() != 0 {
		t.Errorf("%+v, in use %d", s, p.inUse.Load())
	}
	p.Trim(0)
	s = p.Stats()
	if s.Cached != 0 || s.LargestCached != 0 || s.Mapped != 0 || p.cached.Load() != 0 {
		t.Errorf("after Trim(0): %+v, cached %d", s, p.cached.Load())
	}
}

func needsReserve(t testing.TB) {
	t.Helper()
	if !HaveReserve {
		require.Skip(t, "mmap", "the pool is the Go heap on "+runtime.GOOS)
	}
}

// A block has at most an eighth more than what was asked for, or less than a
// cache line.
func TestNoSizeClassWastesOverAnEighth(t *testing.T) {
	check := func(n int) {
		c := classOf(n)
		size := classSize(c)
		if slack := size - n; slack < 0 || slack >= Align && slack*8 > n || size%Align != 0 {
			t.Fatalf("%d bytes get %d", n, size)
		}
		if c > 0 && classSize(c-1) >= n {
			t.Fatalf("%d bytes get class %d, and the one before has room", n, c)
		}
	}
	for n := 1; n <= smallMax+100; n++ {
		check(n)
	}
	for range 100_000 {
		check(1 + int(rand.Int64N(maxBlock/4)))
	}
	if c := classOf(smallMax); c != numClasses-1 || classSize(c) != smallMax {
		t.Errorf("the largest class of slabs is %d of %d bytes", c, classSize(c))
	}
}

// Report 10: Go's memory begins anywhere.
func TestNoBlockIsMisaligned(t *testing.T) {
	p := newPool(t, 0)
	var bs []Block
	for n := 1; n < 3<<20; n += 1 + n/7 {
		for range 3 {
			b := get(t, p, n, true)
			if address(b.Bytes)%Align != 0 || len(b.Bytes) != n || cap(b.Bytes) != n {
				t.Errorf("%d bytes at %#x, capacity %d", n, address(b.Bytes), cap(b.Bytes))
			}
			bs = append(bs, b)
		}
	}
	for _, b := range bs {
		p.Put(b)
	}
	wantEmpty(t, p)
}

// operations is what FUEL_POOL_OPS says, as CI does where the processor is real.
func operations(t *testing.T) int {
	n := 300_000
	if race.Enabled {
		n = 100_000
	}
	if s := os.Getenv("FUEL_POOL_OPS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// stamp marks a block from end to end without touching every byte of it.
func stamp(b []byte, v uint64) {
	for i := 0; i+8 <= len(b); i += max(8, len(b)/16) &^ 7 {
		binary.LittleEndian.PutUint64(b[i:], v)
	}
	b[len(b)-1] = byte(v)
}

func stamped(b []byte, v uint64) bool {
	for i := 0; i+8 <= len(b)-1; i += max(8, len(b)/16) &^ 7 {
		if i+8 < len(b) && binary.LittleEndian.Uint64(b[i:]) != v {
			return false
		}
	}
	return b[len(b)-1] == byte(v)
}

func allZero(b []byte) bool {
	for i := 0; i < len(b); i += max(1, len(b)/64) {
		if b[i] != 0 {
			return false
		}
	}
	return b[len(b)-1] == 0
}

// Eight goroutines take and give blocks, also each other's, while another
// trims; every block is stamped, and the stamp is there when it goes back.
func TestNoBlockIsHandedOutTwice(t *testing.T) {
	p := NewPool(&PoolOptions{MaxCached: 8 << 20, IdleTrim: time.Millisecond})
	const workers = 8
	ops := operations(t) / workers
	type held struct {
		b Block
		v uint64
	}
	passed := make(chan held, 64) // from one goroutine to another
	var serial atomic.Uint64
	var failed atomic.Bool
	free := func(h held) {
		if !stamped(h.b.Bytes, h.v) && !failed.Swap(true) {
			t.Errorf("%s: the stamp is gone", describe(h.b))
		}
		p.Put(h.b)
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			var mine []held
			for i := 0; i < ops && !failed.Load(); i++ {
				if len(mine) > 0 && (len(mine) >= 64 || r.IntN(2) == 0) {
					k := r.IntN(len(mine))
					h := mine[k]
					mine[k] = mine[len(mine)-1]
					mine = mine[:len(mine)-1]
					select {
					case passed <- h:
					case other := <-passed:
						free(other)
						free(h)
					default:
						free(h)
					}
					continue
				}
				n := 1 + r.IntN(1<<(4+r.IntN(13))) // to 64 KiB, small ones mostly
				if r.IntN(1000) == 0 {
					n = 1 + r.IntN(3<<20)
				}
				zero := r.IntN(2) == 0
				b, err := p.Get(n, zero)
				if err != nil {
					t.Error(err)
					return
				}
				if zero && !allZero(b.Bytes) && !failed.Swap(true) {
					t.Errorf("%s is not zero", describe(b))
				}
				h := held{b, serial.Add(1)<<8 | uint64(w)}
				stamp(b.Bytes, h.v)
				mine = append(mine, h)
				if i%4096 == 0 {
					p.Trim(int64(r.IntN(4 << 20)))
					p.Stats()
				}
			}
			for _, h := range mine {
				free(h)
			}
		})
	}
	wg.Wait()
	close(passed)
	for h := range passed {
		free(h)
	}
	p.SetIdleTrim(-1)
	t.Logf("%d operations, %+v", ops*workers, p.Stats())
	wantEmpty(t, p)
}

// needsLinux skips where /proc is not there, or is another system's, as under
// Wine.
func needsLinux(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" {
		require.Skip(t, "linux", "no /proc on "+runtime.GOOS)
	}
}

// emulated reports that QEMU's user mode runs the test. It keeps records of
// every page that is mapped, touched or not, so that hundreds of GiB of
// addresses take tens of GiB of memory.
func emulated() bool { return os.Getenv("FUEL_TEST_EXEC") != "" }

// resident returns the process's resident anonymous memory, from
// /proc/self/smaps_rollup.
func resident(t testing.TB) int64 {
	t.Helper()
	needsLinux(t)
	debug.FreeOSMemory() // the Go heap's
	b, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		require.Skip(t, "smaps", err.Error())
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Anonymous:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	require.Skip(t, "smaps", "smaps_rollup has no line Anonymous")
	return 0
}

// Reports 54 and 55: memory is never given back.
func TestTrimLeavesNoMemoryResident(t *testing.T) {
	p := newPool(t, 1<<30)
	runtime.GC()
	before := resident(t)
	for _, keep := range []bool{false, true} {
		var bs, kept []Block
		for _, n := range []int{100, 4096, 64 << 10, 300_000, 1 << 20, 5 << 20, 40 << 20} {
			for range min(max(2, (16<<20)/n), 20_000) {
				b := get(t, p, n, false)
				for i := range b.Bytes {
					b.Bytes[i] = 1
				}
				bs = append(bs, b)
			}
			if keep && n >= 64<<10 { // and lies between free blocks
				kept = append(kept, bs[len(bs)-2])
				bs = append(bs[:len(bs)-2], bs[len(bs)-1])
			}
		}
		var live int64
		for _, b := range kept {
			live += int64(len(b.Bytes))
		}
		if grown := resident(t) - before; grown < 100<<20 {
			t.Fatalf("over 100 MiB were written, and %d are resident", grown)
		}
		for _, b := range bs {
			p.Put(b)
		}
		cached := p.Stats().Cached
		if grown := resident(t) - before; grown < cached-16<<20 {
			t.Errorf("%d bytes are cached and %d resident", cached, grown)
		}
		freed := p.Trim(0)
		if freed != cached {
			t.Errorf("Trim freed %d of %d bytes", freed, cached)
		}
		// Live blocks, pieces of pages, and the Go heap's own memory.
		if grown := resident(t) - before - live; grown > 12<<20 {
			t.Errorf("keeping %d bytes: %d bytes are resident after Trim(0)", live, grown)
		}
		for _, b := range kept {
			p.Put(b)
		}
		p.Trim(0)
	}
	wantEmpty(t, p)
}

func TestTrimKeepsWhatWasUsedLast(t *testing.T) {
	needsReserve(t)
	p := newPool(t, 1<<30)
	var bs []Block
	for i := range 4 {
		bs = append(bs, get(t, p, 2<<20+i<<20, true)) // 2, 3, 4, 5 MiB
	}
	for _, i := range []int{2, 0, 3, 1} {
		p.Put(bs[i])
	}
	if freed := p.Trim(8 << 20); freed != 6<<20 { // 4 and 2 go
		t.Errorf("freed %d", freed)
	}
	if s := p.Stats(); s.Cached != 8<<20 || s.LargestCached != 5<<20 {
		t.Errorf("%+v", s)
	}
	if freed := p.Trim(8 << 20); freed != 0 {
		t.Errorf("a second Trim freed %d", freed)
	}
	wantEmpty(t, p)
}

// Report 54: a cache that grew to 76 GiB.
func TestCacheNeverGrowsBeyondItsCap(t *testing.T) {
	const most = 4 << 20
	p := newPool(t, most)
	for _, n := range []int{64, 4096, 100_000, 1 << 20, 3 << 20, 5 << 20} {
		var bs []Block
		for range max(1, (16<<20)/n) {
			bs = append(bs, get(t, p, n, false))
		}
		for _, b := range bs {
			p.Put(b)
			over := int64(0)
			if !canDrop { // what lies between live blocks stays
				over = int64(slabSize(n))
			}
			if c := p.Cached(); c > most+over {
				t.Fatalf("%d bytes cached of blocks of %d", c, n)
			}
		}
	}
	if s := p.Stats(); s.Cached > most+1<<20 { // what is not announced
		t.Errorf("%+v", s)
	}
	p.SetMaxCached(-1)
	if s := p.Stats(); s.Cached > numClasses*int64(len(p.shards))*announce {
		t.Errorf("without a cache: %+v", s)
	}
	wantEmpty(t, p)
}

// A cap that goes back to the default trims as any other.
func TestDefaultCapKeepsNothingBeyondItself(t *testing.T) {
	needsReserve(t)
	most := newPool(t, 0).cap()
	p := newPool(t, 1<<62)
	var bs []Block
	for range 2 {
		b, err := p.Get(int(most/2+1<<20), false)
		if err != nil {
			require.Skip(t, "64-bit", err.Error())
		}
		bs = append(bs, b)
	}
	for _, b := range bs {
		p.Put(b)
	}
	if s := p.Stats(); s.Cached <= most {
		t.Fatalf("%+v, and the default is %d", s, most)
	}
	p.SetMaxCached(0)
	if s := p.Stats(); s.Cached > most || p.cap() != most {
		t.Errorf("%+v, and the default is %d, %d", s, most, p.cap())
	}
	wantEmpty(t, p)
}

// refuser makes a Pool hear that the system has no memory for pages that were
// given back.
type refuser struct {
	next atomic.Int64 // so many times
	told atomic.Int64
}

func (r *refuser) restore(b []byte) error {
	if r.next.Add(-1) >= 0 {
		r.told.Add(1)
		return ErrNoMemory
	}
	return restorePages(b)
}

// Where pages that were given back cannot be had again, the block is not handed
// out, and not lost.
func TestRefusedPagesAreNeverHandedOut(t *testing.T) {
	if !canDrop {
		require.Skip(t, "linux", "no pages are given back on "+runtime.GOOS)
	}
	const n = 128 << 10 // whole pages of any size
	p, r := newPool(t, 1<<30), &refuser{}
	p.restore = r.restore
	p.shards = p.shards[:1]
	p.hint.New = func() any { return &p.shards[0] }
	refused := func(what string) {
		t.Helper()
		before := p.Stats()
		r.next.Store(100)
		r.told.Store(0)
		b, err := p.Get(n, true)
		r.next.Store(0)
		if !errors.Is(err, ErrNoMemory) || r.told.Load() != 2 {
			t.Fatalf("%s: %s, %v, asked %d times", what, describe(b), err, r.told.Load())
		}
		after := p.Stats()
		before.Cached, before.LargestCached, before.Mapped, after.Mapped = 0, 0, 0, 0
		if after != before {
			t.Errorf("%s: %+v, want %+v", what, after, before)
		}
	}
	refused("of a new slab")
	a, b := get(t, p, n, true), get(t, p, n, false)
	Fill(b.Bytes, []byte{0xA5})
	at := address(b.Bytes)
	p.Put(b)
	p.Trim(0)
	refused("after Trim")
	for range 2 { // what is cached goes, and the second time there is room
		p.Put(get(t, p, 5<<20, true))
		r.next.Store(1)
		b = get(t, p, n, true)
		if address(b.Bytes) != at || len(bytes.Trim(b.Bytes, "\x00")) != 0 {
			t.Errorf("at %#x, and %#x was free and zero", address(b.Bytes), at)
		}
		if s := p.Stats(); s.Cached != 0 {
			t.Errorf("refused, and not trimmed: %+v", s)
		}
		Fill(b.Bytes, []byte{0xA5})
		p.Put(b)
		p.Trim(0)
	}
	p.Put(a)
	wantEmpty(t, p)

	// A mapping that lost its pages only.
	b = get(t, p, 5<<20, false)
	Fill(b.Bytes, []byte{0xA5})
	at = address(b.Bytes)
	p.Put(b)
	sp := p.large.take(p.largeSize(5<<20), false)
	p.keep(-int64(len(sp.mem)))
	p.keepClean([]*span{sp})
	r.next.Store(1)
	other := get(t, p, 5<<20, true)
	b = get(t, p, 5<<20, true)
	if address(other.Bytes) == at || address(b.Bytes) != at || !allZero(b.Bytes) {
		t.Errorf("at %#x and %#x; %#x had no pages", address(other.Bytes), address(b.Bytes), at)
	}
	p.Put(b)
	p.Put(other)
	wantEmpty(t, p)
}

// The same among several goroutines.
func TestRefusedPagesLoseNothingInParallel(t *testing.T) {
	needsReserve(t)
	p, r := newPool(t, 1<<20), &refuser{}
	p.restore = r.restore
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 7))
			var mine []Block
			for i := range 5000 {
				if len(mine) > 8 {
					k := rnd.IntN(len(mine))
					if !stamped(mine[k].Bytes, uint64(address(mine[k].Bytes))) {
						t.Errorf("%s: the stamp is gone", describe(mine[k]))
					}
					p.Put(mine[k])
					mine = append(mine[:k], mine[k+1:]...)
				}
				if i%16 == 0 {
					r.next.Store(int64(rnd.IntN(3)))
				}
				b, err := p.Get(60_000+rnd.IntN(10)*8192, true)
				if err != nil {
					if !errors.Is(err, ErrNoMemory) {
						t.Error(err)
					}
					continue
				}
				if !allZero(b.Bytes) {
					t.Errorf("%s is not zero", describe(b))
				}
				stamp(b.Bytes, uint64(address(b.Bytes)))
				mine = append(mine, b)
			}
			for _, b := range mine {
				p.Put(b)
			}
		})
	}
	wg.Wait()
	if canDrop && r.told.Load() == 0 {
		t.Error("nothing was refused")
	}
	wantEmpty(t, p)
}

// A clock that a test turns.
type clock struct {
	mu   sync.Mutex
	now  time.Duration
	due  []time.Duration
	call []func()
}

func (c *clock) after(d time.Duration, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = append(c.due, c.now+d)
	c.call = append(c.call, f)
}

func (c *clock) timers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.due)
}

// turn lets time pass, in steps of a second.
func (c *clock) turn(d time.Duration) {
	for end := c.now + d; c.now < end; {
		c.mu.Lock()
		c.now += time.Second
		var run []func()
		for i := 0; i < len(c.due); i++ {
			if c.due[i] <= c.now {
				run = append(run, c.call[i])
				c.due = append(c.due[:i], c.due[i+1:]...)
				c.call = append(c.call[:i], c.call[i+1:]...)
				i--
			}
		}
		c.mu.Unlock()
		for _, f := range run {
			f()
		}
	}
}

// Report 54: what lies unused for 30 seconds goes, also while other blocks are
// busy; then no timer is left.
func TestIdleMemoryIsNotKept(t *testing.T) {
	needsReserve(t)
	c := &clock{}
	p := NewPool(&PoolOptions{MaxCached: 1 << 30, AfterFunc: c.after})
	goroutines := runtime.NumGoroutine()
	if c.timers() != 0 {
		t.Error("a timer before the first use")
	}
	old := []Block{get(t, p, 10<<20, true), get(t, p, 100_000, true), get(t, p, 70, true)}
	for _, b := range old {
		p.Put(b)
	}
	idle := p.Stats().Cached
	if idle == 0 || c.timers() != 1 {
		t.Fatalf("%d bytes cached, %d timers", idle, c.timers())
	}
	for range 29 {
		c.turn(time.Second)
		p.Put(get(t, p, 3<<20, true)) // another size is busy
	}
	if s := p.Stats(); s.Cached != idle+3<<20 {
		t.Errorf("after 29 s: %+v", s)
	}
	for range 12 {
		c.turn(time.Second)
		p.Put(get(t, p, 3<<20, true))
	}
	if s := p.Stats(); s.Cached != 3<<20 || s.Mapped != 3<<20 {
		t.Errorf("after 41 s: %+v", s)
	}
	c.turn(45 * time.Second)
	if s := p.Stats(); s.Cached != 0 || s.Mapped != 0 {
		t.Errorf("45 s after the last use: %+v", s)
	}
	if n := c.timers(); n != 0 {
		t.Errorf("%d timers of a pool that has nothing", n)
	}
	// A live block needs no clock, and a free one beside it starts it again.
	a, b := get(t, p, 100_000, true), get(t, p, 100_000, true)
	c.turn(2 * time.Minute)
	p.Put(a)
	if c.timers() != 1 {
		t.Errorf("%d timers", c.timers())
	}
	c.turn(2 * time.Minute)
	if s := p.Stats(); s.Cached != 0 && canDrop || c.timers() != 0 || s.Blocks != 1 {
		t.Errorf("%+v, %d timers", s, c.timers())
	}
	p.Put(b)
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines more", n-goroutines)
	}
	wantEmpty(t, p)
}

// Report 66: memset of fresh memory makes all of it resident.
func TestFreshMemoryIsNotTouched(t *testing.T) {
	p := newPool(t, 1<<30)
	before := resident(t)
	var bs []Block
	for _, n := range []int{64 << 10, 1 << 20, 8 << 20, 64 << 20} {
		for range (128 << 20) / n {
			bs = append(bs, get(t, p, n, true))
		}
	}
	if grown := resident(t) - before; grown > 16<<20 {
		t.Errorf("512 MiB of zeroed memory were taken, and %d bytes are resident", grown)
	}
	for _, b := range bs {
		p.Put(b)
	}
	wantEmpty(t, p)
}

// Report 67: garbage in new memory.
func TestRecycledMemoryIsNotGarbage(t *testing.T) {
	p := newPool(t, 1<<30)
	for _, n := range []int{1, 64, 65, 513, 5000, 64 << 10, 1 << 20, 3 << 20, 33 << 20} {
		for _, m := range []int{n, max(1, n-n/20)} { // and a smaller one in its place
			b := get(t, p, n, false)
			Fill(b.Bytes, []byte{0xA5})
			at := address(b.Bytes)
			p.Put(b)
			b = get(t, p, m, true)
			if HaveReserve && len(p.shards) == 1 && address(b.Bytes) != at && classOf(n) == classOf(m) {
				t.Errorf("%d bytes came from elsewhere", m)
			}
			if len(bytes.Trim(b.Bytes, "\x00")) != 0 {
				t.Errorf("%d bytes are not zero", m)
			}
			p.Put(b)
		}
	}
	wantEmpty(t, p)
}

// A block that goes back when nobody else frees is the one that comes next.
func TestFreedMemoryIsUsedAgain(t *testing.T) {
	needsReserve(t)
	p := newPool(t, 1<<30)
	for _, n := range []int{64, 5000, 1 << 20, 3 << 20} {
		seen := map[uintptr]bool{}
		for range 1000 {
			b := get(t, p, n, false)
			seen[address(b.Bytes)] = true
			p.Put(b)
		}
		if len(seen) > len(p.shards) {
			t.Errorf("%d bytes, one at a time, came from %d places", n, len(seen))
		}
	}
	wantEmpty(t, p)
}

func panics(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text, _ = r.(string)
		}
	}()
	f()
	return ""
}

func TestDoubleAndForeignFreesAreBugs(t *testing.T) {
	needsReserve(t)
	p := newPool(t, 1<<30)
	other := newPool(t, 1<<30)
	for _, n := range []int{64, 100_000, 2 << 20, 1<<30 + 1} {
		b, err := p.Get(n, true)
		if err != nil {
			continue // a 32-bit process
		}
		x := get(t, other, 2<<20, true)
		bad := map[string]Block{
			"another pool's":   x,
			"of no pool":       {Bytes: make([]byte, 64), ID: b.ID},
			"without an ID":    {Bytes: b.Bytes},
			"of another ID":    {Bytes: b.Bytes, ID: firstSlab + 999_999_999},
			"from its middle":  {Bytes: b.Bytes[1:], ID: b.ID},
			"cut short to nil": {Bytes: nil, ID: b.ID},
		}
		before := p.Stats()
		for what, bad := range bad {
			if text := panics(func() { p.Put(bad) }); !strings.HasPrefix(text, "BUG: cpu.Pool: ") {
				t.Errorf("%d bytes, %s: %q", n, what, text)
			}
		}
		if after := p.Stats(); after != before {
			t.Errorf("%+v, then %+v", before, after)
		}
		p.Put(b)
		if text := panics(func() { p.Put(b) }); !strings.HasPrefix(text, "BUG: cpu.Pool: double") {
			t.Errorf("%d bytes, twice: %q", n, text)
		}
		other.Put(x)
	}
	if panics(func() { _, _ = p.Get(0, true) }) == "" {
		t.Error("no panic for a size of 0")
	}
	wantEmpty(t, p)
	wantEmpty(t, other)
}

func mappings(t testing.TB) int {
	t.Helper()
	needsLinux(t)
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		require.Skip(t, "maps", err.Error())
	}
	return bytes.Count(b, []byte("\n"))
}

// Linux allows a process 65,530 mappings (vm.max_map_count). Other systems have
// no such bound, and Wine, which lives under that of Linux, cannot hold the
// 70,000 large blocks: there the Go runtime ends the program.
func TestManyBlocksDoNotExhaustMappings(t *testing.T) {
	needsLinux(t)
	sizes := []int{64, 64 << 10}
	if strconv.IntSize == 64 && !race.Enabled && !emulated() {
		sizes = append(sizes, 3<<20, 17<<20)
	}
	for _, n := range sizes {
		count := 70_000
		if strconv.IntSize == 32 {
			count = min(count, (512<<20)/n)
		}
		p := NewPool(&PoolOptions{MaxCached: 1 << 30, IdleTrim: -1})
		before := mappings(t)
		bs := make([]Block, count)
		for i := range bs {
			bs[i] = get(t, p, n, true)
		}
		if grown := mappings(t) - before; grown > 20_000 {
			t.Errorf("%d blocks of %d bytes: %d mappings more", count, n, grown)
		}
		for i, b := range bs { // every other one: as many holes as there can be
			if i%2 == 0 {
				p.Put(b)
			}
		}
		p.Trim(0)
		for i, b := range bs {
			if i%2 == 1 {
				p.Put(b)
			}
		}
		wantEmpty(t, p)
	}
}

// The Go runtime ends the program where its own munmap fails, so the Pool keeps
// far from the limit: where there are many blocks, a free one loses its pages
// and not its addresses, which would leave a hole.
func TestHolesNeverComeNearTheLimitOfMappings(t *testing.T) {
	if strconv.IntSize == 32 || race.Enabled || emulated() || !countsMappings {
		require.Skip(t, "linux64", "needs 280 GiB of address space on Linux")
	}
	p := NewPool(&PoolOptions{MaxCached: 64 << 20, IdleTrim: -1})
	const n, count = 2 << 20, 140_000
	base := resident(t)
	before := mappings(t)
	bs := make([]Block, count)
	for i := range bs {
		bs[i] = get(t, p, n, true)
	}
	handles := resident(t) - base
	for i := 0; i < count; i += 2 {
		bs[i].Bytes[7] = 1
		p.Put(bs[i])
	}
	p.Trim(0)
	if s := p.Stats(); s.Cached != 0 || s.Blocks != count/2 {
		t.Errorf("%+v", s)
	}
	if grown := resident(t) - base - handles; grown > 32<<20 { // 280 MB were touched
		t.Errorf("%d bytes are resident", grown)
	}
	const half = 32_765 // of vm.max_map_count
	if grown := mappings(t) - before; grown > half {
		t.Errorf("%d mappings more", grown)
	}
	for i := 0; i < count; i += 2 { // what could not go is used again, and zero
		bs[i] = get(t, p, n, true)
		if bs[i].Bytes[7] != 0 {
			t.Fatal("not zero")
		}
	}
	for i := range bs { // in an order that makes holes
		p.Put(bs[i*11%count])
	}
	if grown := mappings(t) - before; grown > half {
		t.Errorf("%d mappings more, when all blocks are free", grown)
	}
	wantEmpty(t, p)
}

// Report 70: huge pages are given only where asked, and the outcome is told.
func TestHugePagesAreNeitherSilentNorTheDefault(t *testing.T) {
	needsReserve(t)
	p := newPool(t, 1<<30)
	plain := get(t, p, 4<<20, true)
	if plain.HugePages != (HugePages{}) {
		t.Errorf("not asked for: %+v", plain.HugePages)
	}
	p.Put(plain)
	small, err := p.GetHuge(hugePage-1, true)
	if err != nil || !small.HugePages.Asked || small.HugePages.Refused == "" {
		t.Errorf("below 2 MiB: %+v, %v", small.HugePages, err)
	}
	p.Put(small)
	for range 2 { // the second is recycled
		b, err := p.GetHuge(4<<20, true)
		if err != nil {
			t.Fatal(err)
		}
		if !b.HugePages.Asked || b.HugePages.Refused == "" && address(b.Bytes)%hugePage != 0 {
			t.Errorf("at %#x: %+v", address(b.Bytes), b.HugePages)
		}
		if address(b.Bytes) == address(plain.Bytes) {
			t.Error("a block without huge pages was handed out for one with them")
		}
		if mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); err == nil && runtime.GOOS == "linux" {
			if never := strings.Contains(string(mode), "[never]"); never != (b.HugePages.Refused != "") {
				t.Errorf("the kernel has %s: %+v", mode, b.HugePages)
			}
		}
		p.Put(b)
	}
	again := get(t, p, 4<<20, true)
	if again.HugePages != (HugePages{}) {
		t.Errorf("recycled, not asked for: %+v", again.HugePages)
	}
	p.Put(again)
	wantEmpty(t, p)
}

func TestBigBlocksBeginAtHugePages(t *testing.T) {
	needsLinux(t) // elsewhere there are no huge pages
	p := newPool(t, 1<<30)
	for range 3 {
		b := get(t, p, 20<<20, true)
		defer p.Put(b)
		if address(b.Bytes)%hugePage != 0 {
			t.Errorf("%#x", address(b.Bytes))
		}
	}
}

func TestRefusedBlocksAreErrors(t *testing.T) {
	p := newPool(t, 1<<30)
	for _, n := range []int64{int64(^uint(0) >> 1), maxBlock, maxBlock - 1} {
		if b, err := p.Get(int(n), true); err == nil {
			if strconv.IntSize == 64 {
				t.Errorf("%d bytes were given", n)
			}
			p.Put(b)
		} else if !errors.Is(err, ErrNoMemory) {
			t.Error(err)
		}
	}
	wantEmpty(t, p)
}

// The Go heap holds handles only: many blocks must not make the collector
// work.
func TestBlocksAreNoWorkForTheCollector(t *testing.T) {
	needsReserve(t)
	p := newPool(t, 1<<30)
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	const n, count = 64, 200_000
	bs := make([]Block, count)
	before += int64(count) * 80 // bs itself
	for i := range bs {
		bs[i] = get(t, p, n, true)
	}
	if grown := heap() - before; grown > n*count/8 {
		t.Errorf("%d bytes of the Go heap for %d blocks of %d", grown, count, n)
	}
	for _, b := range bs {
		p.Put(b)
	}
	if a := testing.AllocsPerRun(1000, func() { p.Put(get(t, p, 1000, true)) }); a != 0 && !race.Enabled {
		t.Errorf("%v allocations a block", a)
	}
	wantEmpty(t, p)
}

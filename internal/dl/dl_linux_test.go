//go:build !fuel_static && !android && (amd64 || arm64 || loong64 || ppc64le || riscv64)

package dl

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/go-fuel/fuel/internal/require"
)

// compiler returns a C compiler for the processor that the test runs on, which
// may be an emulated one.
func compiler(t testing.TB) string {
	t.Helper()
	cpu := map[string]string{"amd64": "x86_64", "arm64": "aarch64", "loong64": "loongarch64", "ppc64le": "powerpc64le", "riscv64": "riscv64"}[runtime.GOARCH]
	if cross, err := exec.LookPath(cpu + "-linux-gnu-gcc"); err == nil {
		return cross
	}
	gcc := require.Command(t, "gcc")
	machine, err := exec.Command(gcc, "-dumpmachine").Output()
	if err != nil || !strings.HasPrefix(string(machine), cpu+"-") {
		require.Skip(t, "gcc", fmt.Sprintf("gcc is for %q, the test for %s: %v", machine, cpu, err))
	}
	return gcc
}

var built = map[string]string{} // by source and flags

func TestMain(m *testing.M) {
	code := m.Run()
	for _, lib := range built {
		os.RemoveAll(filepath.Dir(lib))
	}
	os.Exit(code)
}

// build compiles a file of testdata, with a text added, into a library. The
// same source and flags give the same file.
func build(t testing.TB, source, added string, flags ...string) string {
	t.Helper()
	key := fmt.Sprint(source, added, flags)
	if lib := built[key]; lib != "" {
		return lib
	}
	gcc := compiler(t)
	text, err := os.ReadFile(filepath.Join("testdata", source))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "fuel-dl")
	if err != nil {
		t.Fatal(err)
	}
	file, lib := filepath.Join(dir, source), filepath.Join(dir, "lib"+strings.TrimSuffix(source, ".c")+".so")
	if err := os.WriteFile(file, append(text, added...), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", lib, file}, flags...)
	if out, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	built[key] = lib
	return lib
}

// calls opens testdata/calls.c.
func calls(t testing.TB) *Library {
	t.Helper()
	var c strings.Builder
	for n := range MaxArgs + 1 {
		var params []string
		sum := "1"
		for i := range n {
			params = append(params, fmt.Sprintf("uint64_t a%d", i))
			sum = fmt.Sprintf("(%s * 31 + a%d)", sum, i)
		}
		fmt.Fprintf(&c, "uint64_t args%d(%s) { return %s; }\n", n, strings.Join(params, ", "), sum)
	}
	lib, err := Open(build(t, "calls.c", c.String()))
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

func lookup(t testing.TB, lib *Library, symbol string) Proc {
	t.Helper()
	p, err := lib.Lookup(symbol)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCallLosesNoArgument(t *testing.T) {
	lib := calls(t)
	for n := range MaxArgs + 1 {
		want := uint64(1)
		var args []uintptr
		for i := range n {
			a := uintptr(0xfedcba9876543210) ^ uintptr(i)<<56
			args, want = append(args, a), want*31+uint64(a)
		}
		if got := lookup(t, lib, fmt.Sprintf("args%d", n)).Call(args...); uint64(got) != want {
			t.Errorf("%d arguments: %#x, want %#x", n, got, want)
		}
	}
}

// Rule R13.
func TestResultLosesNeitherSignNorBits(t *testing.T) {
	lib := calls(t)
	if r := lookup(t, lib, "minus_two").Call(); r.Int32() != -2 {
		t.Errorf("minus_two: %d", r.Int32())
	}
	if r := lookup(t, lib, "all_bits").Call(); r != 0xfedcba9876543210 {
		t.Errorf("all_bits: %#x", r)
	}
	odd := lookup(t, lib, "is_odd")
	if !odd.Call(0xffff_ffff_ffff_ffff).Bool() || odd.Call(0xffff_ffff_ffff_fffe).Bool() {
		t.Error("is_odd is wrong")
	}
	minus := int32(-3)
	if r := lookup(t, lib, "narrow").Call(uintptr(minus), 200); int64(r) != -600 {
		t.Errorf("narrow: %d", int64(r))
	}
}

func TestPointersReachC(t *testing.T) {
	lib := calls(t)
	var x uint64
	lookup(t, lib, "store").Call(uintptr(unsafe.Pointer(&x)), 1<<40)
	if x != 1<<40 {
		t.Errorf("store: %#x", x)
	}
	// A pointer inside what an argument points to.
	y := new(uint64)
	request := struct {
		p *uint64
		x uint64
	}{y, 1 << 50}
	var pinner runtime.Pinner
	pinner.Pin(y)
	defer pinner.Unpin()
	lookup(t, lib, "store_request").Call(uintptr(unsafe.Pointer(&request)))
	if *y != 1<<50 {
		t.Errorf("store_request: %#x", *y)
	}
}

// Rule R7 and report 80.
func TestMissingSymbolIsNeverAnAddress(t *testing.T) {
	lib := calls(t)
	p, err := lib.Lookup("cuCtxCreate_v9")
	if !errors.Is(err, ErrNoSymbol) || p.Valid() || !strings.Contains(err.Error(), "cuCtxCreate_v9") || !strings.Contains(err.Error(), lib.Path()) {
		t.Errorf("got %v, %v", p, err)
	}
}

// Reports 79 and 80: what was tried, and what the loader said to each.
func TestOpenErrorLosesNoReason(t *testing.T) {
	dir := t.TempDir()
	text, class := filepath.Join(dir, "text.so"), filepath.Join(dir, "class.so")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a library ", 99)), 0o600); err != nil {
		t.Fatal(err)
	}
	header := make([]byte, 4096)
	copy(header, elf.ELFMAG)
	header[elf.EI_CLASS], header[elf.EI_DATA], header[elf.EI_VERSION] = byte(elf.ELFCLASS32), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	header[16], header[18], header[20] = byte(elf.ET_DYN), byte(elf.EM_386), byte(elf.EV_CURRENT)
	if err := os.WriteFile(class, header, 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{"libfuel-missing.so.1", "/missing/libfuel.so", text, class, "here/libfuel.so"}
	lib, err := Open(names...)
	if err == nil {
		t.Fatalf("opened %s", lib.Name())
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name+": ") || strings.Contains(err.Error(), name+": "+name) {
			t.Errorf("%s is not there once, with its reason", name)
		}
	}
	t.Log(err)
	// After all of them, one that works.
	good := build(t, "calls.c", "")
	if lib, err := Open(append(names, good)...); err != nil || lib.Name() != good {
		t.Errorf("with a good one at the end: %v", err)
	}
}

func TestOpenTellsTheFile(t *testing.T) {
	path := build(t, "calls.c", "")
	lib, err := Open(path)
	if err != nil || lib.Name() != path || lib.Path() != path {
		t.Errorf("by path: %v, %v", lib, err)
	}
	libc, err := Open("libc.so.6", "libc.so")
	if err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(libc.Path()) || !strings.HasPrefix(libc.Name(), "libc.so") {
		t.Errorf("by name: %q at %q", libc.Name(), libc.Path())
	}
}

// Report 83.
func TestOpenNeverLooksInTheCurrentDirectory(t *testing.T) {
	path := build(t, "calls.c", "")
	t.Chdir(filepath.Dir(path))
	for _, name := range []string{filepath.Base(path), "./" + filepath.Base(path)} {
		if _, err := Open(name); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func TestCloseGivesTheLibraryBack(t *testing.T) {
	libc, err := Open("libc.so.6", "libc.so")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := libc.Lookup("gnu_get_libc_version"); err != nil {
		require.Skip(t, "glibc", "musl unloads nothing")
	}
	lib, err := Open(build(t, "calls.c", "", "-DOF_ITS_OWN"))
	if err != nil {
		t.Fatal(err)
	}
	mapped := func() bool {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(maps), lib.Path())
	}
	if !mapped() {
		t.Error("not mapped while it is open")
	}
	if err := lib.Close(); err != nil {
		t.Fatal(err)
	}
	if mapped() {
		t.Error("mapped after Close")
	}
	if _, err := lib.Lookup("echo"); err != ErrClosed {
		t.Errorf("Lookup: %v", err)
	}
}

// purego#451: calls at the same time must not take each other's results.
func TestConcurrentCallsNeverMixResults(t *testing.T) {
	lib := calls(t)
	echo, store := lookup(t, lib, "echo"), lookup(t, lib, "store")
	var wg sync.WaitGroup
	for g := range uintptr(64) {
		wg.Go(func() {
			for i := range uintptr(500) {
				want := g<<32 | i
				var x uint64
				store.Call(uintptr(unsafe.Pointer(&x)), want)
				if r := echo.Call(want); r.Uintptr() != want || uintptr(x) != want {
					t.Errorf("echo %#x, stored %#x, want %#x", r, x, want)
					return
				}
				if _, err := lib.Lookup("missing"); !errors.Is(err, ErrNoSymbol) {
					t.Errorf("got %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Rule R11: what an argument points to lives until the call returns, also where
// nothing else holds it.
func TestCollectorNeverTakesArgumentsOfACall(t *testing.T) {
	load := lookup(t, calls(t), "load_late")
	type block struct {
		value uint64
		_     [4096]byte
	}
	for range 20 {
		var gone atomic.Bool
		flags := new([2]uint32)
		var pinner runtime.Pinner
		pinner.Pin(flags)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for atomic.LoadUint32(&flags[0]) == 0 {
				runtime.Gosched()
			}
			for range 3 {
				runtime.GC()
				for range 100 {
					scratch = make([]byte, unsafe.Sizeof(block{}))
				}
			}
			if gone.Load() {
				t.Error("the argument was collected during the call")
			}
			atomic.StoreUint32(&flags[1], 1)
		}()
		b := &block{value: 1 << 60}
		runtime.AddCleanup(b, func(gone *atomic.Bool) { gone.Store(true) }, &gone)
		r := load.Call(uintptr(unsafe.Pointer(b)), uintptr(unsafe.Pointer(&flags[0])), uintptr(unsafe.Pointer(&flags[1])))
		if r != 1<<60 {
			t.Fatalf("C read %#x", r)
		}
		<-done
		pinner.Unpin()
	}
}

var scratch []byte

// A stack that grows while a call is on its way must not leave C a pointer to
// where a variable was.
func TestGrowingStackNeverMovesArguments(t *testing.T) {
	store := lookup(t, calls(t), "store")
	for range 20 {
		done := make(chan int)
		go func() { done <- storeDeep(store, 200) }() // a new, small stack
		if lost := <-done; lost > 0 {
			t.Fatalf("C wrote %d times elsewhere", lost)
		}
	}
}

// storeDeep has C write to a variable in each of n frames and counts those that
// it did not reach.
//
//go:noinline
func storeDeep(store Proc, n int) (lost int) {
	var x uint64
	store.Call(uintptr(unsafe.Pointer(&x)), uintptr(n))
	if x != uint64(n) {
		lost = 1
	}
	if n > 1 {
		lost += storeDeep(store, n-1)
	}
	return lost
}

// Rule R14 rests on this.
func TestLockedThreadIsNeverLeft(t *testing.T) {
	id := lookup(t, calls(t), "thread_id")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			mine := unix.Gettid()
			for range 200 {
				if r := id.Call(); int(r.Int32()) != mine || unix.Gettid() != mine {
					t.Errorf("C ran on thread %d, not %d", r.Int32(), mine)
					return
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
}

func TestCallAllocatesAtMostOnce(t *testing.T) {
	p := lookup(t, calls(t), "args15")
	if n := testing.AllocsPerRun(1000, func() { p.Call(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

// checkSignals says whether the signals are as they should be after a library of
// testdata/handlers.c has taken them.
func checkSignals(t *testing.T, before *actions, changed []string) {
	t.Helper()
	var after actions
	after.get()
	for _, sig := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGURG, syscall.SIGPIPE} {
		if after[sig] != before[sig] {
			t.Errorf("%v is still taken: %#x, was %#x", sig, after[sig], before[sig])
		}
		if want := unix.SignalName(sig) + ": Go's handler put back"; !slices.Contains(changed, want) {
			t.Errorf("%q does not say %q", changed, want)
		}
	}
	stop := after[syscall.SIGTSTP]
	if !stop.isFunction() || stop.isGo() || stop[1]&onStack == 0 {
		t.Errorf("SIGTSTP: %#x, want the library's with SA_ONSTACK", stop)
	}
	if len(changed) != 6 {
		t.Errorf("changed: %q", changed)
	}
}

func TestGoHandlersAreRecognized(t *testing.T) {
	var now actions
	now.get()
	for _, sig := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGURG, syscall.SIGPROF, syscall.SIGPIPE} {
		if !now[sig].isGo() || now[sig][1]&onStack == 0 {
			t.Errorf("%v: %#x is not taken for Go's", sig, now[sig])
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGKILL} {
		if now[sig].isGo() || now[sig].isFunction() {
			t.Errorf("%v: %#x is taken for a handler", sig, now[sig])
		}
	}
}

// Rule R9, yalue/onnxruntime_go#140.
func TestLibraryNeverKeepsSignals(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	loaded, told := build(t, "handlers.c", "", "-DWHEN_LOADED"), build(t, "handlers.c", "")
	var before actions
	before.get()
	thread := getThread()
	system := before[syscall.SIGTSTP]
	restore := func() { setAction(uintptr(syscall.SIGTSTP), &system) }
	defer restore()

	lib, err := Open(loaded)
	if err != nil {
		t.Fatal(err)
	}
	checkSignals(t, &before, lib.Changed())
	restore()

	lib, err = Open(told)
	if err != nil || len(lib.Changed()) > 0 {
		t.Fatalf("%v, %q", err, lib.Changed())
	}
	take := lookup(t, lib, "take_signals")
	checkSignals(t, &before, Guarded(func() { take.Call() }))
	restore()
	// One that begins when the signals are taken already, in another, puts them
	// right as well; the thread is the other's.
	var inner []string
	outer := Guarded(func() {
		take.Call()
		inner = Guarded(func() {})
	})
	checkSignals(t, &before, append(inner, outer...))
	if len(outer) != 2 {
		t.Errorf("outer: %q", outer)
	}
	restore()

	if now := getThread(); now != thread {
		t.Errorf("the thread has %#x, had %#x", now, thread)
	}
	// A fault is an error again.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(page)
	defer func() {
		if recover() == nil {
			t.Error("no panic from a fault")
		}
	}()
	scratch = append(scratch[:0], page[0])
}

// What a library did and Open put right is said also where Open fails.
func TestFailedOpenTellsWhatItPutRight(t *testing.T) {
	broken := &taking{take: lookup(t, handlers(t), "take_signals")}
	var before actions
	before.get()
	defer setAction(uintptr(syscall.SIGTSTP), &before[syscall.SIGTSTP])
	_, err := open(broken, []string{"one"})
	if err == nil || !strings.Contains(err.Error(), "one: broken") || !strings.Contains(err.Error(), "SIGURG: Go's handler put back") {
		t.Errorf("got %v", err)
	}
}

func handlers(t *testing.T) *Library {
	t.Helper()
	lib, err := Open(build(t, "handlers.c", ""))
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

type taking struct {
	fake
	take Proc
}

func (l *taking) open(string) (uintptr, string, error) {
	l.take.Call()
	return 0, "", errors.New("broken")
}

// Report 82: with the tag a program has no loader in it; without it has one.
func TestStaticTagLeavesNoLoaderIn(t *testing.T) {
	goTool := require.Command(t, "go")
	for _, tag := range []string{"", "fuel_static"} {
		exe := filepath.Join(t.TempDir(), "exe")
		cmd := exec.Command(goTool, "test", "-c", "-vet=off", "-tags", tag, "-o", exe, ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH, "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		f, err := elf.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		dynamic := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		if dynamic != (tag == "") {
			t.Errorf("tag %q: interpreter %t", tag, dynamic)
		}
	}
}

// DESIGN's number: at most 1.2 times purego.SyscallN, and one allocation.
func BenchmarkCall(b *testing.B) {
	lib := calls(b)
	none, six, fifteen := lookup(b, lib, "args0"), lookup(b, lib, "args6"), lookup(b, lib, "args15")
	b.Run("impl=dl/args=0", func(b *testing.B) {
		for b.Loop() {
			none.Call()
		}
	})
	b.Run("impl=purego/args=0", func(b *testing.B) {
		for b.Loop() {
			purego.SyscallN(none.addr)
		}
	})
	b.Run("impl=dl/args=6", func(b *testing.B) {
		for b.Loop() {
			six.Call(1, 2, 3, 4, 5, 6)
		}
	})
	b.Run("impl=purego/args=6", func(b *testing.B) {
		for b.Loop() {
			purego.SyscallN(six.addr, 1, 2, 3, 4, 5, 6)
		}
	})
	b.Run("impl=dl/args=15", func(b *testing.B) {
		for b.Loop() {
			fifteen.Call(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
		}
	})
	b.Run("impl=purego/args=15", func(b *testing.B) {
		for b.Loop() {
			purego.SyscallN(fifteen.addr, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
		}
	})
}

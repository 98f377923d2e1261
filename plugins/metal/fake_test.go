//go:build linux && amd64 && !fuel_static

package metal

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/go-fuel/fuel/internal/dl"
	"github.com/go-fuel/fuel/internal/require"
)

// A gnu is an objc over testdata/fake.m, which is Metal on GCC's runtime. That
// has no objc_msgSend: a method is looked up and then called.
type gnu struct {
	lib                                              *dl.Library
	lookup, registerName, pushPool, popPool          dl.Proc
	createDevice, copyDevices                        dl.Proc
	setup, slow, nilAt, failAt, broken, live, typeOf dl.Proc
}

func (g *gnu) selector(name string) uintptr {
	s := append([]byte(name), 0)
	return g.registerName.Call(uintptr(unsafe.Pointer(unsafe.SliceData(s)))).Uintptr()
}

func (g *gnu) send(to object, selector uintptr, args ...uintptr) dl.Result {
	if to == 0 {
		return 0
	}
	method := dl.At(g.lookup.Call(uintptr(to), selector).Uintptr())
	return method.Call(append([]uintptr{uintptr(to), selector}, args...)...)
}

func (g *gnu) push() uintptr         { return g.pushPool.Call().Uintptr() }
func (g *gnu) pop(pool uintptr)      { g.popPool.Call(pool) }
func (g *gnu) defaultDevice() object { return object(g.createDevice.Call().Uintptr()) }
func (g *gnu) allDevices() object    { return object(g.copyDevices.Call().Uintptr()) }

var (
	buildFake sync.Once
	fakeDir   string
	fakeMetal *gnu
	fakeError error
	noFake    string // why there is none
)

func TestMain(m *testing.M) {
	code := m.Run()
	if fakeDir != "" {
		os.RemoveAll(fakeDir)
	}
	os.Exit(code)
}

// compileFake builds and opens the fake, once: GCC's runtime cannot forget
// classes, so it stays.
func compileFake() {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		noFake = err.Error()
		return
	}
	if cc1obj, err := exec.Command(gcc, "-print-prog-name=cc1obj").Output(); err != nil || !filepath.IsAbs(strings.TrimSpace(string(cc1obj))) {
		noFake = "gcc does not compile Objective-C"
		return
	}
	if fakeDir, fakeError = os.MkdirTemp("", "fuel-metal"); fakeError != nil {
		return
	}
	lib := filepath.Join(fakeDir, "libfakemetal.so")
	cmd := exec.Command(gcc, "-x", "objective-c", "-std=gnu11", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", lib, filepath.Join("testdata", "fake.m"), "-lobjc", "-lpthread")
	if out, err := cmd.CombinedOutput(); err != nil {
		fakeError = &exec.Error{Name: string(out), Err: err}
		return
	}
	g := &gnu{}
	if g.lib, fakeError = dl.Open(lib); fakeError != nil {
		return
	}
	for name, p := range map[string]*dl.Proc{
		"objc_msg_lookup": &g.lookup, "sel_registerName": &g.registerName,
		"objc_autoreleasePoolPush": &g.pushPool, "objc_autoreleasePoolPop": &g.popPool,
		"MTLCreateSystemDefaultDevice": &g.createDevice, "MTLCopyAllDevices": &g.copyDevices,
		"fake_setup": &g.setup, "fake_slow": &g.slow, "fake_nil": &g.nilAt, "fake_fail": &g.failAt,
		"fake_broken": &g.broken, "fake_live": &g.live, "fake_types": &g.typeOf,
	} {
		if *p, fakeError = g.lib.Lookup(name); fakeError != nil {
			return
		}
	}
	fakeMetal = g
}

// What the fake's devices are like.
type machine struct {
	devices                     int
	noDefault, discrete         bool
	maxBuffer, workingSet, heap int // 0: 128, 256 and 256 MiB
	delay, lag                  int // microseconds
	private, staged, mayBreak   bool
}

// A fake is the fake as one test has it.
type fake struct {
	t testing.TB
	*metal
	gnu *gnu
}

// newFake sets the fake up. When the test ends no object may be left and no
// rule be broken.
func newFake(t testing.TB, m machine) *fake {
	t.Helper()
	buildFake.Do(compileFake)
	if noFake != "" {
		require.Skip(t, "gobjc", noFake)
	}
	if fakeError != nil {
		t.Fatal(fakeError)
	}
	or := func(n, otherwise int) uintptr {
		if n == 0 {
			n = otherwise
		}
		return uintptr(n)
	}
	bit := func(b bool) uintptr {
		if b {
			return 1
		}
		return 0
	}
	g := fakeMetal
	g.setup.Call(or(m.devices, 1), bit(m.noDefault), bit(!m.discrete), or(m.maxBuffer, 128<<20), or(m.workingSet, 256<<20), or(m.heap, 256<<20))
	g.slow.Call(uintptr(m.delay), uintptr(m.lag))
	f := &fake{t: t, metal: newMetal(g, "fake"), gnu: g}
	t.Cleanup(func() {
		if s := f.broken(); s != "" && !m.mayBreak {
			t.Errorf("rules were broken:\n%s", s)
		}
		s := f.live()
		for i := 0; s != "" && i < 1000; i++ { // work that nobody waits for any more
			time.Sleep(time.Millisecond)
			s = f.live()
		}
		if s != "" {
			t.Errorf("objects are left: %s", s)
		}
	})
	return f
}

// broken returns the rules that were broken since the last call.
func (f *fake) broken() string { return cText(f.gnu.broken.Call().Uintptr()) }

// live tells what objects there are.
func (f *fake) live() string { return strings.TrimSpace(cText(f.gnu.live.Call().Uintptr())) }

func cText(addr uintptr) string {
	var b []byte
	for p := foreign(addr); *(*byte)(p) != 0; p = unsafe.Add(p, 1) {
		b = append(b, *(*byte)(p))
	}
	return string(b)
}

// nilAt makes such messages answer nil from the nth on; 0 ends it.
func (f *fake) nilAt(msg message, nth int) {
	s := append([]byte(messages[msg].selector), 0)
	f.gnu.nilAt.Call(uintptr(unsafe.Pointer(unsafe.SliceData(s))), uintptr(nth))
}

// failAt makes the nth command buffer from now on fail.
func (f *fake) failAt(nth, code int) { f.gnu.failAt.Call(uintptr(nth), uintptr(code)) }

// types returns how the fake's class declares a message.
func (f *fake) types(class string, msg message) string {
	s := append([]byte(class), 0)
	return cText(f.gnu.typeOf.Call(uintptr(unsafe.Pointer(unsafe.SliceData(s))), f.selectors[msg]).Uintptr())
}

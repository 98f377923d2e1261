package dl

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// fake is a loader without a system: libraries are names with their symbols.
type fake struct {
	libraries map[string]map[string]uintptr
	tried     []string
	closed    []uintptr
}

var errNoFile = errors.New("no such file")

func (f *fake) open(name string) (uintptr, string, error) {
	f.tried = append(f.tried, name)
	if f.libraries[name] == nil {
		return 0, "", errNoFile
	}
	return uintptr(len(f.tried)), "/found/" + name, nil
}

func (f *fake) lookup(handle uintptr, symbol string) (uintptr, error) {
	if addr := f.libraries[f.tried[handle-1]][symbol]; addr != 0 {
		return addr, nil
	}
	return 0, errors.New("undefined")
}

func (f *fake) close(handle uintptr) error {
	f.closed = append(f.closed, handle)
	return nil
}

// Report 83, rule R6: the order is the caller's, and the first that opens ends
// the search.
func TestOpenNeverTriesOutOfOrder(t *testing.T) {
	one, two, three := places("one"), places("two"), places("three")
	found := two[len(two)-1]
	f := &fake{libraries: map[string]map[string]uintptr{found: {"f": 7}, three[0]: {}}}
	lib, err := open(f, []string{"", "one", "two", "three"})
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Concat(one, two); !slices.Equal(f.tried, want) {
		t.Errorf("tried %q, want %q", f.tried, want)
	}
	if lib.Name() != found || lib.Path() != "/found/"+found || len(lib.Changed()) > 0 {
		t.Errorf("name %q, path %q, changed %q", lib.Name(), lib.Path(), lib.Changed())
	}
	if p, err := lib.Lookup("f"); err != nil || p != At(7) || !p.Valid() {
		t.Errorf("f: %v, %v", p, err)
	}
	p, err := lib.Lookup("g")
	if !errors.Is(err, ErrNoSymbol) || p.Valid() || !strings.Contains(err.Error(), "g in /found/"+found) {
		t.Errorf("g: %v, %v", p, err)
	}
}

func TestOpenErrorLosesNoAttempt(t *testing.T) {
	f := &fake{}
	_, err := open(f, []string{"one", "", "./two", "three"})
	if !errors.Is(err, errNoFile) {
		t.Fatalf("got %v", err)
	}
	for _, name := range slices.Concat(places("one"), places("three")) {
		if !strings.Contains(err.Error(), name+": no such file") {
			t.Errorf("%q does not say that %s was tried", err, name)
		}
	}
	if !strings.Contains(err.Error(), "./two: a relative path") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %q", err)
	}
	for _, names := range [][]string{nil, {""}} {
		if _, err := open(f, names); err == nil || !strings.Contains(err.Error(), "no library named") {
			t.Errorf("%q: got %v", names, err)
		}
	}
}

// Report 83: a library that lies in the current directory is never loaded.
func TestRelativePathNeverReachesTheLoader(t *testing.T) {
	f := &fake{}
	for _, name := range []string{"./lib.so", "sub/lib.so", "../lib.so", `sub\lib.dll`, "c:lib.dll", "lib.so\x00.1"} {
		if _, err := open(f, []string{name}); err == nil {
			t.Errorf("%q: opened", name)
		}
	}
	if len(f.tried) > 0 {
		t.Errorf("tried %q", f.tried)
	}
}

func TestClosedLibraryNeverAnswers(t *testing.T) {
	name := places("one")[0]
	f := &fake{libraries: map[string]map[string]uintptr{name: {"f": 7}}}
	lib, err := open(f, []string{"one"})
	if err != nil {
		t.Fatal(err)
	}
	if err := lib.Close(); err != nil {
		t.Error(err)
	}
	if p, err := lib.Lookup("f"); err != ErrClosed || p.Valid() {
		t.Errorf("Lookup: %v, %v", p, err)
	}
	if err := lib.Close(); err != ErrClosed || len(f.closed) != 1 {
		t.Errorf("second Close: %v, %d closed", err, len(f.closed))
	}
}

// Rule R7: no call of a function that is not there.
func TestCallOfNothingNeverJumps(t *testing.T) {
	for _, c := range []struct {
		text string
		call func()
	}{
		{"not found", func() { Proc{}.Call(1) }},
		{"not found", func() { At(0).Call() }},
		{"more than 15", func() { At(1).Call(make([]uintptr, 16)...) }},
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.Contains(s, c.text) {
					t.Errorf("panic %q, want %q", s, c.text)
				}
			}()
			c.call()
		}()
	}
}

func TestResultKeepsSignAndBits(t *testing.T) {
	if r := Result(0xdeadbeef_fffffffe); r.Int32() != -2 || !r.Bool() || uint64(r.Uintptr()) != uint64(uintptr(r)) {
		t.Errorf("%d %t %#x", r.Int32(), r.Bool(), r.Uintptr())
	}
	if Result(0xffffff00).Bool() {
		t.Error("Bool takes more than a byte")
	}
}

func TestGuardedCallsOnceAndLetsPanicsPass(t *testing.T) {
	calls := 0
	func() {
		defer func() {
			if recover() != "theirs" {
				t.Error("the panic is lost")
			}
		}()
		Guarded(func() { calls++; panic("theirs") })
	}()
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
	if changed := Guarded(func() { Guarded(func() { calls++ }) }); calls != 2 || len(changed) > 0 {
		t.Errorf("%d calls, changed %q", calls, changed)
	}
}

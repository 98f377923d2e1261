package fueltest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// A recorder is a test that may fail without anybody minding: failures go to
// a list. What it does not do itself is done by the test it is part of.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// record runs f as a test of its own, to its cleanups, and returns how it
// failed, or nothing where it passed.
func record(t testing.TB, f func(t testing.TB)) []string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanUp()
		defer r.caught()
		f(r)
	}()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures
}

func (r *recorder) caught() {
	if p := recover(); p != nil {
		r.note(fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
	}
}

func (r *recorder) cleanUp() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		func() {
			defer r.caught()
			f()
		}()
	}
}

func (r *recorder) note(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, s)
}

func (r *recorder) Helper() {}
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}
func (r *recorder) Error(args ...any)                 { r.note(fmt.Sprintln(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }
func (r *recorder) Fail()                             { r.note("Fail") }
func (r *recorder) FailNow()                          { r.note("FailNow"); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

// mustFail fails the test unless one of the failures has the text.
func mustFail(t *testing.T, failures []string, text string) {
	t.Helper()
	if len(failures) == 0 {
		t.Fatal("it passed")
	}
	for _, f := range failures {
		if strings.Contains(f, text) {
			return
		}
	}
	t.Errorf("it failed otherwise than with %q:\n%s", text, strings.Join(failures, "\n"))
}

// mustPass fails the test where there are failures.
func mustPass(t *testing.T, failures []string) {
	t.Helper()
	if len(failures) > 0 {
		t.Errorf("it failed:\n%s", strings.Join(failures, "\n"))
	}
}

// impatient is for tests of what is never given back.
func impatient(t *testing.T) {
	before := patience
	patience = 100 * time.Millisecond
	t.Cleanup(func() { patience = before })
}

// overlap reports whether two slices share memory.
func overlap(a, b []byte) bool {
	start := func(s []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }
	return start(a) < start(b)+uintptr(len(b)) && start(b) < start(a)+uintptr(len(a))
}

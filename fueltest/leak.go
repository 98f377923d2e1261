package fueltest

import (
	"testing"

	"github.com/go-fuel/fuel/internal/check"
	"github.com/go-fuel/fuel/internal/track"
)

// LeakCheck fails the test, when it ends, for each piece of memory that was
// allocated since and is not given back, with the stack that allocated it.
// Memory that goes asynchronously has some seconds to do so.
//
// It sees the Storages of the whole process, so nothing else that allocates
// them must run meanwhile. Cleanups that were registered after it come before
// it, so it sees what they close. A Storage that was dropped without Close is
// one of them, also where the collector has freed it by then.
func LeakCheck(t testing.TB) {
	t.Helper()
	stop := track.Start()
	mark := track.Mark()
	t.Cleanup(func() {
		defer stop()
		patiently(func() bool { return len(track.Since(mark)) == 0 })
		for _, r := range track.Since(mark) {
			t.Errorf("fueltest: a Storage was not closed: %s", r)
			track.Forget(r)
		}
	})
}

// Checked turns checked mode on for what is allocated until the test ends, as
// FUEL_CHECK=1 does for a program, and sets that variable for programs that
// the test starts. The test must not be parallel.
func Checked(t testing.TB) {
	t.Helper()
	t.Setenv("FUEL_CHECK", "1") // refuses parallel tests
	before := check.Set(true)
	t.Cleanup(func() { check.Set(before) })
}

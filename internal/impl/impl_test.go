package impl

import (
	"slices"
	"testing"
)

func TestSelectTurnsOnOneAndRestores(t *testing.T) {
	defer func(before []implementation) { all = before }(all)
	all = nil
	best, good, absent, other := true, false, false, true
	Register("p", "best", true, &best)
	Register("p", "good", true, &good)
	Register("p", "absent", false, &absent)
	Register("q", "best", true, &other)
	if got := List("p"); !slices.Equal(got, []string{"best", "good", "absent"}) {
		t.Errorf("List is %v", got)
	}
	for name, want := range map[string][2]bool{"good": {false, true}, "best": {true, false}, Generic: {}} {
		restore, ok := Select("p", name)
		if !ok || best != want[0] || good != want[1] || !other {
			t.Errorf("Select %s: %v, best %v, good %v, other package %v", name, ok, best, good, other)
		}
		restore()
		if !best || good || !other {
			t.Errorf("after restore: best %v, good %v, other package %v", best, good, other)
		}
	}
	for _, name := range []string{"absent", "unknown", ""} {
		if _, ok := Select("p", name); ok || !best || good || absent {
			t.Errorf("Select %q: %v, best %v, good %v, absent %v", name, ok, best, good, absent)
		}
	}
}

func TestRegisterRefusesASecondOfAName(t *testing.T) {
	defer func(before []implementation) { all = before }(all)
	for _, name := range []string{"x", Generic} {
		var use bool
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a second %s is taken", name)
				}
			}()
			Register("p", "x", true, &use)
			Register("p", name, true, &use)
		}()
		all = nil
	}
}

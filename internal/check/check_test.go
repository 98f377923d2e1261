package check

import "testing"

func TestSetReturnsTheStateBefore(t *testing.T) {
	first := Set(true)
	defer Set(first)
	if !On() || !Set(false) || On() || Set(true) {
		t.Error("Set does not set, or does not tell")
	}
}

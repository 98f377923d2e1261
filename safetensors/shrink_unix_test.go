//go:build unix

package safetensors

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/go-fuel/fuel"
)

// A file that shrinks under its mapping is an error, not the end of the
// program.
func TestShrunkFileDoesNotKillTheProcess(t *testing.T) { // golang#41155, llama.cpp#6774
	noLeaks(t)
	const size = 1 << 20
	path := save(t, zeros(headerOf(entryOf("a", "U8", fmt.Sprint(size), 0, size)), size))
	f, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := tensor(t, f, "a")
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	var b [100]byte
	if _, err := s.ReadAt(b[:], size-100); !errors.Is(err, fuel.ErrMapFault) {
		t.Errorf("ReadAt: %v", err)
	}
	if err := WriteFile(path+"2", []Tensor{{"a", []int{size}, s}}, nil); !errors.Is(err, fuel.ErrMapFault) {
		t.Errorf("WriteFile: %v", err)
	}
	if _, err := os.Stat(path + "2"); err == nil {
		t.Error("the failed WriteFile left a file")
	}
	closeAll(t, s, f)
}

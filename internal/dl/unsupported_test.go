//go:build fuel_static || !((linux && !android && (amd64 || arm64 || loong64 || ppc64le || riscv64)) || (darwin && !ios && (amd64 || arm64)) || (windows && (amd64 || arm64)))

package dl

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

func TestUnsupportedNeverKeepsTheReason(t *testing.T) {
	_, err := Open("libc.so.6")
	if !errors.Is(err, ErrUnsupported) || !errors.Is(Supported(), ErrUnsupported) {
		t.Fatalf("Open: %v, Supported: %v", err, Supported())
	}
	if s := err.Error(); !strings.Contains(s, "fuel_static") && !strings.Contains(s, runtime.GOOS+"/"+runtime.GOARCH) {
		t.Errorf("%q names neither the tag nor the platform", s)
	}
	t.Log(err)
}

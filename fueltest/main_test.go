package fueltest

import (
	"fmt"
	"os"
	"runtime"
	"testing"
)

// TestMain looks that no goroutine is left at the end.
func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	if code == 0 && !patiently(func() bool { return runtime.NumGoroutine() <= before }) {
		buf := make([]byte, 1<<20)
		fmt.Fprintf(os.Stderr, "goroutines were left:\n%s\n", buf[:runtime.Stack(buf, true)])
		code = 1
	}
	os.Exit(code)
}

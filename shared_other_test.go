//go:build !linux

package fuel_test

import (
	"os"
	"testing"

	"github.com/go-fuel/fuel"
)

// Shared memory is a memfd, and never something else in its place.
func TestSharedMemoryIsUnavailableOffLinux(t *testing.T) {
	for _, n := range []int{0, 100} {
		_, err := fuel.NewShared(fuel.U8, n, nil)
		wantErr(t, "NewShared", err, fuel.ErrUnavailable)
		_, err = fuel.OpenShared(os.Stdin, fuel.U8, 0, n, nil)
		wantErr(t, "OpenShared", err, fuel.ErrUnavailable)
	}
	s := must(t)(fuel.AllocCPUZeroed(fuel.U8, 1))
	wantErr(t, "Seal", fuel.Seal(s), fuel.ErrMismatch)
	_, _, err := fuel.SharedFile(s)
	wantErr(t, "SharedFile", err, fuel.ErrMismatch)
}

//go:build unix

package safetensors

import (
	"errors"
	"os"
	"syscall"
)

// syncDir makes a rename in dir last, where the file system can be asked to.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		if errors.Is(err, os.ErrPermission) {
			return nil // a directory may be writable and not readable
		}
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

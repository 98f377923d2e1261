//go:build !windows

package hostfile

import "os"

// Open opens the file at path for reading, as os.Open does.
func Open(path string) (*os.File, error) { return os.Open(path) }

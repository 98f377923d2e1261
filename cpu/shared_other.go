//go:build !linux

package cpu

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

func newShared(int) (*Shared, error) { return nil, errNoMemfd }

func openShared(*os.File) (*Shared, error) { return nil, errNoMemfd }

// errNoMemfd is all that there is to say, so that nobody gets a Shared.
var errNoMemfd = fmt.Errorf("cpu: shared memory is a memfd of Linux, and this is %s: %w", runtime.GOOS, errors.ErrUnsupported)

func (m *Shared) mapPart(int64, int, bool) error { return errNoMemfd }

func (m *Shared) sealed() bool { return false }

func (m *Shared) seal() error { return errNoMemfd }

func (m *Shared) file() (*os.File, error) { return nil, errNoMemfd }

func (m *Shared) close() error { return nil }

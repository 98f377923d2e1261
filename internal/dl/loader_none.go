//go:build fuel_static || !((linux && !android && (amd64 || arm64 || loong64 || ppc64le || riscv64)) || (darwin && !ios && (amd64 || arm64)) || (windows && (amd64 || arm64)))

package dl

import "errors"

var system loader = none{}

// none is the loader of a program that has none: Open does not come to it.
type none struct{}

func (none) open(string) (uintptr, string, error) { return 0, "", errors.New(unsupported) }

func (none) lookup(uintptr, string) (uintptr, error) { return 0, errors.New(unsupported) }

func (none) close(uintptr) error { return errors.New(unsupported) }

func call(uintptr, ...uintptr) uintptr { panic("dl: " + unsupported) }

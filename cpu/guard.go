package cpu

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// A FaultError says that memory could not be read or written: the file under
// a mapping was truncated, or the device it is on failed.
type FaultError struct {
	Addr uintptr // of the access, where the system tells, else 0
}

func (e *FaultError) Error() string {
	return fmt.Sprintf("cpu: memory fault at %#x", e.Addr)
}

// Guard calls leaf and returns a *FaultError where it faults on an address
// that a load or store cannot reach. leaf must do nothing but touch the
// memory in question, since any fault in it is blamed on that memory; it must
// hold no lock. Other panics pass through.
//
// The setting behind it belongs to the calling goroutine: a leaf that starts
// another one must guard there.
func Guard(leaf func()) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = &FaultError{Addr: r.Addr()}
		case runtime.Error:
			if r.Error() != unknownAddress {
				panic(r)
			}
			err = &FaultError{}
		default:
			panic(r)
		}
	}()
	leaf()
	return nil
}

// unknownAddress is what the runtime makes of a fault that comes without an
// address, as from qemu-user: it takes it for address 0.
const unknownAddress = "runtime error: invalid memory address or nil pointer dereference"

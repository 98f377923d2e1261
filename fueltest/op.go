package fueltest

import "fmt"

// An Op is something that fuel asks of a driver. Counters and failures of a
// Fake go by it.
type Op uint8

// The operations.
const (
	OpProbe        Op = iota // look for devices
	OpOpen                   // open one
	OpMemory                 // how much memory is there
	OpAlloc                  // allocate
	OpFree                   // give back
	OpFill                   // repeat a pattern in device memory
	OpCopy                   // copy within a device
	OpUpload                 // copy from the host
	OpDownload               // copy to the host
	OpDone                   // ask whether work has passed
	OpWait                   // wait for work
	OpWaitExternal           // make work wait for work outside fuel
	OpHandles                // ask for the handles that Visit hands out
	OpClose                  // close a device
	OpImport                 // use host memory as the device's own
	OpPin                    // page-lock host memory
	numOps
)

var opNames = [numOps]string{
	"probe", "open", "memory", "alloc", "free", "fill", "copy", "upload",
	"download", "done", "wait", "wait external", "handles", "close", "import", "pin",
}

// String returns the name in lower case.
func (op Op) String() string {
	if op >= numOps {
		return fmt.Sprintf("op(%d)", op)
	}
	return opNames[op]
}

// canFail reports whether a driver can refuse op once a device is open: what
// FailEvery and LostFrom count.
func (op Op) canFail() bool {
	switch op {
	case OpAlloc, OpFill, OpCopy, OpUpload, OpDownload, OpWait, OpWaitExternal, OpImport, OpPin:
		return true
	}
	return false
}

// queues reports whether a failure of op can come later, from Wait.
func (op Op) queues() bool { return op == OpFill || op == OpCopy || op == OpUpload }

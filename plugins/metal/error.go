package metal

import (
	"fmt"

	"github.com/go-fuel/fuel/internal/backend"
)

// statusError is MTLCommandBufferStatusError, statusCompleted the one before.
const (
	statusCompleted = 4
	statusError     = 5
)

// codeNames are MTLCommandBufferError.
var codeNames = map[int64]string{
	1: "Internal", 2: "Timeout", 3: "PageFault", 4: "AccessRevoked", 7: "NotPermitted", 8: "OutOfMemory",
	9: "InvalidResource", 10: "Memoryless", 11: "DeviceRemoved", 12: "StackOverflow",
}

// A workError is a command buffer that failed. What it was to write is unknown
// then, and Metal runs nothing that depends on it, so the device counts as lost.
type workError struct {
	point backend.Point
	code  int64
	text  string
}

func (e *workError) Error() string {
	name := "unknown error"
	if s, ok := codeNames[e.code]; ok {
		name = "MTLCommandBufferError" + s
	}
	return fmt.Sprintf("command buffer %d: %s (%d): %s", e.point, name, e.code, e.text)
}

func (e *workError) Unwrap() error { return backend.ErrLost }

// nothing is the error of a message that answered nil where it must not.
func nothing(msg message) error {
	return fmt.Errorf("[%s %s] returned nil", messages[msg].class, messages[msg].selector)
}

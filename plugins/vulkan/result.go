package vulkan

import (
	"fmt"

	"github.com/go-fuel/fuel/internal/backend"
)

// A result is a VkResult.
type result int32

const (
	success    result = 0
	notReady   result = 1
	timeout    result = 2
	incomplete result = 5

	outOfHostMemory   result = -1
	outOfDeviceMemory result = -2
	initFailed        result = -3
	deviceLost        result = -4
	memoryMapFailed   result = -5
	layerNotPresent   result = -6
	incompatible      result = -9
	tooManyObjects    result = -10
)

var resultNames = map[result]string{
	notReady: "VK_NOT_READY", timeout: "VK_TIMEOUT", incomplete: "VK_INCOMPLETE",
	outOfHostMemory: "VK_ERROR_OUT_OF_HOST_MEMORY", outOfDeviceMemory: "VK_ERROR_OUT_OF_DEVICE_MEMORY",
	initFailed: "VK_ERROR_INITIALIZATION_FAILED", deviceLost: "VK_ERROR_DEVICE_LOST",
	memoryMapFailed: "VK_ERROR_MEMORY_MAP_FAILED", layerNotPresent: "VK_ERROR_LAYER_NOT_PRESENT",
	-7: "VK_ERROR_EXTENSION_NOT_PRESENT", -8: "VK_ERROR_FEATURE_NOT_PRESENT", incompatible: "VK_ERROR_INCOMPATIBLE_DRIVER",
	tooManyObjects: "VK_ERROR_TOO_MANY_OBJECTS", -11: "VK_ERROR_FORMAT_NOT_SUPPORTED", -12: "VK_ERROR_FRAGMENTED_POOL",
	-13: "VK_ERROR_UNKNOWN", -1000069000: "VK_ERROR_OUT_OF_POOL_MEMORY", -1000072003: "VK_ERROR_INVALID_EXTERNAL_HANDLE",
}

func (r result) String() string {
	if name, ok := resultNames[r]; ok {
		return fmt.Sprintf("%s (%d)", name, int32(r))
	}
	return fmt.Sprintf("VkResult %d", int32(r))
}

// A callError is a call that failed.
type callError struct {
	call   string
	result result
}

func (e *callError) Error() string { return e.call + ": " + e.result.String() }

// Unwrap tells the core what it means.
func (e *callError) Unwrap() error {
	switch e.result {
	case outOfHostMemory, outOfDeviceMemory, memoryMapFailed, tooManyObjects:
		return backend.ErrNoMemory
	case deviceLost:
		return backend.ErrLost
	}
	return nil
}

// failed is nil for success.
func failed(call string, r result) error {
	if r >= 0 && r != timeout && r != notReady {
		return nil
	}
	return &callError{call, r}
}

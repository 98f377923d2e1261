package cuda

import (
	"fmt"
	"unsafe"

	"github.com/go-fuel/fuel/internal/backend"
	"github.com/go-fuel/fuel/internal/dl"
)

// A result is a CUresult. It is an error, so that errors.Is finds it.
type result int32

const (
	success             result = 0
	outOfMemory         result = 2
	deinitialized       result = 4
	stubLibrary         result = 34
	deviceUnavailable   result = 46
	noDevice            result = 100
	invalidContext      result = 201
	eccUncorrectable    result = 214
	nvlinkUncorrectable result = 220
	contained           result = 226
	operatingSystem     result = 304
	invalidHandle       result = 400
	notReady            result = 600
	illegalAddress      result = 700
	launchTimeout       result = 702
	peerAlreadyEnabled  result = 704
	contextIsDestroyed  result = 709
	deviceAssert        result = 710
	notRegistered       result = 713
	hardwareStackError  result = 714
	illegalInstruction  result = 715
	misalignedAddress   result = 716
	invalidAddressSpace result = 717
	invalidPC           result = 718
	launchFailed        result = 719
	tensorMemoryLeak    result = 721
	systemNotReady      result = 802
	systemMismatch      result = 803
	compatNotSupported  result = 804
	mpsConnectionFailed result = 805
	mpsClientTerminated result = 810
	externalDevice      result = 911
	unknown             result = 999
)

// resultNames are all of CUDA 13.5; TestResultsHaveTheirNames compares them.
var resultNames = map[result]string{
	1: "CUDA_ERROR_INVALID_VALUE", 2: "CUDA_ERROR_OUT_OF_MEMORY", 3: "CUDA_ERROR_NOT_INITIALIZED", 4: "CUDA_ERROR_DEINITIALIZED",
	5: "CUDA_ERROR_PROFILER_DISABLED", 6: "CUDA_ERROR_PROFILER_NOT_INITIALIZED", 7: "CUDA_ERROR_PROFILER_ALREADY_STARTED",
	8: "CUDA_ERROR_PROFILER_ALREADY_STOPPED", 34: "CUDA_ERROR_STUB_LIBRARY", 36: "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
	46: "CUDA_ERROR_DEVICE_UNAVAILABLE", 47: "CUDA_ERROR_MULTICAST_RESOURCE_FULL", 100: "CUDA_ERROR_NO_DEVICE", 101: "CUDA_ERROR_INVALID_DEVICE",
	102: "CUDA_ERROR_DEVICE_NOT_LICENSED", 200: "CUDA_ERROR_INVALID_IMAGE", 201: "CUDA_ERROR_INVALID_CONTEXT",
	202: "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", 205: "CUDA_ERROR_MAP_FAILED", 206: "CUDA_ERROR_UNMAP_FAILED", 207: "CUDA_ERROR_ARRAY_IS_MAPPED",
	208: "CUDA_ERROR_ALREADY_MAPPED", 209: "CUDA_ERROR_NO_BINARY_FOR_GPU", 210: "CUDA_ERROR_ALREADY_ACQUIRED", 211: "CUDA_ERROR_NOT_MAPPED",
	212: "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", 213: "CUDA_ERROR_NOT_MAPPED_AS_POINTER", 214: "CUDA_ERROR_ECC_UNCORRECTABLE",
	215: "CUDA_ERROR_UNSUPPORTED_LIMIT", 216: "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", 217: "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
	218: "CUDA_ERROR_INVALID_PTX", 219: "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", 220: "CUDA_ERROR_NVLINK_UNCORRECTABLE",
	221: "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", 222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", 223: "CUDA_ERROR_JIT_COMPILATION_DISABLED",
	224: "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", 225: "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", 226: "CUDA_ERROR_CONTAINED",
	227: "CUDA_ERROR_INSUFFICIENT_LOADER_VERSION", 300: "CUDA_ERROR_INVALID_SOURCE", 301: "CUDA_ERROR_FILE_NOT_FOUND",
	302: "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", 303: "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", 304: "CUDA_ERROR_OPERATING_SYSTEM",
	400: "CUDA_ERROR_INVALID_HANDLE", 401: "CUDA_ERROR_ILLEGAL_STATE", 402: "CUDA_ERROR_LOSSY_QUERY", 500: "CUDA_ERROR_NOT_FOUND",
	600: "CUDA_ERROR_NOT_READY", 700: "CUDA_ERROR_ILLEGAL_ADDRESS", 701: "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", 702: "CUDA_ERROR_LAUNCH_TIMEOUT",
	703: "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", 704: "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", 705: "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
	708: "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", 709: "CUDA_ERROR_CONTEXT_IS_DESTROYED", 710: "CUDA_ERROR_ASSERT", 711: "CUDA_ERROR_TOO_MANY_PEERS",
	712: "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", 713: "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", 714: "CUDA_ERROR_HARDWARE_STACK_ERROR",
	715: "CUDA_ERROR_ILLEGAL_INSTRUCTION", 716: "CUDA_ERROR_MISALIGNED_ADDRESS", 717: "CUDA_ERROR_INVALID_ADDRESS_SPACE", 718: "CUDA_ERROR_INVALID_PC",
	719: "CUDA_ERROR_LAUNCH_FAILED", 720: "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", 721: "CUDA_ERROR_TENSOR_MEMORY_LEAK",
	800: "CUDA_ERROR_NOT_PERMITTED", 801: "CUDA_ERROR_NOT_SUPPORTED", 802: "CUDA_ERROR_SYSTEM_NOT_READY", 803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
	804: "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", 805: "CUDA_ERROR_MPS_CONNECTION_FAILED", 806: "CUDA_ERROR_MPS_RPC_FAILURE",
	807: "CUDA_ERROR_MPS_SERVER_NOT_READY", 808: "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", 809: "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
	810: "CUDA_ERROR_MPS_CLIENT_TERMINATED", 811: "CUDA_ERROR_CDP_NOT_SUPPORTED", 812: "CUDA_ERROR_CDP_VERSION_MISMATCH",
	900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", 901: "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", 902: "CUDA_ERROR_STREAM_CAPTURE_MERGE",
	903: "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", 904: "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", 905: "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
	906: "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", 907: "CUDA_ERROR_CAPTURED_EVENT", 908: "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
	909: "CUDA_ERROR_TIMEOUT", 910: "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", 911: "CUDA_ERROR_EXTERNAL_DEVICE", 912: "CUDA_ERROR_INVALID_CLUSTER_SIZE",
	913: "CUDA_ERROR_FUNCTION_NOT_LOADED", 914: "CUDA_ERROR_INVALID_RESOURCE_TYPE", 915: "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
	916: "CUDA_ERROR_KEY_ROTATION", 917: "CUDA_ERROR_STREAM_DETACHED", 918: "CUDA_ERROR_GRAPH_RECAPTURE_FAILURE", 919: "CUDA_ERROR_FABRIC_NOT_READY",
	999: "CUDA_ERROR_UNKNOWN",
}

func (r result) Error() string {
	if name, ok := resultNames[r]; ok {
		return fmt.Sprintf("%s (%d)", name, int32(r))
	}
	return fmt.Sprintf("CUresult %d", int32(r))
}

// Unwrap tells the core what it means.
func (r result) Unwrap() error {
	switch r {
	case outOfMemory:
		return backend.ErrNoMemory
	case deinitialized, invalidContext, contextIsDestroyed, // the context is gone
		eccUncorrectable, nvlinkUncorrectable, contained,
		illegalAddress, launchTimeout, deviceAssert, hardwareStackError, illegalInstruction, misalignedAddress,
		invalidAddressSpace, invalidPC, launchFailed, tensorMemoryLeak, unknown,
		mpsClientTerminated, externalDevice: // the process has to be started anew
		// Those of a context's own work stay: every later call in it fails so.
		// The answer to a call that names another device's things may be about
		// that one: see port.own.
		return backend.ErrLost
	}
	return nil
}

// A callError is a call that failed.
type callError struct {
	call string
	name string // where the driver knows a code that this package does not
	result
}

func (e *callError) Error() string {
	if e.name != "" {
		return fmt.Sprintf("%s: %s (%d)", e.call, e.name, int32(e.result))
	}
	return e.call + ": " + e.result.Error()
}

func (e *callError) Unwrap() error { return e.result }

// failed is nil for success.
func (c *calls) failed(call string, r dl.Result) error {
	code := result(r.Int32())
	if code == success {
		return nil
	}
	return &callError{call, c.nameOf(code), code}
}

// nameOf asks the driver for the name of a result that this package does not
// know.
func (c *calls) nameOf(r result) string {
	if resultNames[r] != "" || !c.GetErrorName.Valid() {
		return ""
	}
	name := new(unsafe.Pointer) // to static memory of the driver's
	if c.GetErrorName.Call(uintptr(uint32(r)), uintptr(unsafe.Pointer(name))).Int32() != 0 || *name == nil {
		return ""
	}
	const most = 100
	text := unsafe.Slice((*byte)(*name), most)
	for i := range text { // no byte behind the text is read
		if text[i] == 0 {
			return string(text[:i])
		}
	}
	return ""
}

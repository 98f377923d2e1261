package cuda

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// An abi is what testdata/abi.txt says.
type abi struct {
	functions map[string][]string // classes of the parameters
	results   map[result]string
	constants map[string]int
}

func readABI(t *testing.T) abi {
	t.Helper()
	text, err := os.ReadFile("testdata/abi.txt")
	if err != nil {
		t.Fatal(err)
	}
	a := abi{map[string][]string{}, map[result]string{}, map[string]int{}}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch words[0] {
		case "function":
			a.functions[words[1]] = words[2:]
		case "result", "constant":
			n, err := strconv.Atoi(words[2])
			if err != nil {
				t.Fatal(err)
			}
			if words[0] == "result" {
				a.results[result(n)] = words[1]
			} else {
				a.constants[words[1]] = n
			}
		}
	}
	if len(a.functions) < 30 || len(a.results) < 90 || len(a.constants) < 7 {
		t.Fatalf("%d functions, %d results, %d constants", len(a.functions), len(a.results), len(a.constants))
	}
	return a
}

// Reports 21 (linux-rdma/perftest#350) of VENDOR-APIS.md: what is called has the
// name and the parameters that NVIDIA declares for it, and nothing makes a context.
func TestFunctionsAreThoseOfTheDriver(t *testing.T) {
	a := readABI(t)
	for _, f := range fields(new(calls)) {
		want, known := a.functions[f.symbol]
		if !known || !slices.Equal(f.classes, want) {
			t.Errorf("%s %v, and its parameters are %v", f.symbol, f.classes, want)
		}
		if strings.HasPrefix(f.symbol, "cuCtxCreate") || strings.HasSuffix(f.symbol, "_ptsz") || strings.HasSuffix(f.symbol, "_ptds") {
			t.Errorf("%s is used", f.symbol)
		}
		if older, _, _ := strings.Cut(f.symbol, "_v2"); f.older != "" && f.older != older {
			t.Errorf("%s is no older name of %s", f.older, f.symbol)
		}
		delete(a.functions, f.symbol)
	}
	if len(a.functions) > 0 {
		t.Errorf("not used: %v", a.functions)
	}
}

// The calls themselves pass as many arguments.
func TestCallsPassEveryParameter(t *testing.T) {
	count := map[string]int{}
	for _, f := range fields(new(calls)) {
		count[f.name] = len(f.classes)
	}
	found := map[string]int{}
	for _, file := range []string{"cuda.go", "port.go", "clock.go", "peer.go", "register.go", "library.go", "result.go"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\.(\w+)\.Call\(`).FindAllStringSubmatchIndex(string(text), -1) {
			name := string(text[m[2]:m[3]])
			found[name]++
			if n := arguments(string(text[m[1]:])); n != count[name] {
				t.Errorf("%s: %s gets %d arguments, and has %d", file, name, n, count[name])
			}
		}
	}
	for name := range count {
		if found[name] == 0 {
			t.Errorf("%s is never called", name)
		}
	}
}

// arguments counts those of a call up to its closing bracket.
func arguments(text string) int {
	depth, n := 0, 1
	for i, c := range text {
		switch {
		case c == '(' || c == '[':
			depth++
		case c == ')' && depth == 0:
			if i == 0 {
				return 0
			}
			return n
		case c == ')' || c == ']':
			depth--
		case c == ',' && depth == 0:
			n++
		}
	}
	return -1
}

func TestResultsHaveTheirNames(t *testing.T) {
	a := readABI(t)
	delete(a.results, success)
	for r, name := range a.results {
		if resultNames[r] != name {
			t.Errorf("%d is %q, and not %q", r, name, resultNames[r])
		}
	}
	for r, name := range resultNames {
		if a.results[r] != name {
			t.Errorf("%d, %s, is none", r, name)
		}
	}
	for name, r := range map[string]result{
		"OUT_OF_MEMORY": outOfMemory, "DEINITIALIZED": deinitialized, "STUB_LIBRARY": stubLibrary, "DEVICE_UNAVAILABLE": deviceUnavailable,
		"NO_DEVICE": noDevice, "INVALID_CONTEXT": invalidContext, "ECC_UNCORRECTABLE": eccUncorrectable, "NVLINK_UNCORRECTABLE": nvlinkUncorrectable,
		"CONTAINED": contained, "OPERATING_SYSTEM": operatingSystem, "INVALID_HANDLE": invalidHandle, "MPS_CLIENT_TERMINATED": mpsClientTerminated, "EXTERNAL_DEVICE": externalDevice, "NOT_READY": notReady, "ILLEGAL_ADDRESS": illegalAddress,
		"LAUNCH_TIMEOUT": launchTimeout, "PEER_ACCESS_ALREADY_ENABLED": peerAlreadyEnabled, "CONTEXT_IS_DESTROYED": contextIsDestroyed, "HOST_MEMORY_NOT_REGISTERED": notRegistered, "ASSERT": deviceAssert, "HARDWARE_STACK_ERROR": hardwareStackError,
		"ILLEGAL_INSTRUCTION": illegalInstruction, "MISALIGNED_ADDRESS": misalignedAddress, "INVALID_ADDRESS_SPACE": invalidAddressSpace,
		"INVALID_PC": invalidPC, "LAUNCH_FAILED": launchFailed, "TENSOR_MEMORY_LEAK": tensorMemoryLeak, "SYSTEM_NOT_READY": systemNotReady,
		"SYSTEM_DRIVER_MISMATCH": systemMismatch, "COMPAT_NOT_SUPPORTED_ON_DEVICE": compatNotSupported,
		"MPS_CONNECTION_FAILED": mpsConnectionFailed, "UNKNOWN": unknown,
	} {
		if got := a.results[r]; got != "CUDA_ERROR_"+name {
			t.Errorf("%s is %d, which is %s", name, r, got)
		}
	}
}

func TestConstantsAreThoseOfTheDriver(t *testing.T) {
	a := readABI(t)
	for name, v := range map[string]int{
		"CU_DEVICE_ATTRIBUTE_INTEGRATED": attributeIntegrated, "CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY": attributeManaged,
		"CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS": attributeConcurrentManaged,
		"CU_STREAM_NON_BLOCKING":                        nonBlocking, "CU_EVENT_BLOCKING_SYNC": blockingSync, "CU_EVENT_DISABLE_TIMING": noTiming,
		"CU_MEM_ATTACH_GLOBAL":                        attachGlobal,
		"CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED": attributeHostRegister, "CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED": attributeReadOnlyRegister,
		"CU_MEMHOSTREGISTER_PORTABLE": hostRegisterPortable, "CU_MEMHOSTREGISTER_DEVICEMAP": hostRegisterDeviceMap, "CU_MEMHOSTREGISTER_READ_ONLY": hostRegisterReadOnly,
	} {
		if want, known := a.constants[name]; !known || v != want {
			t.Errorf("%s is %d, and not %d", name, want, v)
		}
	}
}

// The stand-in has the driver's functions as they are.
func TestStandInIsLikeTheDriver(t *testing.T) {
	a := readABI(t)
	text, err := os.ReadFile("testdata/fakecuda.c")
	if err != nil {
		t.Fatal(err)
	}
	classes := map[string]string{"int": "32", "unsigned": "32", "CUdevice": "32", "CUresult": "32", "size_t": "size",
		"CUdeviceptr": "64", "CUcontext": "ptr", "CUstream": "ptr", "CUevent": "ptr"}
	for _, m := range regexp.MustCompile(`(?m)^CUresult (cu\w+)\((.*)\) \{$`).FindAllStringSubmatch(string(text), -1) {
		want, used := a.functions[m[1]]
		if !used {
			continue // of a user's
		}
		var got []string
		for p := range strings.SplitSeq(m[2], ", ") {
			if strings.Contains(p, "*") {
				got = append(got, "ptr")
			} else {
				got = append(got, classes[strings.Fields(p)[0]])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has %v, and the driver's %v", m[1], got, want)
		}
		delete(a.functions, m[1])
	}
	if len(a.functions) > 0 {
		t.Errorf("it lacks %v", a.functions)
	}
}

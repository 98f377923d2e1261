package cpu

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

var globalMemoryStatusEx = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// HostMemory tells the bytes of the machine's memory, and how many of them a
// program could get without swapping, as the system estimates it. -1 is
// unknown. Limits of the process or its container are not in it.
func HostMemory() (total, available int64) {
	// MEMORYSTATUSEX, learn.microsoft.com/windows/win32/api/sysinfoapi.
	var m struct {
		length, load         uint32
		totalPhys, availPhys uint64
		rest                 [5]uint64
	}
	m.length = uint32(unsafe.Sizeof(m))
	if ok, _, _ := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&m))); ok == 0 {
		return -1, -1
	}
	return int64(m.totalPhys), int64(m.availPhys)
}

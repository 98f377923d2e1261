//go:build !linux && !windows

package cpu

// HostMemory tells the bytes of the machine's memory, and how many of them a
// program could get without swapping, as the system estimates it. -1 is
// unknown, as everything is on this platform.
func HostMemory() (total, available int64) { return -1, -1 }

//go:build !linux

package cpu

// HostBudget tells what the machine allows. Limits of a container are not in
// it on this platform.
func HostBudget() Budget {
	b := Budget{Total: -1, Free: -1}
	total, free := HostMemory()
	b.least(total, free, "host")
	return b
}

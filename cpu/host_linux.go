package cpu

import "os"

// HostMemory tells the bytes of the machine's memory, and how many of them a
// program could get without swapping, as the system estimates it. -1 is
// unknown. Limits of the process or its container are not in it: see
// HostBudget.
func HostMemory() (total, available int64) {
	b := Budget{Total: -1, Free: -1}
	b.meminfo(os.DirFS("/"))
	return b.Total, b.Free
}

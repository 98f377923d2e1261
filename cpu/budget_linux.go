package cpu

import "os"

// HostBudget tells what the machine and every control group of the process,
// with its ancestors, allow, version 1 and 2. It reads a handful of files.
func HostBudget() Budget { return ReadBudget(os.DirFS("/")) }

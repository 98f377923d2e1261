package metal

import "syscall"

// system is the version of the system, of which the drivers are part.
func system() string {
	v, err := syscall.Sysctl("kern.osproductversion")
	if err != nil {
		return ""
	}
	return "macOS " + v
}

//go:build fuel_static || !linux || android || !(amd64 || arm64 || loong64 || ppc64le || riscv64)

package dl

// Guarded calls f, which initializes a library. What it does to the program's
// signals is looked at on Linux only.
func Guarded(f func()) (changed []string) {
	f()
	return nil
}

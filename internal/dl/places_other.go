//go:build !darwin

package dl

// places returns where a library of this name may lie: the loader knows.
func places(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

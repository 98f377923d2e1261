//go:build !darwin

package metal

// system is not asked where there is no Metal but that of a test.
func system() string { return "" }

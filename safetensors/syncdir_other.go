//go:build !unix

package safetensors

// syncDir does nothing: directories cannot be synchronised here.
func syncDir(string) error { return nil }

package dl

import "strings"

// places returns where a library of this name may lie. dlopen of a file name
// alone also looks in the current directory, so it gets paths.
func places(name string) []string {
	switch {
	case name == "":
		return nil
	case strings.Contains(name, "/"):
		return []string{name}
	}
	// The system's own, which exist in dyld's cache only; Homebrew's on arm64;
	// Homebrew's on amd64 and the Vulkan SDK's.
	return []string{"/usr/lib/" + name, "/opt/homebrew/lib/" + name, "/usr/local/lib/" + name}
}

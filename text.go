package fuel

import "fmt"

// name is the text form of a small enumeration.
func name[T ~uint8](v T, names []string, what string) string {
	if int(v) >= len(names) {
		return fmt.Sprintf("%s(%d)", what, v)
	}
	return names[v]
}

// unname sets v to the value that text names.
func unname[T ~uint8](v *T, text []byte, names []string, what string) error {
	for i, n := range names {
		if n == string(text) {
			*v = T(i)
			return nil
		}
	}
	return fmt.Errorf("fuel: %q is no %s: %q", text, what, names)
}

package main

import "testing"

func TestTextFromOutsideCannotMoveTheCursor(t *testing.T) {
	for in, want := range map[string]string{
		"":                      "",
		"plain — größer":        "plain — größer",
		"two\n lines\r\n\nhere": "two; lines; here",
		"\x1b[31mred\x00\a":     `\x1b[31mred\x00\a`,
		"bad \xff byte":         `bad \xff byte`,
		"a\tb":                  `a\tb`,
		"\u202egnp.exe":         `\u202egnp.exe`,
		"a\u2028b":              `a\u2028b`,
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q instead of %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"":           `""`,
		"a.b/weight": "a.b/weight",
		"重み":         "重み",
		" a":         `" a"`,
		"a\nb":       `"a\nb"`,
		"\xff":       `"\xff"`,
	} {
		if got := named(in); got != want {
			t.Errorf("named(%q) = %s instead of %s", in, got, want)
		}
	}
}

func TestMemorySize(t *testing.T) {
	for in, want := range map[int64]string{
		-1: "unknown", 0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 29: "1.5 GiB", 1<<63 - 1: "8.0 EiB",
	} {
		if got := memorySize(in); got != want {
			t.Errorf("memorySize(%d) = %s instead of %s", in, got, want)
		}
	}
}

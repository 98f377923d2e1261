package metal

import (
	"slices"
	"strings"
	"testing"
)

// unpack reads the types of a method as a runtime encodes them: result, receiver,
// selector and arguments, each with its place in an old kind of frame.
func unpack(encoding string) (result string, args []string) {
	var list []string
	for s := encoding; s != ""; {
		n := 0
		for strings.IndexByte("rnNoORVA^", s[n]) >= 0 { // qualifiers, pointers
			n++
		}
		depth := 0
		for {
			switch s[n] {
			case '{', '(', '[':
				depth++
			case '}', ')', ']':
				depth--
			}
			if n++; depth == 0 {
				break
			}
		}
		list = append(list, strings.TrimLeft(s[:n], "rnNoORVA"))
		s = strings.TrimLeft(s[n:], "-+0123456789")
	}
	if len(list) < 3 {
		return "no method: " + encoding, nil
	}
	return list[0], list[3:]
}

// checkEncoding compares a signature with what a runtime has.
func checkEncoding(t *testing.T, s signature, encoding string) {
	t.Helper()
	is := func(got, want string) bool {
		// BOOL is a char in some runtimes.
		return class(got) == want || want == "B" && class(got) == "C"
	}
	result, args := unpack(encoding)
	if !is(result, class(s.result)) || !slices.EqualFunc(args, letters(s.args), is) {
		t.Errorf("[%s %s] is %q, and %s (%s) here", s.class, s.selector, encoding, s.result, s.args)
	}
}

func TestUnpackLosesNoType(t *testing.T) {
	for encoding, want := range map[string]string{
		"@32@0:8Q16Q24":                        "@ [Q Q]",
		"v56@0:8@16{_NSRange=QQ}24C40":         "v [@ {_NSRange=QQ} C]",
		"^v16@0:8":                             "^v []",
		"r*16@0:8":                             "* []",
		"Vv16@0:8":                             "v []",
		"{A=^{B}[3f](C=iq)}16@0:8^{D=@:}16@?8": "{A=^{B}[3f](C=iq)} [^{D=@:} @ ?]",
		"":                                     "no method:  []",
	} {
		result, args := unpack(encoding)
		if got := result + " [" + strings.Join(args, " ") + "]"; got != want {
			t.Errorf("%q: %s, want %s", encoding, got, want)
		}
	}
}

package metal

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A fact is a line of testdata/signatures: what another project says.
type fact struct {
	class, owned, result string
	args                 []string
}

// A source is a file of testdata/signatures.
type source struct {
	name      string // with versions
	messages  map[string][]fact
	functions map[string]fact
	constants map[string]int64
}

func readSource(t *testing.T, file string) *source {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "signatures", file))
	if err != nil {
		t.Fatal(err)
	}
	s := &source{messages: map[string][]fact{}, functions: map[string]fact{}, constants: map[string]int64{}}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for len(f) < 6 {
			f = append(f, "")
		}
		x := fact{class: f[1], owned: f[3], result: f[4]}
		if f[5] != "" {
			x.args = strings.Split(f[5], " | ")
		}
		switch f[0] {
		case "source":
			s.name += f[1] + " " + f[2] + " "
		case "message":
			s.messages[f[2]] = append(s.messages[f[2]], x)
		case "function":
			s.functions[f[2]] = x
		case "constant":
			if s.constants[f[1]], err = strconv.ParseInt(f[2], 10, 64); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("%s: %q", file, line)
		}
	}
	if s.name == "" || len(s.messages) == 0 {
		t.Fatalf("%s is empty", file)
	}
	return s
}

// class tells how a type is passed: as one of the letters of message.go, with
// signed integers as unsigned ones, which travel in the same way.
func class(t string) string {
	switch t {
	case "Q", "q", "NSUInteger", "NSInteger", "u64", "MTLResourceOptions", "MTLCommandBufferStatus", "L", "l":
		return "Q"
	case "C", "z", "u8", "c":
		return "C"
	case "B", "Z", "bool":
		return "B"
	case "v", "()", "void", "oneway void":
		return "v"
	case "^v", "NonNull<c_void>":
		return "^v"
	case "*", "r*", "*const c_char", "const char *":
		return "*"
	case "NSRange", "{_NSRange=QQ}":
		return "{_NSRange=QQ}"
	case "@", "@?", "id", "NSString *", "GS_GENERIC_TYPE(ElementT)":
		return "@"
	}
	for _, prefix := range []string{"Retained<", "Option<Retained<", "&ProtocolObject<", "Option<&block2::"} {
		if strings.HasPrefix(t, prefix) {
			return "@"
		}
	}
	return "unknown type " + t
}

// letters splits the args of a signature.
func letters(args string) (list []string) {
	for args != "" {
		n := 1
		switch args[0] {
		case '{':
			n = strings.IndexByte(args, '}') + 1
		case '^':
			n = 2
		}
		list = append(list, args[:n])
		args = args[n:]
	}
	return list
}

// differ says how a source disagrees with a signature; known is false where it
// has no such message.
func differ(s signature, from *source) (what string, known bool) {
	for _, f := range from.messages[s.selector] {
		if f.class != "-" && f.class != s.class {
			continue
		}
		owned := "kept"
		if s.owned {
			owned = "owned"
		}
		want, got := letters(s.args), f.args
		for i := range got {
			got[i] = class(got[i])
		}
		switch {
		case class(f.result) != class(s.result):
			return fmt.Sprintf("result %s, not %s", f.result, s.result), true
		case f.owned != owned:
			return fmt.Sprintf("the result is %s, not %s", f.owned, owned), true
		case !slices.Equal(got, want):
			return fmt.Sprintf("arguments %q, not %q", got, want), true
		}
		return "", true
	}
	return "", false
}

func sources(t *testing.T) []*source {
	return []*source{readSource(t, "objc2.txt"), readSource(t, "pyobjc.txt"), readSource(t, "gnustep.txt")}
}

// once are messages of which one source tells.
var once = []message{retain, release}

func TestSignaturesNeverDifferFromOthers(t *testing.T) {
	all := sources(t)
	for i, s := range messages {
		n := 0
		for _, from := range all {
			what, known := differ(s, from)
			if what != "" {
				t.Errorf("[%s %s]: %s says %s", s.class, s.selector, from.name, what)
			}
			if known {
				n++
			}
		}
		if want := 2; n < want && !slices.Contains(once, message(i)) || n == 0 {
			t.Errorf("[%s %s]: %d sources tell of it", s.class, s.selector, n)
		}
		if want := strings.Count(s.selector, ":"); want != len(letters(s.args)) {
			t.Errorf("[%s %s] has arguments %q", s.class, s.selector, s.args)
		}
	}
}

// Any change to a signature but that of a sign is found.
func TestSignatureCheckMissesNoFault(t *testing.T) {
	all := sources(t)
	found := func(s signature) bool {
		n := 0
		for _, from := range all {
			what, known := differ(s, from)
			if what != "" {
				return true
			}
			if known {
				n++
			}
		}
		return n == 0
	}
	for _, s := range messages {
		faults := map[string]signature{}
		set := func(name string, f func(*signature)) {
			wrong := s
			f(&wrong)
			faults[name] = wrong
		}
		set("selector", func(s *signature) { s.selector = "x" + s.selector })
		set("argument more", func(s *signature) { s.args += "Q" })
		if s.result == "@" {
			set("ownership", func(s *signature) { s.owned = !s.owned })
		}
		for _, r := range []string{"v", "@", "Q", "B", "*", "^v"} {
			if class(r) != class(s.result) {
				set("result "+r, func(s *signature) { s.result = r })
			}
		}
		for i, a := range letters(s.args) {
			for _, r := range []string{"@", "Q", "C"} {
				if r != class(a) {
					set(fmt.Sprintf("argument %d %s", i, r), func(s *signature) {
						list := letters(s.args)
						list[i] = r
						s.args = strings.Join(list, "")
					})
				}
			}
		}
		for name, wrong := range faults {
			if !found(wrong) {
				t.Errorf("[%s %s]: a wrong %s is not found", s.class, s.selector, name)
			}
		}
		// The class is told by one source only where another has none.
		wrong := s
		wrong.class = "MTLNothing"
		n := 0
		for _, from := range all {
			if _, known := differ(wrong, from); known {
				n++
			}
		}
		if n > 1 {
			t.Errorf("[%s %s]: a wrong class is not found", s.class, s.selector)
		}
	}
}

func TestFunctionsAndConstantsNeverDifferFromOthers(t *testing.T) {
	numbers := map[string]int64{
		"MTLResourceStorageModeShared": storageShared, "MTLResourceStorageModePrivate": storagePrivate,
		"MTLCommandBufferStatusCompleted": statusCompleted, "MTLCommandBufferStatusError": statusError,
	}
	for value, name := range codeNames {
		numbers["MTLCommandBufferError"+name] = value
	}
	functions, constants := map[string]int{}, map[string]int{}
	for _, from := range sources(t) {
		for name, f := range from.functions {
			functions[name]++
			if class(f.result) != "@" || f.owned != "owned" || f.args != nil {
				t.Errorf("%s: %s says %+v", name, from.name, f)
			}
		}
		for name, want := range numbers {
			if got, told := from.constants[name]; told {
				constants[name]++
				if got != want {
					t.Errorf("%s is %d here, and %d in %s", name, want, got, from.name)
				}
			}
		}
	}
	if functions["MTLCreateSystemDefaultDevice"] != 2 || functions["MTLCopyAllDevices"] != 1 {
		t.Errorf("sources: %v", functions)
	}
	for name := range numbers {
		if want := 2; constants[name] < want && !strings.Contains(name, "StorageMode") || constants[name] == 0 {
			t.Errorf("%s: %d sources tell of it", name, constants[name])
		}
	}
}

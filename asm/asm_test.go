package asm

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var generate = flag.Bool("generate", false, "write the files instead of comparing them")

// committed is where the file of that path lies. go test runs a test again
// when a file that it opened has changed, but only one below its own module:
// to it this is one, for the path is not cleaned. A path that is would give
// "ok (cached)" whatever happens to the assembly.
func committed(t *testing.T, path string) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir + "/../" + path
}

// What is committed is what the generators make.
func TestCommittedFilesAreTheGenerated(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range files {
		name := committed(t, f.Path)
		known[filepath.Base(name)] = true
		old, err := os.ReadFile(name)
		switch {
		case err == nil && bytes.Equal(old, f.Data):
		case *generate:
			if err := os.WriteFile(name, f.Data, 0o644); err != nil {
				t.Error(err)
			}
		case err != nil:
			t.Error(err)
		default:
			t.Errorf("%s is not what its generator makes (-generate writes it):\n%s", f.Path, diff(string(old), string(f.Data)))
		}
	}
	// Nor is there assembly that nobody generates.
	found, err := filepath.Glob(filepath.Join("..", "cpu", "*.s"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		if !known[filepath.Base(name)] {
			t.Errorf("%s has no generator", name)
		}
	}
}

// diff shows where two texts differ: from the first differing line to the
// last, at most 30 lines of each.
func diff(committed, generated string) string {
	a, b := strings.SplitAfter(committed, "\n"), strings.SplitAfter(generated, "\n")
	line := 0
	for line < min(len(a), len(b)) && a[line] == b[line] {
		line++
	}
	a, b = a[line:], b[line:]
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var out strings.Builder
	fmt.Fprintf(&out, "@@ line %d: %d committed lines, %d generated @@\n", line+1, len(a), len(b))
	for _, side := range []struct {
		sign  string
		lines []string
	}{{"-", a}, {"+", b}} {
		for i, l := range side.lines {
			if i == 30 {
				fmt.Fprintf(&out, "%s…\n", side.sign)
				break
			}
			fmt.Fprintf(&out, "%s%s\n", side.sign, strings.TrimSuffix(l, "\n"))
		}
	}
	return out.String()
}

func TestDiffShowsTheChange(t *testing.T) {
	got := diff("a\nb\nc\n", "a\nB\nc\n")
	if want := "@@ line 2: 1 committed lines, 1 generated @@\n-b\n+B\n"; got != want {
		t.Errorf("diff is %q, want %q", got, want)
	}
}

// Every path of AVX code ends with VZEROUPPER, and stores that go around the
// caches are fenced, but for those of clears and fills: cpu calls fence for them.
func TestReturnsAreClean(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	returns := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Path, "_amd64.s") {
			continue
		}
		for text := range strings.SplitSeq(string(f.Data), "\nTEXT ·") {
			name, body, _ := strings.Cut(text, "(SB)")
			if name == "fence" {
				continue
			}
			var code []string
			for line := range strings.SplitSeq(body, "\n") {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
					code = append(code, line)
				}
			}
			streams := strings.Contains(body, "VMOVNT")
			if streams != strings.Contains(name, "Stream") {
				t.Errorf("%s: it has stores around the caches: %v", name, streams)
			}
			for i, line := range code {
				if line != "RET" {
					continue
				}
				returns++
				if code[i-1] != "VZEROUPPER" {
					t.Errorf("%s: %q before RET", name, code[i-1])
				}
				if fenced := streams && !strings.HasPrefix(name, "zero") && !strings.HasPrefix(name, "fill"); fenced != (code[i-2] == "SFENCE") {
					t.Errorf("%s: %q before VZEROUPPER and RET, and it wants a fence: %v", name, code[i-2], fenced)
				}
			}
		}
	}
	if returns < 48 {
		t.Errorf("%d returns found", returns)
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-fuel/fuel/fueltest"
)

// An outcome is what a run left behind.
type outcome struct {
	code   int
	stdout string
	stderr string
}

// execute runs fuel in this process and fails the test for what no run may do:
// leave memory behind, or report an error in more or less than a line.
func execute(t *testing.T, args ...string) outcome {
	t.Helper()
	return executeAs(t, &program{open: openPath}, args...)
}

func executeAs(t *testing.T, p *program, args ...string) outcome {
	t.Helper()
	fueltest.LeakCheck(t)
	var stdout, stderr bytes.Buffer
	p.stdout, p.stderr, p.enough = &stdout, &stderr, time.Millisecond
	o := outcome{code: p.run(context.Background(), args)}
	o.stdout, o.stderr = stdout.String(), stderr.String()
	if (o.code == exitOK) != (o.stderr == "") {
		t.Errorf("fuel %q: exit status %d with this on the standard error: %q", args, o.code, o.stderr)
	}
	for line := range strings.Lines(o.stderr) {
		if !strings.HasPrefix(line, "fuel: ") || strings.Count(line, "fuel: ") > 1 && strings.HasPrefix(line[6:], "fuel: ") {
			t.Errorf("fuel %q: an error is not one line: %q", args, o.stderr)
		}
	}
	return o
}

// mustExecute is execute for a run that must end well.
func mustExecute(t *testing.T, args ...string) string {
	t.Helper()
	o := execute(t, args...)
	if o.code != exitOK {
		t.Fatalf("fuel %q: exit status %d: %s", args, o.code, o.stderr)
	}
	return o.stdout
}

// decode reads one JSON document, of which nothing may be left.
func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if d.More() {
		t.Errorf("more than one document in %s", text)
	}
	return v
}

// writeTestFile writes a file for one test and returns its path.
func writeTestFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWrongCommandLineIsStatusTwoAndDoesNothing(t *testing.T) {
	for _, test := range []struct {
		args string
		want string // in the one line
	}{
		{"frobnicate", `no command "frobnicate"`},
		{"model.safetensors", `no command "model.safetensors"`},
		{"--frobnicate", "unknown flag: --frobnicate"},
		{"-x", "unknown shorthand flag: 'x'"},
		{"--json probe", `"probe" after a flag`},
		{"--device gpu", `device "gpu"`},
		{"--device cpu:1", `device "cpu:1"`},
		{"check --device", "flag needs an argument: --device"},
		{"check --timeout soon", "invalid argument"},
		{"check --timeout -1s", "negative"},
		{"probe --timeout=-1s", "negative"},
		{"check --min-alignment 3", "not a power of two"},
		{"check --min-alignment -64", "not a power of two"},
		{"inspect --min-alignment 8192 x", "not a power of two"},
		{"inspect", "needs a file"},
		{"probe x", "no arguments"},
		{"probe --version", "unknown flag"},
		{"help me", `no help on "me"`},
		{"help check probe", "one topic"},
	} {
		o := execute(t, strings.Fields(test.args)...)
		if o.code != exitUsage || o.stdout != "" || strings.Count(o.stderr, "\n") != 1 ||
			!strings.Contains(o.stderr, test.want) || !strings.HasSuffix(o.stderr, "; see fuel --help\n") {
			t.Errorf("fuel %s: %+v", test.args, o)
		}
	}
}

func TestHelpIsNoFailureAndFitsTheScreen(t *testing.T) {
	for _, args := range []string{
		"help", "--help", "-h", "help json", "help check", "help probe", "help inspect",
		"check --help", "check -h", "probe --help", "inspect --help", "check x --help --json",
	} {
		o := execute(t, strings.Fields(args)...)
		if o.code != exitOK || o.stderr != "" || !strings.Contains(o.stdout, "fuel") {
			t.Errorf("fuel %s: %+v", args, o)
		}
		for line := range strings.Lines(o.stdout) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 90 || strings.ContainsAny(line, "\t") {
				t.Errorf("fuel %s: a line of %d: %q", args, n, line)
			}
		}
	}
}

func TestHelpLacksNoCommandAndNoFlag(t *testing.T) {
	general := mustExecute(t, "help")
	for _, c := range commands() {
		if !strings.Contains(general, "\n  "+c.name) {
			t.Errorf("fuel help does not have %s", c.name)
		}
		own := mustExecute(t, "help", c.name)
		for _, flag := range []string{"--json", "--help"} {
			if !strings.Contains(own, flag) {
				t.Errorf("fuel help %s does not have %s", c.name, flag)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	out := mustExecute(t, "--version")
	if !regexp.MustCompile(`^fuel \S+ \(go.*\)\n$`).MatchString(out) {
		t.Errorf("got %q", out)
	}
}

// Readers of --json have nothing but the help to go by.
func TestNoFieldOfJSONIsUndocumented(t *testing.T) {
	fueltest.Register(t, kindOfFake, fueltest.FakeOptions{})
	files := []string{writeTestFile(t, "good", oddFile()), "missing"}
	for _, args := range [][]string{
		append([]string{"check", "--json"}, files...),
		append([]string{"inspect", "--json"}, files...),
		{"probe", "--json"},
	} {
		o := execute(t, args...)
		walkKeys(decode[any](t, o.stdout), func(key string) {
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(key) + `\b`).MatchString(helpJSON) {
				t.Errorf("fuel %s: %q is not in the help", args[0], key)
			}
		})
	}
}

func walkKeys(v any, f func(string)) {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			f(key)
			if key != "metadata" { // the file's own keys
				walkKeys(value, f)
			}
		}
	case []any:
		for _, value := range v {
			walkKeys(value, f)
		}
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, errors.New("write: broken pipe") }

func TestClosedPipeIsNeitherSuccessNorPanic(t *testing.T) {
	path := writeTestFile(t, "good", oddFile())
	for _, args := range [][]string{
		{}, {"--json"}, {"check", path}, {"probe"}, {"probe", "--json"}, {"inspect", path},
		{"inspect", "--json", path}, {"help"}, {"help", "json"}, {"--version"},
	} {
		fueltest.LeakCheck(t)
		var stderr bytes.Buffer
		p := &program{stdout: closedPipe{}, stderr: &stderr, open: openPath, enough: time.Millisecond}
		code := p.run(context.Background(), args)
		if code != exitFailure || stderr.String() != "fuel: write: broken pipe\n" {
			t.Errorf("fuel %q: exit status %d, %q", args, code, stderr.String())
		}
	}
}

func TestInterruptedRunSaysSoAndLeavesNothing(t *testing.T) {
	temp := useTempDir(t, t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	path := writeTestFile(t, "good", oddFile())
	for _, args := range [][]string{{}, {"--json"}, {"check", path}, {"inspect", path}, {"inspect", "--json", path}, {"probe"}} {
		fueltest.LeakCheck(t)
		var stdout, stderr bytes.Buffer
		code := run(ctx, args, &stdout, &stderr)
		if code != exitFailure || stdout.Len() != 0 || stderr.String() != "fuel: interrupted\n" {
			t.Errorf("fuel %q: exit status %d, %q, %q", args, code, stdout.String(), stderr.String())
		}
	}
	requireEmpty(t, temp)
}

// useTempDir makes dir the place of temporary files and returns it.
func useTempDir(t *testing.T, dir string) string {
	t.Helper()
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		t.Setenv(name, dir)
	}
	return dir
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s was left behind", e.Name())
	}
}

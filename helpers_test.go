package fuel_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-fuel/fuel"
	"github.com/go-fuel/fuel/internal/require"
)

// cpu is the host.
var cpu = fuel.Device{}

// must returns a function that fails the test on an error and else closes the
// Storage at the end of the test, if the test has not.
func must(t testing.TB) func(*fuel.Storage, error) *fuel.Storage {
	t.Helper()
	return func(s *fuel.Storage, err error) *fuel.Storage {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil && !errors.Is(err, fuel.ErrClosed) {
				t.Error(err)
			}
		})
		return s
	}
}

// count returns n bytes that differ from their neighbours and repeat late.
func count(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + 1)
	}
	return b
}

// contents reads all bytes.
func contents(t testing.TB, s *fuel.Storage) []byte {
	t.Helper()
	b := make([]byte, s.LenBytes())
	if n, err := s.ReadAt(b, 0); n != len(b) || err != nil && err != io.EOF {
		t.Fatalf("ReadAt: %d, %v", n, err)
	}
	return b
}

// wantBytes fails the test unless s holds want.
func wantBytes(t testing.TB, what string, s *fuel.Storage, want []byte) {
	t.Helper()
	if got := contents(t, s); !bytes.Equal(got, want) {
		t.Fatalf("%s: the bytes are wrong: %.32x…, want %.32x…", what, got, want)
	}
}

// wantErr fails the test unless err is what it should be.
func wantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
	var op *fuel.OpError
	if !errors.As(err, &op) {
		t.Errorf("%s: %T is no *OpError", what, err)
	}
}

// file writes contents to a new file and opens it.
func file(t testing.TB, contents []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(contents); err != nil {
		t.Fatal(err)
	}
	return f
}

// memories makes a Storage of each kind of host memory with the given bytes.
var memories = map[string]func(t testing.TB, b []byte) *fuel.Storage{
	"owned": func(t testing.TB, b []byte) *fuel.Storage {
		return must(t)(fuel.FromBytes(cpu, fuel.U8, b))
	},
	"wrapped": func(t testing.TB, b []byte) *fuel.Storage {
		return must(t)(fuel.Wrap(fuel.U8, bytes.Clone(b), nil))
	},
	"mapped": func(t testing.TB, b []byte) *fuel.Storage {
		return must(t)(fuel.Map(file(t, b), fuel.U8, 0, len(b)))
	},
}

// sharedSources makes shared memory with the given bytes, to be closed by the
// caller. It is empty where there is none.
var sharedSources = map[string]func(t testing.TB, b []byte) *fuel.Storage{}

// each runs a test on every kind of host memory.
func each(t *testing.T, size int, f func(t *testing.T, s *fuel.Storage, want []byte)) {
	for name, open := range memories {
		t.Run(name, func(t *testing.T) {
			b := count(size)
			f(t, open(t, b), b)
		})
	}
}

// needsMapping skips where a mapped file is a copy.
func needsMapping(t testing.TB) {
	t.Helper()
	if runtime.GOARCH == "wasm" {
		require.Skip(t, "mmap", "no mapped files on "+runtime.GOOS)
	}
}

// child runs one of the children and returns what it prints and its error.
// FUEL_TEST_EXEC names the emulator where the system cannot run the test
// binary by itself.
func child(t *testing.T, name string, env ...string) (string, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		require.Skip(t, "self-exec", err.Error())
	}
	cmd := exec.Command(exe)
	if emulator := os.Getenv("FUEL_TEST_EXEC"); emulator != "" {
		cmd = exec.Command(emulator, exe)
	}
	cmd.Env = append(append(os.Environ(), "FUEL_TEST_CHILD="+name), env...)
	out, err := cmd.CombinedOutput()
	if _, ran := err.(*exec.ExitError); err != nil && !ran {
		require.Skip(t, "self-exec", err.Error())
	}
	return string(out), err
}

// value returns a function that fails the test on an error and else gives v.
func value[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// filled returns a Storage of n bytes of v on the CPU, to be closed by the
// caller.
func filled(t testing.TB, n int, v byte) *fuel.Storage {
	t.Helper()
	return value(fuel.FromBytes(cpu, fuel.U8, bytes.Repeat([]byte{v}, n)))(t)
}

// all reports whether every byte is v.
func all(b []byte, v byte) bool { return len(bytes.Trim(b, string([]byte{v}))) == 0 }

func fill(t testing.TB, s *fuel.Storage, v byte) {
	t.Helper()
	if err := s.Fill(t.Context(), []byte{v}); err != nil {
		t.Fatal(err)
	}
}

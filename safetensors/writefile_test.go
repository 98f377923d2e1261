package safetensors

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-fuel/fuel"
)

// alone fails the test if dir has anything but the given names.
func alone(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if i >= len(names) || e.Name() != names[i] {
			t.Errorf("%s has %v, want %q", dir, entries, names)
			return
		}
	}
	if len(entries) != len(names) {
		t.Errorf("%s has %v, want %q", dir, entries, names)
	}
}

func TestWriteFileReplaces(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "f.safetensors")
	s := storage(t, fuel.U8, counting(300_000))
	tensors := []Tensor{{"a", []int{300_000}, s}}
	want := written(t, tensors, nil)
	for range 2 {
		if err := WriteFile(path, tensors, nil); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	alone(t, dir, "f.safetensors")
}

func TestFailedWriteFileDestroysNothing(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "f.safetensors")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := storage(t, fuel.U8, counting(1<<20))
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, write := range map[string]func() error{
		"bad shape": func() error { return WriteFile(path, []Tensor{{"a", []int{1}, s}}, nil) },
		"bad name":  func() error { return WriteFile(path, []Tensor{{"__metadata__", []int{1 << 20}, s}}, nil) },
		"cancelled": func() error { return WriteFileContext(cancelled, path, []Tensor{{"a", []int{1 << 20}, s}}, nil) },
		"disk error": func() error {
			return replaceFile(path, func(f *os.File) error { f.WriteString("x"); return errWriter })
		},
		"closed": func() error { return replaceFile(path, func(f *os.File) error { return f.Close() }) },
	} {
		if err := write(); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != "precious" {
			t.Errorf("%s: the file is %q, %v", name, got, err)
		}
		alone(t, dir, "f.safetensors")
	}
	if err := WriteFile(filepath.Join(dir, "none", "f"), nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if err := WriteFile(filepath.Join(path, "f"), nil, nil); err == nil {
		t.Error("a file as directory: no error")
	}
}

func TestWriteFileDoesNotReplaceDirectories(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "d", "x")
	if err := os.MkdirAll(inside, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "d"), nil, nil); err == nil {
		t.Error("a directory: no error")
	}
	alone(t, dir, "d")
	alone(t, filepath.Join(dir, "d"), "x")
}

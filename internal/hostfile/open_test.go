package hostfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestOpenReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); err != nil || string(b) != "bytes" {
		t.Errorf("read %q, %v", b, err)
	}
	if f.Name() != path {
		t.Errorf("name %q", f.Name())
	}
}

func TestOpenOfNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	_, err := Open(path)
	p, ok := errors.AsType[*fs.PathError](err)
	if !errors.Is(err, fs.ErrNotExist) || !ok || p.Path != path {
		t.Errorf("got %v", err)
	}
}

func TestOpenFileCanBeRenamedAndDeleted(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Rename(path, path+"2"); err != nil {
		t.Error(err)
	}
	if err := os.Remove(path + "2"); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(f); err != nil || string(b) != "bytes" {
		t.Errorf("read %q, %v", b, err)
	}
}

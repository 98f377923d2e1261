//go:build unix

package safetensors

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Models are loaded, changed and saved to where they came from.
func TestFileCanBeReplacedByItself(t *testing.T) { // safetensors#762
	noLeaks(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "f.safetensors")
	data := counting(1 << 20)
	if err := os.WriteFile(path, fileOf(headerOf(entryOf("a", "U8", "1048576", 0, 1<<20)), data), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	tensors, err := f.Tensors()
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, tensors, nil); err != nil {
		t.Fatal(err)
	}
	if got := bytesOf(t, tensors[0].Data); !bytes.Equal(got, data) {
		t.Error("the open tensor changed")
	}
	again, err := Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	requireSame(t, f, again)
	closeAll(t, tensors[0].Data, f, again)
}

func TestWriteFileKeepsPermissions(t *testing.T) {
	dir := t.TempDir()
	mode := func(path string) fs.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	old := filepath.Join(dir, "old")
	for _, want := range []fs.FileMode{0o600, 0o640, 0o644, 0o444, 0} {
		os.Remove(old)
		if err := os.WriteFile(old, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(old, want); err != nil {
			t.Fatal(err)
		}
		if err := WriteFile(old, nil, nil); err != nil {
			t.Fatal(err)
		}
		if got := mode(old); got != want {
			t.Errorf("%v became %v", want, got)
		}
	}
	fresh, model := filepath.Join(dir, "fresh"), filepath.Join(dir, "model")
	if err := os.WriteFile(model, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(fresh, nil, nil); err != nil {
		t.Fatal(err)
	}
	if mode(fresh) != mode(model) {
		t.Errorf("a new file has %v, os.WriteFile's %v", mode(fresh), mode(model))
	}
}

func TestWriteFileFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"blobs", "links"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	blob := filepath.Join(dir, "blobs", "b")
	link, second := filepath.Join(dir, "links", "l"), filepath.Join(dir, "links", "second")
	if err := os.Symlink(filepath.Join("..", "blobs", "b"), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(link, second); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first time the links point to nothing
		if err := WriteFile(second, nil, map[string]string{"a": "b"}); err != nil {
			t.Fatal(err)
		}
		f, err := Open(blob, nil)
		if err != nil {
			t.Fatal(err)
		}
		closeAll(t, f)
		alone(t, filepath.Join(dir, "blobs"), "b")
		alone(t, filepath.Join(dir, "links"), "l", "second")
		if info, err := os.Lstat(link); err != nil || info.Mode().Type() != fs.ModeSymlink {
			t.Errorf("the link is %v, %v", info, err)
		}
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(loop, nil, nil); err == nil || !strings.Contains(err.Error(), "links") {
		t.Errorf("loop: %v", err)
	}
}

// A download cache reaches a file through a link to its directory, and a link
// of the file from there: huggingface_hub's models--*/snapshots/*/f.safetensors.
func TestWriteFileNeverReplacesWhatALinkDoesNotName(t *testing.T) {
	for _, target := range []string{"../../blobs/sha", "aside/../sha"} {
		dir := t.TempDir()
		model := filepath.Join(dir, "hub", "model")
		for _, sub := range []string{"blobs/aside", "snapshots/rev"} {
			if err := os.MkdirAll(filepath.Join(model, sub), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		// What the joined names would be, without regard to the links.
		wrong := []string{filepath.Join(dir, "blobs"), filepath.Join(model, "snapshots", "rev", "sha")}
		if err := os.Mkdir(wrong[0], 0o777); err != nil {
			t.Fatal(err)
		}
		wrong[0] = filepath.Join(wrong[0], "sha")
		blob := filepath.Join(model, "blobs", "sha")
		for _, name := range append(wrong, blob) {
			if err := os.WriteFile(name, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		links := [][2]string{
			{target, filepath.Join(model, "snapshots", "rev", "f")},
			{"../../blobs/aside", filepath.Join(model, "snapshots", "rev", "aside")},
			{filepath.Join("hub", "model", "snapshots", "rev"), filepath.Join(dir, "mine")},
		}
		for _, l := range links {
			if err := os.Symlink(l[0], l[1]); err != nil {
				t.Fatal(err)
			}
		}
		// "mine/.." is snapshots, where a name without links says dir.
		for _, path := range []string{dir + "/mine/f", dir + "/mine/../rev/f"} {
			if err := os.WriteFile(blob, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := WriteFile(path, nil, nil); err != nil {
				t.Fatal(err)
			}
			f, err := Open(blob, nil)
			if err != nil {
				t.Fatalf("%s by %s: what the link names was not replaced: %v", path, target, err)
			}
			closeAll(t, f)
			for _, name := range wrong {
				if got, err := os.ReadFile(name); err != nil || string(got) != "precious" {
					t.Errorf("%s by %s: %s is %q, %v", path, target, name, got, err)
				}
			}
			alone(t, dir, "blobs", "hub", "mine")
			alone(t, filepath.Join(model, "blobs"), "aside", "sha")
		}
	}
}

// A new file is made beside its name, whatever ".." in that means.
func TestWriteFileMakesNothingInAnotherDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"real/sub", "readonly"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../real/sub", filepath.Join(dir, "readonly", "link")); err != nil {
		t.Fatal(err)
	}
	var beside []string
	err := replaceFile(dir+"/readonly/link/../f", func(f *os.File) error {
		beside, _ = filepath.Glob(filepath.Join(dir, "real", ".f.*"))
		return nil
	})
	if err != nil || len(beside) != 1 {
		t.Errorf("the temporary file is not beside its name: %q, %v", beside, err)
	}
	alone(t, filepath.Join(dir, "real"), "f", "sub")
	alone(t, filepath.Join(dir, "readonly"), "link")
}

func TestWriteFileTakesLongNames(t *testing.T) {
	dir := t.TempDir()
	name := strings.Repeat("n", 250)
	if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, name), nil, nil); err != nil {
		t.Error(err)
	}
	alone(t, dir, name)
}

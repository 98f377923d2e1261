package fuel_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-fuel/fuel/internal/require"
)

// Report 82: importing a library loader makes every Linux program dynamic. A
// program that imports only the core and the file formats must need no
// interpreter.
func TestCoreProgramsAreStatic(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		require.Skip(t, "go", err.Error())
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	program := `package main

import (
	"fmt"

	"github.com/go-fuel/fuel"
	_ "github.com/go-fuel/fuel/safetensors"
)

func main() {
	s, err := fuel.FromSlice(fuel.Device{}, []float32{1, 2})
	fmt.Println(s.LenBytes(), err)
}
`
	if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		exe := filepath.Join(dir, arch)
		cmd := exec.Command(goTool, "build", "-o", exe, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		f, err := elf.Open(exe)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("linux/%s: the program has %v", arch, p.Type)
			}
		}
		if libs, err := f.ImportedLibraries(); err == nil && len(libs) > 0 {
			t.Errorf("linux/%s: the program needs %v", arch, libs)
		}
	}
}

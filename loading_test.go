package fuel_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// loader matches what opens a library by a name that the working directory or
// PATH can answer. NewLazySystemDLL looks into the system's own folder only.
var loader = regexp.MustCompile(`\b(NewLazyDLL|LoadDLL|MustLoadDLL|LoadLibrary|plugin\.Open|[dD]lopen)\b`)

// Report 83: a loader that looks for plugins in the working directory.
// internal/dl opens libraries by name, and its own tests hold the rule there.
func TestNoLibraryIsLoadedByASearchedName(t *testing.T) {
	if !loader.MatchString(`syscall.NewLazyDLL("x.dll")`) || loader.MatchString(`windows.NewLazySystemDLL("kernel32.dll")`) {
		t.Fatal("the expression does not tell good from bad")
	}
	files := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || filepath.Dir(file) == filepath.Join("internal", "dl") {
			return err
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		files++
		if found := loader.FindAll(source, -1); found != nil {
			t.Errorf("%s: %s", file, found)
		}
		return nil
	})
	if err != nil || files < 30 {
		t.Errorf("%d files, %v", files, err)
	}
}

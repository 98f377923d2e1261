package fuel_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/go-fuel/fuel"
	purego = "github.com/ebitengine/purego" // makes every Linux program that has it dynamic
)

// allowed says for each room of ARCHITECTURE.md what it may import beyond the
// standard library, as prefixes. Tests may import more.
var allowed = map[string][]string{
	"cpu":               {module + "/internal/impl", module + "/internal/race", "golang.org/x/sys/", "github.com/klauspost/cpuid/v2"},
	"internal/backend":  {},
	"internal/check":    {},
	"internal/dl":       {purego, "golang.org/x/sys/"},
	"internal/gpu":      {module + "/internal/backend", module + "/cpu"},
	"plugins/cuda":      {module, module + "/cpu", module + "/internal/backend", module + "/internal/dl", module + "/internal/gpu"},
	"plugins/metal":     {module, module + "/internal/backend", module + "/internal/dl", module + "/internal/gpu"},
	"plugins/vulkan":    {module, module + "/internal/backend", module + "/internal/dl", module + "/internal/gpu"},
	"internal/guard":    {module + "/internal/require", "golang.org/x/sys/"},
	"internal/impl":     {},
	"internal/hostfile": {"golang.org/x/sys/"},
	"internal/race":     {},
	"internal/require":  {},
	"internal/rlimit":   {module + "/internal/require", "golang.org/x/sys/"},
	"internal/track":    {module + "/internal/check"},
	".":                 {module + "/cpu", module + "/internal/backend", module + "/internal/check", module + "/internal/race", module + "/internal/track"},
	"fueltest":          {module, module + "/internal/backend", module + "/internal/check", module + "/internal/race", module + "/internal/track"},
	"safetensors":       {module, module + "/cpu", module + "/internal/hostfile"},
	"cmd/fuel":          {module, module + "/internal/hostfile", module + "/safetensors", module + "/plugins/", "github.com/spf13/pflag"},
}

// imports lists what the files of every package of the module import, without
// its tests.
func imports(t *testing.T) map[string]map[string]bool {
	t.Helper()
	found := map[string]map[string]bool{}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && file != "." && (name[0] == '.' || name == "testdata" || nested(file)) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		room := path.Dir(filepath.ToSlash(file))
		if found[room] == nil {
			found[room] = map[string]bool{}
		}
		for _, i := range f.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			found[room][p] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// nested reports whether a directory is a module of its own.
func nested(dir string) bool {
	m, err := filepath.Glob(filepath.Join(dir, "go.mod"))
	return err == nil && len(m) > 0
}

// The arrows of ARCHITECTURE.md: cpu and internal know nothing of fuel, and
// nobody reaches around it. A program without plugins is static only as long
// as internal/dl alone imports the loader, and plugins alone import internal/dl.
func TestImportArrows(t *testing.T) {
	found := imports(t)
	if len(found) < len(allowed) {
		t.Errorf("%d packages, and %d are known: %v", len(found), len(allowed), found)
	}
	for room, imported := range found {
		may, known := allowed[room]
		if !known {
			t.Errorf("%s is a new room: say in this test what it may import", room)
			continue
		}
		for p := range imported {
			if !strings.Contains(strings.SplitN(p, "/", 2)[0], ".") {
				continue // the standard library
			}
			ok := false
			for _, a := range may {
				ok = ok || p == a || strings.HasSuffix(a, "/") && strings.HasPrefix(p, a)
			}
			if !ok {
				t.Errorf("%s imports %s", room, p)
			}
			if room != "internal/dl" && strings.HasPrefix(p, purego) {
				t.Errorf("%s imports %s, which only internal/dl may", room, p)
			}
			if p == module+"/internal/dl" && !strings.HasPrefix(room, "plugins/") {
				t.Errorf("%s imports %s, which only plugins may", room, p)
			}
		}
	}
}

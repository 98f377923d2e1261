package fueltest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// TestNoExportedNameHasADriverType: whoever got hold of a type of
// internal/backend could add a driver to the closed set.
func TestNoExportedNameHasADriverType(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range files {
		name := file.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range driverTypes(f, &seen) {
			t.Errorf("%s: an exported name has a type of internal/backend", fset.Position(bad.Pos()))
		}
	}
	if seen < 20 {
		t.Errorf("%d exported names: the test looks in the wrong place", seen)
	}
}

// driverTypes returns the places where an exported name shows a type of
// internal/backend or an unexported type, which might embed one.
func driverTypes(f *ast.File, seen *int) (bad []ast.Node) {
	look := func(n ast.Node) {
		if n == nil {
			return
		}
		ast.Inspect(n, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if p, ok := s.X.(*ast.Ident); ok && p.Name == "backend" {
					bad = append(bad, n)
				}
				return false
			}
			if id, ok := n.(*ast.Ident); ok && strings.HasPrefix(id.Name, "fake") {
				bad = append(bad, n)
			}
			return true
		})
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || exportedType(d.Recv.List[0].Type)) {
				*seen++
				look(d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						if n.IsExported() {
							*seen++
							look(spec.Type)
						}
					}
				case *ast.TypeSpec:
					if !spec.Name.IsExported() {
						continue
					}
					*seen++
					st, ok := spec.Type.(*ast.StructType)
					if !ok {
						look(spec.Type)
						continue
					}
					for _, field := range st.Fields.List {
						if len(field.Names) == 0 || field.Names[0].IsExported() {
							look(field.Type)
						}
					}
				}
			}
		}
	}
	return bad
}

func exportedType(e ast.Expr) bool {
	if s, ok := e.(*ast.StarExpr); ok {
		e = s.X
	}
	id, ok := e.(*ast.Ident)
	return ok && id.IsExported()
}

func TestDriverTypeIsFound(t *testing.T) {
	for _, src := range []string{
		"func F() backend.Device { return nil }",
		"func F(d *fakeDevice) {}",
		"type T struct { backend.Device }",
		"type T struct { D []backend.Buffer }",
		"type T struct{}; func (t *T) M(map[string]backend.Point) {}",
		"var V *backend.Driver",
		"type T = backend.Device",
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+src, 0)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		if len(driverTypes(f, &seen)) == 0 {
			t.Errorf("not found: %s", src)
		}
	}
}

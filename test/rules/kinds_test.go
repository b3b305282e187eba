package rules

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// theKinds is the package that names the kinds of limiters. If another package had its own constants for them,
// whoever adds a kind would have to know this second list.
const theKinds = "internal/limit"

// kindsHaveOneName finds types, constants and variables of other packages that rename the kinds.
func kindsHaveOneName(t *tree) (breaches []string) {
	kinds := t.kinds()
	for _, f := range t.files {
		if f.dir == theKinds || f.isTest() || !f.under("internal", "cmd") {
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			switch d := node.(type) {
			case *ast.TypeSpec:
				if f.selects(d.Type, "Kind") {
					breaches = append(breaches, t.at(d, "type %s renames limit.Kind", d.Name.Name))
				}
			case *ast.GenDecl:
				if d.Tok == token.CONST || d.Tok == token.VAR {
					breaches = append(breaches, t.renamedKinds(f, d, kinds)...)
				}
			}
			return true
		})
	}
	return breaches
}

// kinds returns the names of the constants of theKinds that are kinds.
func (t *tree) kinds() (names []string) {
	for _, f := range t.files {
		for _, d := range f.syntax.Decls {
			consts, ok := d.(*ast.GenDecl)
			if f.dir != theKinds || !ok || consts.Tok != token.CONST {
				continue
			}
			if first, ok := consts.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident); !ok || first.Name != "Kind" {
				continue
			}
			for _, spec := range consts.Specs {
				if spec := spec.(*ast.ValueSpec); spec == consts.Specs[0] || spec.Values == nil {
					names = append(names, spec.Names[0].Name)
				}
			}
		}
	}
	return names
}

// renamedKinds finds the names that a declaration gives to kinds.
func (t *tree) renamedKinds(f *source, d *ast.GenDecl, kinds []string) (breaches []string) {
	for _, spec := range d.Specs {
		spec := spec.(*ast.ValueSpec)
		for i, name := range spec.Names {
			if i < len(spec.Values) && f.selects(spec.Values[i], kinds...) {
				breaches = append(breaches, t.at(name, "%s renames a kind of limiters", name.Name))
			}
		}
	}
	return breaches
}

// selects reports whether an expression is one of the names of theKinds, perhaps converted to another type.
func (f *source) selects(e ast.Expr, names ...string) bool {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return f.selects(e.X, names...)
	case *ast.CallExpr:
		return len(e.Args) == 1 && f.selects(e.Args[0], names...)
	case *ast.SelectorExpr:
		qualifier, ok := e.X.(*ast.Ident)
		return ok && f.imports[qualifier.Name] == module+"/"+theKinds && slices.Contains(names, e.Sel.Name)
	}
	return false
}

func TestKindBreaches(t *testing.T) {
	kinds := "package limit\n\ntype Kind uint8\n\nconst (\n\tNone Kind = iota\n\tThrottle\n\tSlidingLog\n\n\tKinds = iota\n)\n"
	imports := "import \"cellserver/internal/limit\"\n\n"
	plantedIn := func(file, text string) []string { return []string{theKinds + "/kind.go", kinds, file, text} }
	runAll(t, []planted{
		{"an alias of a kind", kindsHaveOneName,
			plantedIn("internal/form/a.go", "package form\n\n"+imports+"const log = limit.SlidingLog\n"),
			[]string{"internal/form/a.go:5: log renames a kind of limiters"}},
		{"a converted kind in a function", kindsHaveOneName,
			plantedIn("internal/form/a.go", "package form\n\n"+imports+"func f() {\n\tconst b = byte((limit.Throttle))\n}\n"),
			[]string{"internal/form/a.go:6: b renames a kind of limiters"}},
		{"a variable", kindsHaveOneName,
			plantedIn("internal/form/a.go", "package form\n\n"+imports+"var a, bucket = 1, limit.Throttle\n"),
			[]string{"internal/form/a.go:5: bucket renames a kind of limiters"}},
		{"an alias of the type", kindsHaveOneName,
			plantedIn("internal/store/a.go", "package store\n\n"+imports+"type Kind = limit.Kind\n"),
			[]string{"internal/store/a.go:5: type Kind renames limit.Kind"}},
		{"uses, lists and counts", kindsHaveOneName,
			plantedIn("internal/store/a.go", "package store\n\n"+imports+
				"const most = limit.Kinds - 1\n\nvar fast = []limit.Kind{limit.Throttle}\n\n"+
				"func f(k limit.Kind) bool { return k == limit.Throttle }\n"),
			nil},
	})
}

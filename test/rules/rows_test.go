package rules

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// rowsAreNotCompared finds comparisons with a command's row, by its address or its name. Code
// should ask the row for a fact instead: a comparison hides a fact that belongs on the row, and
// that a new command could not share.
func rowsAreNotCompared(t *tree) (breaches []string) {
	for _, f := range t.files {
		if f.isTestCode() || !f.under("internal") {
			continue
		}
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			for _, compared := range comparedIn(node) {
				switch {
				case isAddress(compared):
					breaches = append(breaches, t.at(compared, "compares an address: let the row say the fact"))
				case isRowName(compared) && !comparesNoName(node):
					breaches = append(breaches, t.at(compared, "compares a row's name: let the row say the fact"))
				}
			}
			return true
		})
	}
	return breaches
}

// comparedIn returns what a node compares: operands, cases, and the argument of a search for a
// prefix.
func comparedIn(node ast.Node) []ast.Expr {
	switch n := node.(type) {
	case *ast.BinaryExpr:
		if n.Op == token.EQL || n.Op == token.NEQ {
			return []ast.Expr{n.X, n.Y}
		}
	case *ast.CaseClause:
		return n.List
	case *ast.SwitchStmt:
		if n.Tag != nil {
			return []ast.Expr{n.Tag}
		}
	case *ast.CallExpr:
		if called, ok := n.Fun.(*ast.SelectorExpr); ok && called.Sel.Name == "HasPrefix" && len(n.Args) == 2 {
			return n.Args[:1]
		}
	}
	return nil
}

// comparesNoName reports whether a comparison is not with a command's name, but with "", or with
// the row's own name in lower case.
func comparesNoName(node ast.Node) bool {
	binary, ok := node.(*ast.BinaryExpr)
	if !ok {
		return false
	}
	literal, ok := binary.Y.(*ast.BasicLit)
	return !ok || literal.Value == `""`
}

func isAddress(e ast.Expr) bool {
	unary, ok := e.(*ast.UnaryExpr)
	return ok && unary.Op == token.AND
}

// isRowName reports whether an expression is a row's name: the field Name of a variable row or
// command, or of a field row.
func isRowName(e ast.Expr) bool {
	selector, ok := e.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "Name" {
		return false
	}
	switch of := selector.X.(type) {
	case *ast.Ident:
		return slices.Contains([]string{"row", "command"}, of.Name)
	case *ast.SelectorExpr:
		return of.Sel.Name == "row"
	}
	return false
}

func TestRowBreaches(t *testing.T) {
	const begin = "package a\n\nfunc f() bool { "
	const file = "internal/a/a.go"
	address := []string{"internal/a/a.go:3: compares an address: let the row say the fact"}
	name := []string{"internal/a/a.go:3: compares a row's name: let the row say the fact"}
	runAll(t, []planted{
		{"by address", rowsAreNotCompared, []string{file, begin + "return row == &exec }\n"}, address},
		{"by address in a switch", rowsAreNotCompared,
			[]string{file, begin + "switch row { case &exec: return true }; return false }\n"}, address},
		{"by name", rowsAreNotCompared, []string{file, begin + "return s.row.Name == \"exec\" }\n"}, name},
		{"by name in a switch", rowsAreNotCompared,
			[]string{file, begin + "switch row.Name { case \"a\": return true }; return false }\n"}, name},
		{"by a prefix", rowsAreNotCompared, []string{file, begin + "return strings.HasPrefix(row.Name, \"cl.\") }\n"}, name},
		{"a fact", rowsAreNotCompared,
			[]string{file, begin + "return row.Traits&AnyKey != 0 && user.Name == \"default\" }\n"}, nil},
		{"its shape", rowsAreNotCompared,
			[]string{file, begin + "return row.Name == \"\" || row.Name != strings.ToLower(row.Name) }\n"}, nil},
		{"a test may", rowsAreNotCompared, []string{"internal/a/a_test.go", begin + "return row == &exec }\n"}, nil},
	})
}

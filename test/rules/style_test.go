package rules

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// linesOfFunctions counts from func to the closing brace. It also counts function literals, because the code
// of a command's row is one. All literals in a function share one name.
func linesOfFunctions(t *tree) map[string]int {
	sizes := map[string]int{}
	for _, f := range t.files {
		outer := f.dir
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			name := ""
			switch function := node.(type) {
			case *ast.FuncDecl:
				outer = f.dir + " " + receiver(function) + function.Name.Name
				name = outer
			case *ast.FuncLit:
				name = outer + ", a literal"
			default:
				return true
			}
			first, last := nodeLines(t.fset, node)
			sizes[name] = max(sizes[name], last-first+1)
			return true
		})
	}
	return sizes
}

// receiver returns the type of a method's receiver, and a dot.
func receiver(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return ""
	}
	of := function.Recv.List[0].Type
	if pointer, ok := of.(*ast.StarExpr); ok {
		of = pointer.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name + "."
	}
	return ""
}

// nodeLines returns the first and the last line of a node, without its doc comment: only code is counted.
func nodeLines(fset *token.FileSet, node ast.Node) (first, last int) {
	start := node.Pos()
	if function, ok := node.(*ast.FuncDecl); ok {
		start = function.Type.Func
	}
	return fset.Position(start).Line, fset.Position(node.End()).Line
}

// noInit finds init functions: everything that happens at the start should stand in main, in its
// order.
func noInit(t *tree) (breaches []string) {
	for _, f := range t.files {
		for _, d := range f.syntax.Decls {
			if function, ok := d.(*ast.FuncDecl); ok && function.Recv == nil && function.Name.Name == "init" {
				breaches = append(breaches, t.at(function.Name, "func init"))
			}
		}
	}
	return breaches
}

// maxColumns is the maximum length of a line. A line with a literal string may be longer, because
// the string is read, and searched for, as a whole.
const maxColumns = 120

func linesFit(t *tree) (breaches []string) {
	for _, f := range t.files {
		for i, line := range strings.Split(string(f.text), "\n") {
			if columns := utf8.RuneCountInString(line); columns > maxColumns && !f.hasString(t, i+1) {
				breaches = append(breaches, fmt.Sprintf("%s:%d: %d columns, and %d is the most", f.path, i+1, columns, maxColumns))
			}
		}
	}
	return breaches
}

// tabColumns is how wide editors and code reviews show a tab, at the least.
const tabColumns = 4

// wideLines counts the lines that do not fit where a tab is tabColumns wide: in each file of the product, and in each
// folder of other code.
func wideLines(t *tree) map[string]int {
	sizes := map[string]int{}
	for _, f := range t.files {
		name := f.path
		if !f.isProduct() {
			folder, _, _ := strings.Cut(f.path, "/")
			name = "tests and tools in " + folder
		}
		for i, line := range strings.Split(string(f.text), "\n") {
			columns := utf8.RuneCountInString(line) + (tabColumns-1)*strings.Count(line, "\t")
			if columns > maxColumns && !f.hasString(t, i+1) {
				sizes[name]++
			}
		}
	}
	return sizes
}

// hasString says whether a part of a literal string of 40 characters or more is on a line.
func (f *source) hasString(t *tree, line int) (found bool) {
	ast.Inspect(f.syntax, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING && len(literal.Value) >= 40 {
			first, last := nodeLines(t.fset, literal)
			found = found || first <= line && line <= last
		}
		return !found
	})
	return found
}

func isFormatted(t *tree) (breaches []string) {
	for _, f := range t.files {
		if formatted, err := format.Source(f.text); err != nil || !bytes.Equal(formatted, f.text) {
			breaches = append(breaches, f.path+":1: not formatted by gofmt")
		}
	}
	return breaches
}

// emptyWords fit every package and every type, so as a name they say nothing.
var emptyWords = []string{"manager", "service", "util", "utils", "common", "helper", "helpers", "data"}

func namesSaySomething(t *tree) (breaches []string) {
	check := func(where ast.Node, kind, name string) {
		for _, word := range splitName(name) {
			if slices.Contains(emptyWords, word) {
				breaches = append(breaches, t.at(where, "%s %s: %q says nothing", kind, name, word))
			}
		}
	}
	for _, f := range t.files {
		check(f.syntax, "package", f.syntax.Name.Name)
		check(f.syntax, "file", strings.TrimSuffix(f.path, ".go"))
		ast.Inspect(f.syntax, func(node ast.Node) bool {
			if spec, ok := node.(*ast.TypeSpec); ok && spec.Name.IsExported() {
				check(spec, "type", spec.Name.Name)
			}
			return true
		})
	}
	return breaches
}

// splitName returns the words of a name, in lower case: HTTPServer_test is http, server, test.
func splitName(name string) (words []string) {
	letters := []rune(name)
	start := 0
	cut := func(end int) {
		if end > start {
			words = append(words, strings.ToLower(string(letters[start:end])))
		}
		start = end
	}
	for i, c := range letters {
		switch {
		case !unicode.IsLetter(c):
			cut(i)
			start = i + 1
		case i > 0 && unicode.IsUpper(c):
			afterLower := unicode.IsLower(letters[i-1])
			beforeLower := i+1 < len(letters) && unicode.IsLower(letters[i+1])
			if afterLower || beforeLower {
				cut(i)
			}
		}
	}
	cut(len(letters))
	return words
}

// packagesIntroduceThemselves finds packages without a package comment, which one file must have.
// It may be in a test file only if the package has no other files.
func packagesIntroduceThemselves(t *tree) (breaches []string) {
	packages := map[string][]*source{}
	for _, f := range t.files {
		packages[f.dir] = append(packages[f.dir], f)
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		files := packages[dir]
		if code := slices.DeleteFunc(slices.Clone(files), (*source).isTest); len(code) > 0 {
			files = code
		}
		if !slices.ContainsFunc(files, introducesPackage) {
			breaches = append(breaches, t.at(files[0].syntax, "package %s has no comment", files[0].syntax.Name.Name))
		}
	}
	return breaches
}

func introducesPackage(f *source) bool { return strings.TrimSpace(f.syntax.Doc.Text()) != "" }

// Package rules checks the project's own rules. Each rule is a function over a source tree, so that
// a test can show, on a small tree with a planted breach, that the rule finds it.
package rules

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// module is the name in go.mod, before every import of one of our own packages.
const module = "cellserver"

// tree is the project as the rules see it: every text file, and the Go files parsed.
type tree struct {
	fsys  fs.FS
	texts map[string][]byte
	files []*source
	fset  *token.FileSet
}

// source is a Go file.
type source struct {
	path    string
	dir     string
	text    []byte
	syntax  *ast.File
	imports map[string]string // import path by the name it has in this file
}

// load reads a tree without version control, files that were built or installed, and binary files.
// It does not parse Go files under testdata, which may be wrong on purpose.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{fsys: fsys, texts: map[string][]byte{}, fset: token.NewFileSet()}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist", ".benchstat"}, name):
			return fs.SkipDir
		case entry.Name() == ".git": // in a worktree, a file that points elsewhere
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		return t.add(name)
	})
	return t, err
}

func (t *tree) add(name string) error {
	text, err := fs.ReadFile(t.fsys, name)
	if err != nil || !utf8.Valid(text) {
		return err
	}
	t.texts[name] = text
	if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
		return nil
	}
	syntax, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &source{path: name, dir: path.Dir(name), text: text, syntax: syntax, imports: map[string]string{}}
	for _, spec := range syntax.Imports {
		imported, _ := strconv.Unquote(spec.Path.Value)
		f.imports[localName(spec, imported)] = imported
	}
	t.files = append(t.files, f)
	return nil
}

// localName returns the name of an import in its file. A path that ends in a version, such as
// go-redis/v9, is named by the element before.
func localName(spec *ast.ImportSpec, imported string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	name := path.Base(imported)
	if version, found := strings.CutPrefix(name, "v"); found && strings.Trim(version, "0123456789") == "" {
		name = path.Base(path.Dir(imported))
	}
	return name
}

// at writes a breach as compilers write errors, so that editors find it.
func (t *tree) at(node ast.Node, format string, arguments ...any) string {
	where := t.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d: %s", where.Filename, where.Line, fmt.Sprintf(format, arguments...))
}

func (f *source) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// under reports whether the file lies in one of the directories, or below it.
func (f *source) under(dirs ...string) bool {
	for _, dir := range dirs {
		if f.dir == dir || strings.HasPrefix(f.dir, dir+"/") {
			return true
		}
	}
	return false
}

// uses calls visit for every name that the file uses from an imported package: for time.Now, with
// "time" and "Now".
func (f *source) uses(visit func(node ast.Node, imported, name string)) {
	ast.Inspect(f.syntax, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			if qualifier, ok := selector.X.(*ast.Ident); ok {
				if imported, ok := f.imports[qualifier.Name]; ok {
					visit(node, imported, selector.Sel.Name)
				}
			}
		}
		return true
	})
}

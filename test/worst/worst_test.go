// Package worst measures each command's most expensive call by counting its work. It compiles the
// packages in internal with a counter in every function and every loop, which also counts bytes
// that are hashed and compared. With these packages, it runs the test in internal/commands that
// makes the calls. The counts do not depend on how busy the machine is.
package worst

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	rewrite = flag.Bool("rewrite", false, "write the table of docs/assurance.md instead of comparing it")
	print   = flag.Bool("print", false, "print each row's work, and the CPU time of its longest turn")
	rows    = flag.String("rows", "", "the rows that match")
)

const root = "../.."

// counter is a package that exists in the overlay only.
const counter = `package countedsteps

var N int64

func Saw[T ~[]byte | ~string](b T) T {
	N += int64(len(b) >> 6)
	return b
}
`

// hook makes the test of internal/commands read the counter.
const hook = `package commands_test

import "cellserver/internal/countedsteps"

var _ = countBy(func() int64 { return countedsteps.N })
`

// looks are functions whose time grows with the length of arguments, with the positions of these
// arguments.
var looks = map[string][]int{
	"maphash.Bytes": {1}, "sha256.Sum256": {0}, "bytes.Equal": {0}, "strings.ToLower": {0}, "strings.ToUpper": {0},
	"strings.EqualFold": {0, 1},
}

func TestWorstCallsByCountedWork(t *testing.T) {
	dir := t.TempDir()
	overlay := map[string]string{}
	add := func(path, text string) {
		path, err := filepath.Abs(filepath.Join(root, path))
		require.NoError(t, err)
		name := filepath.Join(dir, fmt.Sprintf("%d.go", len(overlay)))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
		overlay[path] = name
	}
	add("internal/countedsteps/steps.go", counter)
	add("internal/commands/steps_test.go", hook)
	files, err := filepath.Glob(root + "/internal/*/*.go")
	require.NoError(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		path, _ := filepath.Rel(root, file)
		add(path, counted(t, string(text)))
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	require.NoError(t, err)
	name := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(name, list, 0o600))
	run(t, name)
}

func run(t *testing.T, overlay string) {
	args := []string{"test", "-vet=off", "-count=1", "-timeout=10m", "-overlay=" + overlay,
		"-run=Worst|Unstated|Expensive"}
	if *print {
		args = append(args, "-v")
	}
	args = append(args, "./internal/commands", "-worst="+*rows)
	if *rewrite {
		args = append(args, "-rewrite")
	}
	command := exec.Command("go", args...)
	command.Dir = root
	if *print {
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		require.NoError(t, command.Run())
		return
	}
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// counted returns a file with counters in it.
func counted(t *testing.T, text string) string {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", text, parser.SkipObjectResolution)
	require.NoError(t, err)
	type insertion struct {
		at   int
		text string
	}
	var all []insertion
	insert := func(at token.Pos, text string) { all = append(all, insertion{files.Position(at).Offset, text}) }
	head := func(body *ast.BlockStmt) {
		if body != nil {
			insert(body.Lbrace+1, "countedsteps.N++;")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			head(n.Body)
		case *ast.FuncLit:
			head(n.Body)
		case *ast.ForStmt:
			head(n.Body)
		case *ast.RangeStmt:
			head(n.Body)
		case *ast.CallExpr:
			for _, i := range looks[called(n)] {
				insert(n.Args[i].Pos(), "countedsteps.Saw(")
				insert(n.Args[i].End(), ")")
			}
		}
		return true
	})
	if len(all) == 0 {
		return text
	}
	insert(file.Name.End(), `; import "cellserver/internal/countedsteps"`)
	slices.SortStableFunc(all, func(a, b insertion) int { return b.at - a.at })
	for _, i := range all {
		text = text[:i.at] + i.text + text[i.at:]
	}
	return text
}

func called(n *ast.CallExpr) string {
	if f, ok := n.Fun.(*ast.SelectorExpr); ok {
		if pkg, ok := f.X.(*ast.Ident); ok {
			return pkg.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// The counters count loops, functions, and compared bytes.
func TestCounters(t *testing.T) {
	text := counted(t, "package a\n\nfunc f(x []byte) bool {\n\tfor range 3 {\n\t}\n\treturn bytes.Equal(x, nil)\n}\n")
	require.Equal(t, "package a; import \"cellserver/internal/countedsteps\"\n\nfunc f(x []byte) bool {countedsteps.N++;\n\tfor range 3 {countedsteps.N++;\n\t}\n"+
		"\treturn bytes.Equal(countedsteps.Saw(x), nil)\n}\n", text)
}

package packaging

import (
	"encoding/json"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// grave are the packages of the standard library that give access to more than a program's own
// memory: to the network, files, processes, the system, and raw memory.
var grave = []string{"net", "os", "os/exec", "syscall", "unsafe"}

// linked returns the binary's modules other than this project's, and which of the grave packages
// each imports.
func linked(t *testing.T) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,Module",
		"cellserver/cmd/cellserver").Output()
	require.NoError(t, err)
	reaches := map[string]map[string]bool{}
	for list := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Imports []string
			Module  *struct {
				Path string
				Main bool
			}
		}
		if err := list.Decode(&p); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
		if p.Module == nil || p.Module.Main {
			continue
		}
		if reaches[p.Module.Path] == nil {
			reaches[p.Module.Path] = map[string]bool{}
		}
		for _, imported := range p.Imports {
			if slices.Contains(grave, imported) {
				reaches[p.Module.Path][imported] = true
			}
		}
	}
	modules := map[string]string{}
	for module, names := range reaches {
		modules[module] = strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	}
	return modules
}

// reviewed returns the table in docs/security.md, which says what each module is for and which
// packages it reaches.
func reviewed(text string) map[string]string {
	modules := map[string]string{}
	table := false
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if table = strings.HasPrefix(line, "|") && (table || cells[0] == "Module"); !table {
			continue
		}
		if module := strings.Trim(cells[0], "`"); len(cells) == 3 && cells[1] != "" && strings.Contains(module, "/") {
			modules[module] = strings.TrimPrefix(strings.ReplaceAll(cells[2], "`", ""), "nothing")
		}
	}
	return modules
}

// Each module in the binary has been reviewed, and reaches no more than when it was.
func TestDependenciesAreReviewed(t *testing.T) {
	assert.Equal(t, linked(t), reviewed(string(read(t, "docs/security.md"))))
}

func TestReviewFindsWhatIsMissing(t *testing.T) {
	const table = "text\n\n| Module | What for | Reaches |\n|---|---|---|\n| `example.com/a` | for a | `net`, `os` |\n| `example.com/b` | | `net` |\n| `example.com/c` | for c | nothing |\n\n| `example.com/d` | d | `os` |\n"
	assert.Equal(t, map[string]string{"example.com/a": "net, os", "example.com/c": ""}, reviewed(table))
	assert.Contains(t, linked(t)["github.com/tidwall/redcon"], "net")
}

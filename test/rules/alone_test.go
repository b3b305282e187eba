package rules

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// foreign are texts that would tie the project to the machine on which it was written. They are in
// pieces, so that this list is not itself a breach.
var foreign = []string{
	".." + "/shared", "/ro" + "ot/", "/ho" + "me/", "/wo" + "rk/",
	"proxy." + "golang.org", "sum." + "golang.org", "goproxy" + ".io", "goproxy" + ".cn", "artifact" + "ory",
	"registry." + "npmjs.org", "pypi" + ".org", "pythonhosted" + ".org", "docker" + ".io", "crates" + ".io",
}

func standsAlone(t *tree) (breaches []string) {
	for _, name := range slices.Sorted(maps.Keys(t.texts)) {
		number := 0
		for line := range strings.Lines(string(t.texts[name])) {
			number++
			for _, word := range foreign {
				if strings.Contains(line, word) {
					breaches = append(breaches, fmt.Sprintf("%s:%d: names %s", name, number, word))
				}
			}
		}
	}
	return breaches
}

const architecture = "ARCHITECTURE.md"

// mapped is a line of the code map: a directory at its start, plain or in backquotes, in a list or
// a table.
var mapped = regexp.MustCompile("^[\\s|*-]*`?((?:internal|cmd|test|bench)(?:/[a-z0-9_]+)*)/?(?:`|\\s|:|$)")

// codeMapIsTrue finds directories in the code map that do not exist.
func codeMapIsTrue(t *tree) (breaches []string) {
	number := 0
	for line := range strings.Lines(string(t.texts[architecture])) {
		number++
		m := mapped.FindStringSubmatch(line)
		if m == nil || !strings.Contains(line, m[1]+"/") && path.Dir(m[1]) == "." {
			continue // prose may begin with the word "test"
		}
		if entry, err := fs.Stat(t.fsys, m[1]); err != nil || !entry.IsDir() {
			breaches = append(breaches, fmt.Sprintf("%s:%d: lists %s, which does not exist", architecture, number, m[1]))
		}
	}
	return breaches
}

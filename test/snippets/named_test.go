package snippets

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	mention     = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`")
	declaration = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)\(`)
)

// Every test that a document names exists.
func TestNamedTestsExist(t *testing.T) {
	there := tests(t)
	mentioned := 0
	for _, document := range documents(t) {
		for _, m := range mention.FindAllStringSubmatch(read(t, document), -1) {
			mentioned++
			assert.True(t, there[m[1]], "%s names %s, and there is no such test", document, m[1])
		}
	}
	assert.GreaterOrEqual(t, mentioned, 20)
}

// Each threat in docs/assurance.md has a test that shows what happens, or "not yet".
func TestEveryThreatHasATest(t *testing.T) {
	rows, threats := 0, false
	for line := range strings.Lines(read(t, "docs/assurance.md")) {
		heading := strings.HasPrefix(line, "| Threat")
		if threats = strings.HasPrefix(line, "|") && (threats || heading); !threats || heading ||
			!strings.HasPrefix(line, "| ") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		require.Len(t, cells, 3, line)
		assert.True(t, mention.MatchString(cells[2]) || cells[2] == "not yet", line)
	}
	assert.GreaterOrEqual(t, rows, 15)
}

// tests returns the names of all tests of the project.
func tests(t *testing.T) map[string]bool {
	all := map[string]bool{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(root + "/" + name)
		for _, m := range declaration.FindAllStringSubmatch(string(text), -1) {
			all[m[1]] = true
		}
		return err
	})
	require.NoError(t, err)
	return all
}

package snippets

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	defect        = regexp.MustCompile(`(?m)^\| [^|]+ \| \d{4}-\d\d-\d\d \| [^|]+ \| ([^|]+) \|$`)
	testsOfFolder = regexp.MustCompile("`([a-z0-9/]+)`((?: `(?:Test|Fuzz)[A-Za-z0-9]+`)+)")
)

// Every test that docs/defects.md names exists in the package before its name.
func TestDefectsNameTheirTests(t *testing.T) {
	page := read(t, "docs/defects.md")
	rows := 0
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| What was wrong ") {
			rows++
			assert.Regexp(t, defect, strings.TrimSuffix(line, "\n"))
		}
	}
	assert.GreaterOrEqual(t, rows, 40)
	assert.Empty(t, missingTests(t, page))
	const row = "| a | 2026-11-20 | b | "
	assert.Equal(t, []string{
		"internal/window TestNoSuch", "internal/gcra TestUntilMidnight", "internal/nosuch TestUntilMidnight", "no test",
	}, missingTests(t, row+"`internal/window` `TestUntilMidnight` `TestNoSuch`, `internal/gcra` `TestUntilMidnight` |\n"+
		row+"`internal/nosuch` `TestUntilMidnight` |\n"+row+"`TestUntilMidnight` |\n"))
}

// missingTests returns the tests in the last column of the tables that are not in their packages.
func missingTests(t *testing.T, page string) (missing []string) {
	for _, row := range defect.FindAllStringSubmatch(page, -1) {
		packages := testsOfFolder.FindAllStringSubmatch(row[1], -1)
		if testsOfFolder.ReplaceAllString(row[1], "") != strings.Repeat(", ", max(len(packages)-1, 0)) || len(packages) == 0 {
			missing = append(missing, "no test")
		}
		for _, p := range packages {
			text := sourceOfTests(t, p[1])
			for _, m := range mention.FindAllStringSubmatch(p[2], -1) {
				if !strings.Contains(text, "\nfunc "+m[1]+"(") {
					missing = append(missing, p[1]+" "+m[1])
				}
			}
		}
	}
	return missing
}

// sourceOfTests returns the text of a package's test files, or "" if there is no such package.
func sourceOfTests(t *testing.T, folder string) string {
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	require.NoError(t, err)
	var text strings.Builder
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		text.Write(content)
	}
	return text.String()
}

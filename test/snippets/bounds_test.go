package snippets

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	boundOf = regexp.MustCompile("(?m)^\\| [^|]+ \\| ([^|]+) \\| `(--[a-z-]+)` \\|$")
	size    = regexp.MustCompile(`(\d+) MiB`)
	number  = regexp.MustCompile(`\d+[a-z]*%?`)
)

// Every bound in docs/reliability.md is the default in docs/configuration.md, which is generated.
func TestBoundsAreTheDefaults(t *testing.T) {
	page := read(t, "docs/reliability.md")
	require.GreaterOrEqual(t, len(boundOf.FindAllString(page, -1)), 10)
	assert.Empty(t, wrongBounds(t, page))
	assert.Equal(t, []string{"--max-key-size: 65535"},
		wrongBounds(t, "| bytes of a key | 65535 | `--max-key-size` |\n"))
}

func wrongBounds(t *testing.T, page string) (wrong []string) {
	options := read(t, "docs/configuration.md")
	for _, m := range boundOf.FindAllStringSubmatch(page, -1) {
		_, row, found := strings.Cut(options, "| `"+m[2]+"`<br>")
		require.True(t, found, m[2])
		row, _, _ = strings.Cut(row, "\n")
		defaults := number.FindAllString(row, -1)
		bound := strings.ReplaceAll(size.ReplaceAllString(m[1], "${1}mb"), " %", "%")
		for _, n := range number.FindAllString(bound, -1) {
			if !slices.Contains(defaults, n) {
				wrong = append(wrong, m[2]+": "+n)
			}
		}
	}
	return wrong
}

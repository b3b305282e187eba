package snippets

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The command that CONTRIBUTING.md shows is in the file that it names.
func TestExampleOfCommand(t *testing.T) {
	const file, begin, end = "internal/commands/value/range.go", "       var strLen = ", "\n       }\n"
	page := read(t, "CONTRIBUTING.md")
	at := strings.Index(page, begin)
	require.Positive(t, at)
	assert.Contains(t, page[:at], file+" has\n")
	example, _, found := strings.Cut(page[at:], end)
	require.True(t, found)
	example = strings.ReplaceAll(strings.ReplaceAll(example, "\n       ", "\n"), "    ", "\t")
	assert.Contains(t, read(t, file), strings.TrimSpace(example)+"\n}\n")
}

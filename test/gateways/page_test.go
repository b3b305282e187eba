package gateways

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shown returns the fenced block with this name in a page.
func shown(page, name string) string {
	for _, block := range strings.Split(page, "\n```")[1:] {
		title, text, _ := strings.Cut(block, "\n")
		if _, file, _ := strings.Cut(title, " "); file == name {
			return text + "\n"
		}
	}
	return ""
}

// The page shows the same files as the tests run.
func TestPageShowsWhatIsRun(t *testing.T) {
	page, err := os.ReadFile("../../docs/gateways.md")
	require.NoError(t, err)
	files := []string{policies}
	for _, g := range append(slices.Clip(gateways), traefik) {
		files = append(files, g.files...)
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(examples, name))
		require.NoError(t, err)
		assert.Equal(t, string(text), shown(string(page), name), name)
	}
	assert.Equal(t, "b\n\nc\n", shown("a\n```x y\nz\n```\n\n```x f\nb\n\nc\n```\n", "f"))
}

package commands

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	readme         = "../../README.md"
	referenceStart = "<!-- reference: written by make rewrite -->\n"
	referenceEnd   = "<!-- end of reference -->"
)

// The README's reference is what the table says today.
func TestReadmeIsCurrent(t *testing.T) {
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), referenceStart)
	require.True(t, found, "the README has lost its reference")
	_, after, found := strings.Cut(rest, referenceEnd)
	require.True(t, found, "the README's reference has no end")
	current := before + referenceStart + Reference() + referenceEnd + after
	if *rewrite {
		require.NoError(t, os.WriteFile(readme, []byte(current), 0o644))
		return
	}
	require.Equal(t, current, string(text), "run make rewrite")
}

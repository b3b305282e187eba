package commands

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
)

const (
	reference      = "../../docs/commands.md"
	referenceStart = "<!-- reference: written by make rewrite -->\n"
	referenceEnd   = "<!-- end of reference -->"
)

// docs/commands.md is what the rows generate.
func TestReferenceIsCurrent(t *testing.T) {
	text, err := os.ReadFile(reference)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), referenceStart)
	require.True(t, found, "docs/commands.md has lost the line that begins its reference")
	_, after, found := strings.Cut(rest, referenceEnd)
	require.True(t, found, "docs/commands.md has lost the line that ends its reference")
	current := before + referenceStart + command.Reference(All()) + referenceEnd + after
	if *rewrite {
		require.NoError(t, os.WriteFile(reference, []byte(current), 0o644))
		return
	}
	require.Equal(t, current, string(text), "run make rewrite")
}

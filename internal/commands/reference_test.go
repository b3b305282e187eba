package commands_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/test/generated"
)

const (
	reference      = "../../docs/commands.md"
	referenceStart = "<!-- reference: written by make rewrite -->\n"
	referenceEnd   = "<!-- end of reference -->"
)

// docs/commands.md is generated from the rows.
func TestReferenceIsCurrent(t *testing.T) {
	text, err := os.ReadFile(reference)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), referenceStart)
	require.True(t, found, "docs/commands.md has lost the line that begins its reference")
	_, after, found := strings.Cut(rest, referenceEnd)
	require.True(t, found, "docs/commands.md has lost the line that ends its reference")
	current := before + referenceStart + command.Reference(commands.All()) + referenceEnd + after
	generated.Check(t, reference, current, *rewrite)
}

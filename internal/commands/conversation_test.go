package commands

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
)

var rewrite = flag.Bool("rewrite", false, "write the replies to the conversations instead of comparing them")

func TestConversations(t *testing.T) {
	transcript.Check(t, "testdata", func(t *testing.T) transcript.Stage { return newStill(t) }, *rewrite)
}

// Every command has a conversation of its own name, and every subcommand is spoken to in its container's.
func TestEveryCommandHasAConversation(t *testing.T) {
	for _, row := range All() {
		text, err := os.ReadFile("testdata/" + row.Name + ".txt")
		require.NoError(t, err)
		for _, one := range append(row.Subs, row) {
			require.Contains(t, strings.ToUpper(string(text)), "> "+one.Upper(), "no call of %s", one.Name)
		}
	}
}

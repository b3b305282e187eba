package commands

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
	"cellserver/internal/store/storetest"
	"cellserver/internal/transcript"
)

var rewrite = flag.Bool("rewrite", false, "write the replies to the conversations instead of comparing them")

func TestConversations(t *testing.T) {
	transcript.Check(t, "testdata", func(t *testing.T) transcript.Stage { return newStill(t) }, *rewrite)
}

// All of them again, on a store that runs twice what it is given to run.
func TestConversationsOnAStoreThatRunsTwice(t *testing.T) {
	transcript.Check(t, "testdata", func(t *testing.T) transcript.Stage {
		clock := store.NewStillClock(stillStart)
		data := storetest.Twice(memstore.New(memstore.Options{Clock: clock, SweepEvery: -1}))
		s, err := newStillOver(t, data, func(*Settings) {})
		require.NoError(t, err)
		s.clock = clock
		return s
	}, false)
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

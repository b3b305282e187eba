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

// saysAtEachRun are conversations in which calls of a transaction are counted, shown or published
// when they are made, rather than when the store has kept what they did: they would be at each run
// of it. Over the store that ships there is only one.
var saysAtEachRun = []string{
	"acl", "cl.top", "hush", "info", "latencytracking", "monitor", "publish", "slowlog", "subscribe",
}

// All others again, on a store that runs twice what it is given to run.
func TestConversationsOnAStoreThatRunsTwice(t *testing.T) {
	all := t.TempDir()
	require.NoError(t, os.CopyFS(all, os.DirFS("testdata")))
	for _, name := range saysAtEachRun {
		require.NoError(t, os.Remove(all+"/"+name+".txt"))
	}
	transcript.Check(t, all, func(t *testing.T) transcript.Stage {
		clock := store.NewStillClock(stillStart)
		data := storetest.Twice(memstore.New(memstore.Options{Clock: clock, SweepEvery: -1}))
		s, err := newStillOver(t, data, func(*Settings) {})
		require.NoError(t, err)
		s.clock = clock
		return s
	}, false)
}

// Every command has a conversation of its own name, and every subcommand is spoken to in its
// container's.
func TestEveryCommandHasAConversation(t *testing.T) {
	for _, row := range All() {
		text, err := os.ReadFile("testdata/" + row.Name + ".txt")
		require.NoError(t, err)
		for _, one := range append(row.Subs, row) {
			require.Contains(t, strings.ToUpper(string(text)), "> "+one.Upper(), "no call of %s", one.Name)
		}
	}
}

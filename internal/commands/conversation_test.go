package commands

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
	"cellserver/internal/store/storetest"
	"cellserver/internal/transcript"
)

var rewrite = flag.Bool("rewrite", false, "write the replies to the conversations instead of comparing them")

// conversations are those of all families: each has its own in its folder testdata.
func conversations(t *testing.T) []*transcript.File {
	files, err := transcript.Load(".")
	require.NoError(t, err)
	return files
}

func TestConversations(t *testing.T) {
	transcript.Check(t, conversations(t), func(t *testing.T) transcript.Stage { return newStill(t) }, *rewrite)
}

// saysAtEachRun are conversations in which calls of a transaction are counted, shown or published
// when they are made, rather than when the store has kept what they did: they would be at each run
// of it. Over the store that ships there is only one.
var saysAtEachRun = []string{
	"acl", "cl.top", "client-reply", "info", "latency-tracking", "monitor", "publish", "slowlog", "subscribe",
}

// All others again, on a store that runs twice what it is given to run.
func TestConversationsOnAStoreThatRunsTwice(t *testing.T) {
	all := conversations(t)
	others := slices.DeleteFunc(slices.Clone(all), func(f *transcript.File) bool {
		return slices.Contains(saysAtEachRun, f.Base())
	})
	require.Len(t, others, len(all)-len(saysAtEachRun), "saysAtEachRun names a conversation that does not exist")
	transcript.Check(t, others, func(t *testing.T) transcript.Stage {
		clock := store.NewStillClock(stillStart)
		data := storetest.Twice(memstore.New(memstore.Options{Clock: clock, SweepEvery: -1}))
		s, err := newStillOver(t, data, func(*Settings) {})
		require.NoError(t, err)
		s.clock = clock
		return s
	}, false)
}

// Every command has a conversation of its own name, which calls it and all of its subcommands.
func TestEveryCommandHasAConversation(t *testing.T) {
	texts := map[string]string{}
	for _, f := range conversations(t) {
		text, err := os.ReadFile(f.Name)
		require.NoError(t, err)
		texts[f.Base()] = strings.ToUpper(string(text))
	}
	for _, row := range All() {
		for _, one := range append(row.Subs, row) {
			require.Contains(t, texts[row.Name], "> "+one.Upper(), "%s.txt does not call %s", row.Name, one.Name)
		}
	}
}

// A conversation is named by its command: strlen, or client-kill-maxage for a part of the subject.
func TestConversationsAreNamedByTheirCommands(t *testing.T) {
	table := tableOf()
	for _, f := range conversations(t) {
		name, _, _ := strings.Cut(f.Base(), "-")
		require.NotNil(t, table.Lookup([]byte(name)), "%s: there is no command %s", f.Name, name)
	}
}

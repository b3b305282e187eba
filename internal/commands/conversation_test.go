package commands_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
	"cellserver/internal/store/storetest"
	"cellserver/internal/transcript"
)

var rewrite = flag.Bool("rewrite", false, "write the replies to the conversations instead of comparing them")

func TestConversations(t *testing.T) {
	transcript.Check(
		t,
		commandstest.Conversations(t),
		func(t *testing.T) transcript.Stage { return commandstest.New(t) },
		*rewrite,
	)
}

// All conversations pass on a store that runs every function twice and drops the effects of the
// first run. A call of a transaction is counted, shown and published once.
func TestConversationsOnStoreThatRunsTwice(t *testing.T) {
	transcript.Check(t, commandstest.Conversations(t), func(t *testing.T) transcript.Stage {
		clock := store.NewStillClock(commandstest.Start)
		data := storetest.Twice(memstore.New(memstore.Options{Clock: clock, SweepEvery: -1}))
		s, err := commandstest.NewOver(t, data, func(*commands.Settings) {})
		require.NoError(t, err)
		s.Clock, s.Clock = clock, clock
		return s
	}, false)
}

// Every command has conversations of its own name, which call it and all of its subcommands.
func TestEveryCommandHasAConversation(t *testing.T) {
	texts := map[string]string{}
	for _, f := range commandstest.Conversations(t) {
		text, err := os.ReadFile(f.Name)
		require.NoError(t, err)
		command, _, _ := strings.Cut(f.Base(), "-")
		texts[command] += strings.ToUpper(string(text))
	}
	for _, row := range commands.All() {
		for _, one := range append(row.Subs, row) {
			require.Contains(t, texts[row.Name], "> "+one.Upper(), "no conversation of %s calls %s", row.Name, one.Name)
		}
	}
}

// A conversation is named after its command, such as strlen, or after its command and a subject,
// such as client-kill-maxage.
func TestConversationsAreNamedByTheirCommands(t *testing.T) {
	table := commandstest.TableOf()
	for _, f := range commandstest.Conversations(t) {
		name, _, _ := strings.Cut(f.Base(), "-")
		require.NotNil(t, table.Lookup([]byte(name)), "%s: there is no command %s", f.Name, name)
	}
}

package session_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
)

const clockStart = commandstest.Start

// newServer returns a server with all commands, on a clock that stands still.
func newServer(t testing.TB) *sessiontest.Server { return commandstest.New(t).Server }

// newServerOn is newServer on another clock.
func newServerOn(t testing.TB, clock store.Clock) *sessiontest.Server {
	return commandstest.NewOn(t, clock).Server
}

// newServerOver is newServer over any store, with other settings.
func newServerOver(t testing.TB, over store.Store, change func(*commands.Settings)) *sessiontest.Server {
	s, err := commandstest.NewOver(t, over, change)
	require.NoError(t, err)
	return s.Server
}

// serverWithRow returns a server whose table has one more row.
func serverWithRow(t *testing.T, row *command.Command) *sessiontest.Server {
	return commandstest.NewWithRow(t, row).Server
}

func encode(words []string) []byte { return commandstest.Encode(words) }

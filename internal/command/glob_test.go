package command_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
)

// Patterns of names are bounded like patterns of keys, and so is the work of matching all patterns
// of a call.
func TestPatternsOfNamesAreBounded(t *testing.T) {
	c := commandstest.New(t).Connect()
	long := strings.Repeat("a", 1025)
	class := "*[" + strings.Repeat("?", 1000)
	for _, call := range [][]string{{"CONFIG", "GET", "port", long}, {"COMMAND", "LIST", "FILTERBY", "PATTERN", long}} {
		require.NoError(t, c.Send(commandstest.Encode(call)))
		require.Equal(t, "-ERR pattern is longer than 1024 bytes\r\n", c.Output())
	}
	for _, call := range [][]string{
		append([]string{"CONFIG", "GET"}, strings.Fields(strings.Repeat(class+" ", 100))...),
		{"COMMAND", "LIST", "FILTERBY", "PATTERN", class},
	} {
		require.NoError(t, c.Send(commandstest.Encode(call)))
		require.Equal(t, "-ERR the patterns take too long to match\r\n", c.Output())
	}
	require.NoError(
		t,
		c.Send(commandstest.Encode(append([]string{"CONFIG", "GET"}, strings.Fields(strings.Repeat("*max* ", 120))...))),
	)
	require.Contains(t, c.Output(), "maxclients", "ordinary patterns are not refused")
}

// The bytes of a window count towards the turn's cost, in addition to the number of calls.
func TestLongKeysCountTowardsTurn(t *testing.T) {
	s := commandstest.New(t)
	c := s.Connect()
	call := commandstest.Encode([]string{"INCR", strings.Repeat("k", 60_000)})
	c.Session.Feed([]byte(strings.Repeat(string(call), 40)))
	turns := 1
	for ; c.Session.More(); turns++ {
		c.Read()
		c.Session.Resume()
	}
	require.GreaterOrEqual(t, turns, 40*60/command.TurnCalls)
}

package commands_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands/commandstest"
	"cellserver/internal/transcript"
)

// Conversations pass on a store whose keys are in another program, unless they are marked with @memory.
func TestConversationsOnRemoteStore(t *testing.T) {
	files := slices.DeleteFunc(commandstest.Conversations(t), func(f *transcript.File) bool { return f.Memory != "" })
	transcript.Check(t, files, commandstest.RemoteStage, false)
}

// Each conversation that is marked with @memory would fail on such a store.
func TestConversationsInMemoryDiffer(t *testing.T) {
	for _, f := range commandstest.Conversations(t) {
		if f.Memory != "" {
			require.NotEmpty(t, f.Play(commandstest.RemoteStage(t)), "%s passes without @memory", f.Base())
		}
	}
}

// A store in another program announces no changes, so for the first of the calls that wait for a key, the
// server asks every 100 ms. A client's pipeline keeps its order.
func TestWaitOverStore(t *testing.T) {
	s := commandstest.RemoteStage(t).(*commandstest.Server)
	other := s.Connect()
	other.Ask(t, "CL.THROTTLE key 0 1 60")
	first, second := s.Connect(), s.Connect()
	require.Empty(t, first.Ask(t, "CL.THROTTLE key 0 1 60 1 WAIT 3600000\r\nPING\r\nCL.FIXED other 5 60"))
	require.Empty(t, second.Ask(t, "CL.THROTTLE key 0 1 60 1 WAIT 3600000"))
	other.Ask(t, "DEL key")
	require.NoError(t, s.Advance(99*time.Millisecond))
	require.Empty(t, first.Reply()+second.Reply())
	require.NoError(t, s.Advance(time.Millisecond))
	require.Equal(t, "[0, 1, 0, -1, 60]", first.Reply())
	require.Equal(t, "+PONG", first.Reply())
	require.Equal(t, "[0, 5, 4, -1, 60]", first.Reply())
	require.Empty(t, second.Reply())
	require.NoError(t, s.Advance(time.Minute))
	require.Equal(t, "[0, 1, 0, -1, 60]", second.Reply())
}

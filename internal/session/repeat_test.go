package session_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/session"
)

// A call that repeats a refused call with another key gets the arguments of the refused call, not of the
// last call that was made.
func TestCallThatRepeatsARefusedOne(t *testing.T) {
	made := encode(strings.Fields("CL.THROTTLE a1 15 30 60"))
	refused := encode(strings.Fields("CL.THROTTLE b1 11 30 60"))
	repeats := encode(strings.Fields("CL.THROTTLE a2 11 30 60"))
	s := newServer(t)
	c := s.Connect()
	c.Do(t, "ACL SETUSER u on nopass ~a* +@all")
	c.Do(t, "AUTH u x")
	require.NoError(t, c.Send([]byte(string(made)+string(refused)+string(repeats))))
	require.Equal(t, "[0, 16, 15, -1, 2]", c.Reply())
	require.Contains(t, c.Reply(), "NOPERM")
	require.Equal(t, "[0, 12, 11, -1, 2]", c.Reply())
}

// The calls that a turn leaves keep their keys and IDs, although the transport reuses the memory that they arrived in.
func TestRepeatsThatATurnLeaves(t *testing.T) {
	c := newServer(t).Connect()
	var input []byte
	const calls = command.TurnCalls + session.Lookahead
	for i := range calls {
		input = append(input, encode(strings.Fields(fmt.Sprintf("CL.THROTTLE k 1000000 1 1h 1 ID %08d", i)))...)
	}
	c.Session.Feed(input)
	require.True(t, c.Session.HasUnanswered())
	clear(input)
	for c.Session.HasUnanswered() {
		c.Session.Resume()
	}
	for i := range calls {
		require.Equal(t, fmt.Sprintf("[0, 1000001, %d, -1, %d]", 1000000-i, 3600*(i+1)), c.Reply())
	}
}

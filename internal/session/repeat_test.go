package session_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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

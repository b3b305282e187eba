package commands

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The number of monitors is bounded, because every call is shown to all of them before the next
// call is made.
func TestMonitorsAreBounded(t *testing.T) {
	s := newServer(t)
	var all []*testClient
	for range 64 {
		c := s.dial()
		require.Equal(t, "+OK\r\n", c.do(t, "MONITOR"))
		all = append(all, c)
	}
	c := s.dial()
	require.Equal(t, "-ERR too many clients monitor\r\n", c.do(t, "MONITOR"))
	require.Equal(t, "+PONG\r\n", c.do(t, "PING"), "it is shown nothing")
	all[0].session.Close()
	require.Equal(t, "+OK\r\n", c.do(t, "MONITOR"))
}

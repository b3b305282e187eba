package admin_test

import (
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
	"testing"

	"github.com/stretchr/testify/require"
)

// The number of monitors is bounded, because every call is shown to all of them before the next
// call is made.
func TestMonitorsAreBounded(t *testing.T) {
	s := commandstest.New(t)
	var all []*sessiontest.Client
	for range 64 {
		c := s.Connect()
		require.Equal(t, "+OK\r\n", c.Do(t, "MONITOR"))
		all = append(all, c)
	}
	c := s.Connect()
	require.Equal(t, "-ERR too many clients monitor\r\n", c.Do(t, "MONITOR"))
	require.Equal(t, "+PONG\r\n", c.Do(t, "PING"), "it is shown nothing")
	all[0].Session.Close()
	require.Equal(t, "+OK\r\n", c.Do(t, "MONITOR"))
}

package commands

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Every call is shown to all who monitor, before anything else is answered: so they are few.
func TestMonitorsAreBounded(t *testing.T) {
	s := newStill(t)
	var all []*caller
	for range 64 {
		c := s.dial()
		require.Equal(t, "+OK\r\n", c.say(t, "MONITOR"))
		all = append(all, c)
	}
	c := s.dial()
	require.Equal(t, "-ERR too many clients monitor\r\n", c.say(t, "MONITOR"))
	require.Equal(t, "+PONG\r\n", c.say(t, "PING"), "it is shown nothing")
	all[0].session.Close()
	require.Equal(t, "+OK\r\n", c.say(t, "MONITOR"))
}

package client_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
)

// The memory of all clients that have not logged in is bounded: the oldest are disconnected first.
// A client that logs in does not count any more.
func TestOldestUnauthenticatedClientsAreDisconnected(t *testing.T) {
	s := commandstest.New(t)
	in := s.Instance
	admin := s.Connect()
	admin.Do(t, "CONFIG SET requirepass secret")
	require.Equal(t, "+OK\r\n", admin.Do(t, "CONFIG SET maxmemory-unauthenticated 100kb"))
	member := s.Connect()
	require.Equal(t, "+OK\r\n", member.Do(t, "AUTH secret"))
	var all []*sessiontest.Client
	for range 10 {
		all = append(all, s.Connect())
	}
	require.EqualValues(t, 10*client.SessionBytes, in.Clients.Unauthenticated().Stats().Bytes)
	require.Contains(t, admin.Do(t, "INFO memory"), "\r\nmem_clients_unauthenticated:51200\r\n")
	partial := "*2\r\n$4\r\nAUTH\r\n$16384\r\n" + strings.Repeat("x", 16_000)
	for _, c := range all {
		c.Session.Feed([]byte(partial))
	}
	stay := 0
	for i, c := range all {
		if !c.IsDisconnected() {
			stay++
		} else {
			require.Equal(t, i, i-stay, "the oldest first")
		}
	}
	require.Equal(t, 4, stay, "100 KiB of 21")
	require.False(t, member.IsDisconnected())
	for _, c := range all[:6] {
		c.Session.Close()
	}
	last := all[9]
	require.NoError(t, last.Send([]byte(strings.Repeat("x", 384)+"\r\n")))
	require.Equal(t, "+OK\r\n",
		last.Do(t, "AUTH secret")[len("-WRONGPASS invalid username-password pair or user is disabled.\r\n"):])
	require.False(t, last.Session.IsUnauthenticated())
	require.True(t, all[8].Session.IsUnauthenticated())
	last.Do(t, "RESET")
	require.True(t, last.Session.IsUnauthenticated(), "logged out")
	for _, c := range all[6:] {
		c.Session.Close()
	}
	stats := in.Clients.Unauthenticated().Stats()
	require.Zero(t, stats.Bytes, "memory of clients that have gone still counts")
	require.EqualValues(t, 6, stats.Cut)
	require.Zero(t, stats.Connections)
	requireHeldBytesAddUp(t, s)
}

// If all connections except a new session are in the TLS handshake, the oldest of these is
// disconnected, not the session. A session that exceeds the bound by itself is disconnected after
// all others.
func TestNewestUnauthenticatedClientIsDisconnectedLast(t *testing.T) {
	s := commandstest.New(t)
	in := s.Instance
	admin := s.Connect()
	admin.Do(t, "CONFIG SET requirepass secret")
	require.Equal(t, "+OK\r\n", admin.Do(t, "CONFIG SET maxmemory-unauthenticated 100kb"))
	var ended []int
	for i := range 4 {
		in.Clients.Unauthenticated().Enter(24<<10, func() bool { return false }, func() { ended = append(ended, i) })
	}
	require.Empty(t, ended)
	c := s.Connect()
	require.False(t, c.IsDisconnected())
	require.Equal(t, []int{0}, ended)
	in.Clients.Unauthenticated().Enter(24<<10, func() bool { return false }, func() { ended = append(ended, 4) })
	require.True(t, c.IsDisconnected(), "it waits for its peer, and no other does")
	require.Equal(t, []int{0}, ended)
	in.Clients.Unauthenticated().Enter(101<<10, nil, func() { ended = append(ended, 5) })
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, ended)
}

// By default the bound is a sixteenth of maxmemory, and 16 MiB without maxmemory. A percentage is
// of maxmemory, or of the available memory.
func TestDefaultUnauthenticatedLimit(t *testing.T) {
	s := commandstest.New(t)
	in, c := s.Instance, s.Connect()
	in.Memory.Available = 1000 << 20
	in.Clients.SetMaxMemory(client.MemoryLimit{Percent: 25})
	in.Clients.UpdateLimits(in.Memory.Limit(), in.Memory.Available)
	require.EqualValues(t, 250<<20, in.Clients.Eviction().Limit)
	require.EqualValues(t, 16<<20, in.Clients.Unauthenticated().Stats().Limit)
	s.SetMaxMemory(t, 1600<<20)
	require.EqualValues(t, 400<<20, in.Clients.Eviction().Limit)
	require.EqualValues(t, 100<<20, in.Clients.Unauthenticated().Stats().Limit)
	s.SetMaxMemory(t, 1000)
	require.EqualValues(t, client.MinMemoryLimit, in.Clients.Eviction().Limit, "some client has to connect to set it right")
	require.EqualValues(t, 1<<20, in.Clients.Unauthenticated().Stats().Limit)
	s.SetMaxMemory(t, 0)
	for text, shown := range map[string]string{"5%": "5%", "0%": "0", "10mb": "10485760", "100%": "100%"} {
		require.Equal(t, "+OK\r\n", c.Do(t, "CONFIG SET maxmemory-clients "+text))
		require.Contains(t, c.Do(t, "CONFIG GET maxmemory-clients"), "\r\n"+shown+"\r\n")
	}
	failed := "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - "
	require.Equal(t, failed+"percentage argument must be less or equal to 100\r\n",
		c.Do(t, "CONFIG SET maxmemory-clients 101%"))
	for _, wrong := range []string{"-1", "x", "5.5%", "-1%", "+1%", "''", "%"} {
		require.Equal(t, failed+"argument must be a memory or percent value\r\n",
			c.Do(t, "CONFIG SET maxmemory-clients "+wrong), wrong)
	}
	require.Equal(t, "+OK\r\n", c.Do(t, "CONFIG SET maxmemory-unauthenticated auto"))
	require.Contains(t, c.Do(t, "CONFIG GET maxmemory-unauthenticated"), "\r\nauto\r\n")
	require.Contains(t, c.Do(t, "CONFIG SET maxmemory-unauthenticated 0"), "argument must not be 0")
}

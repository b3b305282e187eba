package commands_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/remotetest"
)

const dailyTen = "{p: {limits: [{fixed: {limit: 10, period: 60s}}]}}"

// A grant holds at once on every server of a store, also where tokens are taken ahead, and ends with the window.
func TestGrantOnServersOfOneStore(t *testing.T) {
	for _, lease := range []time.Duration{0, time.Second} {
		clock := store.NewStillClock(commandstest.Start)
		backend := remotetest.New(clock, 16)
		var servers [2]*commandstest.Server
		for i := range servers {
			s, err := commandstest.NewOver(t, remote.New(remote.Options{Executor: backend, Keyspace: backend, Clock: backend,
				Lease: lease}), func(*commands.Settings) {})
			require.NoError(t, err)
			setPolicies(t, s, strings.Replace(dailyTen, "10", "40", 1))
			servers[i] = s
		}
		one, other := servers[0].Connect(), servers[1].Connect()
		require.Equal(t, integers(0, 40, 0, -1, 60), other.Do(t, "CL.TAKE alice p 40"))
		clock.Advance(20 * time.Second)
		require.Equal(t, "+OK\r\n", one.Do(t, "CL.GRANT alice p fixed 5"))
		require.Equal(t, integers(0, 45, 2, -1, 40), other.Do(t, "CL.TAKE alice p 3"))
		require.Equal(t, integers(1, 45, 2, 40, 40), one.Do(t, "CL.TAKE alice p 3"))
		require.Equal(t, "+OK\r\n", other.Do(t, "CL.GRANT alice p fixed 0"))
		require.Equal(t, integers(1, 40, 0, 40, 40), one.Do(t, "CL.TAKE alice p 1"))
		require.Equal(t, "+OK\r\n", other.Do(t, "CL.GRANT alice p fixed 5"))
		clock.Advance(40 * time.Second)
		require.Equal(t, integers(1, 40, 40, -1, 0), one.Do(t, "CL.TAKE alice p 41"))
	}
}

// DUMP and RESTORE keep a grant, as a restart does, whatever the clocks are.
func TestGrantIsDumped(t *testing.T) {
	one, other := commandstest.New(t), commandstest.New(t)
	setPolicies(t, one, dailyTen)
	setPolicies(t, other, dailyTen)
	one.Connect().Do(t, "CL.GRANT alice p fixed 5 why")
	require.NoError(t, other.Advance(20*time.Second))
	dump := strings.SplitN(one.Connect().Do(t, "DUMP p:{alice}:standing"), "\r\n", 2)[1]
	dump = strings.TrimSuffix(dump, "\r\n")
	c := other.Connect()
	require.NoError(t, c.Send(commandstest.Encode([]string{"RESTORE", "p:{alice}:standing", "0", dump})))
	c.Settle()
	require.Equal(t, "+OK\r\n", c.Output())
	require.Equal(t, integers(0, 15, 14, -1, 60), c.Do(t, "CL.TAKE alice p"))
	require.NoError(t, other.Advance(40*time.Second))
	require.Equal(t, integers(0, 10, 8, -1, 20), c.Do(t, "CL.TAKE alice p"))
}

// While the store fails, a subject has its limits without its grants, and CL.GRANT fails.
func TestGrantWhileTheStoreFails(t *testing.T) {
	s := newFailingServer(t, "local")
	setPolicies(t, s.Server, dailyTen)
	c := s.Connect()
	c.Do(t, "CL.GRANT alice p fixed 5")
	*s.fails = store.ErrDown
	require.Equal(t, integers(0, 10, 9, -1, 60), c.Do(t, "CL.TAKE alice p"))
	require.Contains(t, c.Do(t, "CL.GRANT alice p fixed 6"), "-")
	*s.fails = nil
	require.Equal(t, integers(0, 15, 14, -1, 60), c.Do(t, "CL.TAKE alice p"))
}

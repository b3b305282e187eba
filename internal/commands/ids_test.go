package commands_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// limitersWithID are calls of each limiter that take one of 5, with the option ID but without the
// token.
var limitersWithID = []string{"CL.THROTTLE k 4 1 600 1 ID ", "CL.FIXED k 5 600 1 ID ", "CL.SLIDING k 5 600 1 ID ",
	"CL.SLIDINGLOG k 5 600 1 ID ", "CL.QUOTA k 5 DAY 1 ID "}

// When memory is full, a call with a new token takes nothing. Calls that repeat another, that only ask, or
// that are limited need no memory.
func TestIDsWhenMemoryIsFull(t *testing.T) {
	for _, call := range limitersWithID {
		f := commandstest.NewMemoryServer(t)
		c := f.Connect()
		first := c.Do(t, call+"a")
		f.Outside = 2000
		require.True(t, f.IsFull())
		require.Equal(t, first, c.Do(t, call+"a"))
		for _, quantity := range []string{"1", "-1", "1 UPTO", "9 FORCE"} {
			another := strings.Replace(call+"b", " 1 ID ", " "+quantity+" ID ", 1)
			require.Equal(t, "-OOM command not allowed when used memory > 'maxmemory'.\r\n", c.Do(t, another), another)
		}
		for _, question := range []string{"0", "2 PEEK"} {
			question = strings.Replace(call, " 1 ID ", " "+question+" ID ", 1) + "b"
			require.Contains(t, c.Do(t, question), "*5\r\n:0\r\n:5\r\n", question)
		}
		require.Contains(t, c.Do(t, strings.Replace(call, " 1 ID ", " 5 ID ", 1)+"b"), "*5\r\n:1\r\n:5\r\n:4\r\n")
		f.Outside = 0
		require.False(t, f.IsFull())
		require.Contains(t, c.Do(t, call+"c"), "*5\r\n:0\r\n:5\r\n:3\r\n", "nothing was taken meanwhile")
	}
}

// allWithID is a call of CL.ALL, without the token.
const allWithID = "CL.ALL 2 FIXED k 5 600 1 SLIDINGLOG l 5 600 2 ID "

// A CL.ALL with a new token takes nothing when memory is full. With --oom-decision limit, its first key is
// limited.
func TestIDsOfAllWhenMemoryIsFull(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	c := f.Connect()
	first := c.Do(t, allWithID+"a")
	require.Equal(t, "*4\r\n:0\r\n:-1\r\n"+integers(0, 5, 4, -1, 600)+integers(0, 5, 3, -1, 600), first)
	f.Outside = 2000
	require.True(t, f.IsFull())
	require.Equal(t, first, c.Do(t, allWithID+"a"))
	require.Equal(t, "-OOM command not allowed when used memory > 'maxmemory'.\r\n", c.Do(t, allWithID+"b"))
	require.Contains(t, c.Do(t, "CL.ALL 2 FIXED k 5 600 9 FIXED l 5 600 1 ID b"), "-WRONGTYPE")
	require.Contains(t, c.Do(t, "CL.ALL 2 FIXED k 5 600 5 SLIDINGLOG l 5 600 1 ID b"), "*4\r\n:1\r\n:600\r\n")
	c.Do(t, "CONFIG SET oom-decision limit")
	require.Equal(t, "*4\r\n:1\r\n:1\r\n"+integers(1, 5, 0, 1, 0)+integers(0, 5, 3, -1, 600), c.Do(t, allWithID+"b"))
	f.Outside = 0
	require.False(t, f.IsFull())
	require.Equal(t, "*4\r\n:0\r\n:-1\r\n"+integers(0, 5, 3, -1, 600)+integers(0, 5, 1, -1, 600), c.Do(t, allWithID+"b"))
}

// While the store fails, a CL.ALL with a token is answered like any other.
func TestIDsOfAllWhileTheStoreFails(t *testing.T) {
	want := map[string]string{
		"local": "*4\r\n:0\r\n:-1\r\n" + integers(0, 5, 4, -1, 600) + integers(0, 5, 3, -1, 600),
		"allow": "*4\r\n:0\r\n:-1\r\n" + integers(0, 5, 0, -1, 0) + integers(0, 5, 0, -1, 0),
		"deny":  "*4\r\n:1\r\n:1\r\n" + integers(1, 5, 0, 1, 1) + integers(1, 5, 0, 1, 1),
		"error": storeUnsure,
	}
	for policy, reply := range want {
		s := newFailingServer(t, policy)
		c := s.Connect()
		*s.fails = store.ErrUnavailable
		require.Equal(t, reply, c.Do(t, allWithID+"a"), policy)
		require.Equal(t, reply, c.Do(t, allWithID+"a"), policy)
		*s.fails = nil
		require.Equal(t, want["local"], c.Do(t, allWithID+"a"), "the store decides")
	}
}

// When memory is full, a call with a new token is limited with --oom-decision limit.
func TestIDsWhenMemoryIsFullAndDecisionsAreLimited(t *testing.T) {
	f := commandstest.NewMemoryServer(t)
	c := f.Connect()
	require.Equal(t, "+OK\r\n", c.Do(t, "CONFIG SET oom-decision limit"))
	c.Do(t, "CL.FIXED k 5 600")
	f.Outside = 2000
	require.True(t, f.IsFull())
	require.Equal(t, integers(1, 5, 0, 1, 0), c.Do(t, "CL.FIXED k 5 600 1 ID a"))
	require.Equal(t, integers(1, 5, 0, 1, 0, 0), c.Do(t, "CL.FIXED k 5 600 1 UPTO ID a"))
	f.Outside = 0
	require.False(t, f.IsFull())
	require.Contains(t, c.Do(t, "CL.FIXED k 5 600 1 ID a"), ":0\r\n:5\r\n:3\r\n")
}

// Beyond --max-ids, the oldest tokens are forgotten, and counted.
func TestTooManyIDs(t *testing.T) {
	clock := store.NewStillClock(commandstest.Start)
	s, err := commandstest.NewIn(t, memstore.Options{Clock: clock, SweepEvery: -1, MaxIDs: 3}, func(*commands.Settings) {})
	require.NoError(t, err)
	c := s.Connect()
	call := func(id int) string { return c.Do(t, fmt.Sprintf("CL.FIXED k 100 600 1 ID %d", id)) }
	for id := range 5 {
		require.Equal(t, integers(0, 100, 99-id, -1, 600), call(id))
	}
	require.Equal(t, integers(0, 100, 97, -1, 600), call(2), "it is one of the last three")
	require.Equal(t, integers(0, 100, 94, -1, 600), call(0), "it was forgotten")
	require.Contains(t, c.Do(t, "INFO cell"), "cell_ids:3\r\ncell_ids_forgotten:3\r\ncell_ids_repeated:1\r\n")
}

// The sweep removes tokens that have expired.
func TestExpiredIDsAreSwept(t *testing.T) {
	clock := store.NewStillClock(commandstest.Start)
	data := memstore.New(memstore.Options{Clock: clock, SweepEvery: -1})
	s, err := commandstest.NewOver(t, data, func(*commands.Settings) {})
	require.NoError(t, err)
	c := s.Connect()
	for id := range 2500 {
		c.Do(t, fmt.Sprintf("CL.FIXED k 10000 600 1 ID %d", id))
	}
	clock.Advance(10*time.Second - 1)
	data.Sweep()
	require.Contains(t, c.Do(t, "INFO cell"), "cell_ids:2500\r\ncell_ids_forgotten:0\r\n")
	clock.Advance(1)
	data.Sweep()
	require.Contains(t, c.Do(t, "INFO cell"), "cell_ids:0\r\ncell_ids_forgotten:0\r\n")
}

// A repeated call is one decision, not two, in CL.TOP.
func TestRepeatedCallsInTop(t *testing.T) {
	c := commandstest.New(t).Connect()
	for range 3 {
		c.Do(t, "CL.FIXED k 5 600 1 ID a")
	}
	c.Do(t, "CL.FIXED k 5 600 1 ID b")
	require.Contains(t, c.Do(t, "CL.TOP SEEN"), "$1\r\nk\r\n:2\r\n")
}

// Two clients that send the same call at the same time take once.
func TestSameIDAtTheSameTime(t *testing.T) {
	s := commandstest.New(t)
	const clients, calls = 4, 100
	replies := make([][]string, clients)
	var group sync.WaitGroup
	for i := range clients {
		c := s.Connect()
		group.Go(func() {
			for id := range calls {
				replies[i] = append(replies[i], c.Do(t, fmt.Sprintf("CL.SLIDINGLOG k 1000 600 1 ID %d", id)))
			}
		})
	}
	group.Wait()
	for i := range clients {
		require.Equal(t, replies[0], replies[i])
	}
	require.Contains(t, s.Connect().Do(t, "CL.SLIDINGLOG k 1000 600 0"), fmt.Sprintf(":%d\r\n", 1000-calls))
}

// While the store fails, a call with a token is answered like any other. With --store-fails local, the
// process remembers the token in memory, and with allow and deny it does not.
func TestIDsWhileTheStoreFails(t *testing.T) {
	for _, call := range limitersWithID {
		local := newFailingServer(t, "local")
		c := local.Connect()
		*local.fails = store.ErrUnavailable
		first := c.Do(t, call+"a")
		require.Contains(t, first, "*5\r\n:0\r\n:5\r\n:4\r\n")
		require.Equal(t, first, c.Do(t, call+"a"))
		*local.fails = nil
		require.Equal(t, first, c.Do(t, call+"a"), "it is not known to the store, and decided there")
		require.Contains(t, c.Do(t, call+"b"), "*5\r\n:0\r\n:5\r\n:3\r\n")

		for policy, want := range map[string]string{"allow": integers(0, 5, 0, -1, 0), "deny": integers(1, 5, 0, 1, 1),
			"error": storeUnsure} {
			s := newFailingServer(t, policy)
			c := s.Connect()
			*s.fails = store.ErrUnavailable
			require.Equal(t, want, c.Do(t, call+"a"))
			require.Equal(t, want, c.Do(t, call+"a"))
			*s.fails = nil
			require.Contains(t, c.Do(t, call+"a"), "*5\r\n:0\r\n:5\r\n:4\r\n")
		}
	}
}

package commands

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// limitersWithID are calls of each limiter with the option ID, that take one of 5, without the token.
var limitersWithID = []string{"CL.THROTTLE k 4 1 600 1 ID ", "CL.FIXED k 5 600 1 ID ", "CL.SLIDING k 5 600 1 ID ",
	"CL.SLIDINGLOG k 5 600 1 ID ", "CL.QUOTA k 5 DAY 1 ID "}

// When memory is full, a call with a new token takes nothing. Calls that repeat another, that ask, and that
// are limited need no memory.
func TestIDsWhenMemoryIsFull(t *testing.T) {
	for _, call := range limitersWithID {
		f := newMemoryServer(t)
		c := f.dial()
		first := c.do(t, call+"a")
		f.outside = 2000
		require.True(t, f.isFull())
		require.Equal(t, first, c.do(t, call+"a"))
		for _, quantity := range []string{"1", "-1", "1 UPTO", "9 FORCE"} {
			another := strings.Replace(call+"b", " 1 ID ", " "+quantity+" ID ", 1)
			require.Equal(t, "-OOM command not allowed when used memory > 'maxmemory'.\r\n", c.do(t, another), another)
		}
		for _, question := range []string{"0", "2 PEEK"} {
			question = strings.Replace(call, " 1 ID ", " "+question+" ID ", 1) + "b"
			require.Contains(t, c.do(t, question), "*5\r\n:0\r\n:5\r\n", question)
		}
		require.Contains(t, c.do(t, strings.Replace(call, " 1 ID ", " 5 ID ", 1)+"b"), "*5\r\n:1\r\n:5\r\n:4\r\n")
		f.outside = 0
		require.False(t, f.isFull())
		require.Contains(t, c.do(t, call+"c"), "*5\r\n:0\r\n:5\r\n:3\r\n", "nothing was taken meanwhile")
	}
}

// allWithID is a call of CL.ALL, without the token.
const allWithID = "CL.ALL 2 FIXED k 5 600 1 SLIDINGLOG l 5 600 2 ID "

// A CL.ALL with a new token takes nothing when memory is full. With --oom-decision limit, its first key is
// limited.
func TestIDsOfAllWhenMemoryIsFull(t *testing.T) {
	f := newMemoryServer(t)
	c := f.dial()
	first := c.do(t, allWithID+"a")
	require.Equal(t, "*4\r\n:0\r\n:-1\r\n"+integers(0, 5, 4, -1, 600)+integers(0, 5, 3, -1, 600), first)
	f.outside = 2000
	require.True(t, f.isFull())
	require.Equal(t, first, c.do(t, allWithID+"a"))
	require.Equal(t, "-OOM command not allowed when used memory > 'maxmemory'.\r\n", c.do(t, allWithID+"b"))
	require.Contains(t, c.do(t, "CL.ALL 2 FIXED k 5 600 9 FIXED l 5 600 1 ID b"), "-WRONGTYPE")
	require.Contains(t, c.do(t, "CL.ALL 2 FIXED k 5 600 5 SLIDINGLOG l 5 600 1 ID b"), "*4\r\n:1\r\n:600\r\n")
	c.do(t, "CONFIG SET oom-decision limit")
	require.Equal(t, "*4\r\n:1\r\n:1\r\n"+integers(1, 5, 0, 1, 0)+integers(0, 5, 3, -1, 600), c.do(t, allWithID+"b"))
	f.outside = 0
	require.False(t, f.isFull())
	require.Equal(t, "*4\r\n:0\r\n:-1\r\n"+integers(0, 5, 3, -1, 600)+integers(0, 5, 1, -1, 600), c.do(t, allWithID+"b"))
}

// While the store fails, a CL.ALL with a token is answered as any other.
func TestIDsOfAllWhileTheStoreFails(t *testing.T) {
	want := map[string]string{
		"local": "*4\r\n:0\r\n:-1\r\n" + integers(0, 5, 4, -1, 600) + integers(0, 5, 3, -1, 600),
		"allow": "*4\r\n:0\r\n:-1\r\n" + integers(0, 5, 0, -1, 0) + integers(0, 5, 0, -1, 0),
		"deny":  "*4\r\n:1\r\n:1\r\n" + integers(1, 5, 0, 1, 1) + integers(1, 5, 0, 1, 1),
		"error": storeUnsure,
	}
	for policy, reply := range want {
		s := newFailingServer(t, policy)
		c := s.dial()
		*s.fails = store.ErrUnavailable
		require.Equal(t, reply, c.do(t, allWithID+"a"), policy)
		require.Equal(t, reply, c.do(t, allWithID+"a"), policy)
		*s.fails = nil
		require.Equal(t, want["local"], c.do(t, allWithID+"a"), "the store decides")
	}
}

// With --oom-decision limit, such a call is limited.
func TestIDsWhenMemoryIsFullAndDecisionsAreLimited(t *testing.T) {
	f := newMemoryServer(t)
	c := f.dial()
	require.Equal(t, "+OK\r\n", c.do(t, "CONFIG SET oom-decision limit"))
	c.do(t, "CL.FIXED k 5 600")
	f.outside = 2000
	require.True(t, f.isFull())
	require.Equal(t, integers(1, 5, 0, 1, 0), c.do(t, "CL.FIXED k 5 600 1 ID a"))
	require.Equal(t, integers(1, 5, 0, 1, 0, 0), c.do(t, "CL.FIXED k 5 600 1 UPTO ID a"))
	f.outside = 0
	require.False(t, f.isFull())
	require.Contains(t, c.do(t, "CL.FIXED k 5 600 1 ID a"), ":0\r\n:5\r\n:3\r\n")
}

// Beyond --max-ids, the oldest tokens are forgotten, and counted.
func TestTooManyIDs(t *testing.T) {
	clock := store.NewStillClock(clockStart)
	s, err := newServerIn(t, memstore.Options{Clock: clock, SweepEvery: -1, MaxIDs: 3}, func(*Settings) {})
	require.NoError(t, err)
	c := s.dial()
	call := func(id int) string { return c.do(t, fmt.Sprintf("CL.FIXED k 100 600 1 ID %d", id)) }
	for id := range 5 {
		require.Equal(t, integers(0, 100, 99-id, -1, 600), call(id))
	}
	require.Equal(t, integers(0, 100, 97, -1, 600), call(2), "it is one of the last three")
	require.Equal(t, integers(0, 100, 94, -1, 600), call(0), "it was forgotten")
	require.Contains(t, c.do(t, "INFO cell"), "cell_ids:3\r\ncell_ids_forgotten:3\r\ncell_ids_repeated:1\r\n")
}

// The sweep removes tokens that have expired.
func TestExpiredIDsAreSwept(t *testing.T) {
	clock := store.NewStillClock(clockStart)
	data := memstore.New(memstore.Options{Clock: clock, SweepEvery: -1})
	s, err := newServerOver(t, data, func(*Settings) {})
	require.NoError(t, err)
	c := s.dial()
	for id := range 2500 {
		c.do(t, fmt.Sprintf("CL.FIXED k 10000 600 1 ID %d", id))
	}
	clock.Advance(10*time.Second - 1)
	data.Sweep()
	require.Contains(t, c.do(t, "INFO cell"), "cell_ids:2500\r\ncell_ids_forgotten:0\r\n")
	clock.Advance(1)
	data.Sweep()
	require.Contains(t, c.do(t, "INFO cell"), "cell_ids:0\r\ncell_ids_forgotten:0\r\n")
}

// A repeated call is one decision, not two, in CL.TOP.
func TestRepeatedCallsInTop(t *testing.T) {
	c := newServer(t).dial()
	for range 3 {
		c.do(t, "CL.FIXED k 5 600 1 ID a")
	}
	c.do(t, "CL.FIXED k 5 600 1 ID b")
	require.Contains(t, c.do(t, "CL.TOP SEEN"), "$1\r\nk\r\n:2\r\n")
}

// Two clients that send the same call at the same time take once.
func TestSameIDAtTheSameTime(t *testing.T) {
	s := newServer(t)
	const clients, calls = 4, 100
	replies := make([][]string, clients)
	var group sync.WaitGroup
	for i := range clients {
		c := s.dial()
		group.Go(func() {
			for id := range calls {
				replies[i] = append(replies[i], c.do(t, fmt.Sprintf("CL.SLIDINGLOG k 1000 600 1 ID %d", id)))
			}
		})
	}
	group.Wait()
	for i := range clients {
		require.Equal(t, replies[0], replies[i])
	}
	require.Contains(t, s.dial().do(t, "CL.SLIDINGLOG k 1000 600 0"), fmt.Sprintf(":%d\r\n", 1000-calls))
}

// While the store fails, a call with a token is answered as any other. With --store-fails local, it is
// remembered in the memory of the process, and with allow and deny not at all.
func TestIDsWhileTheStoreFails(t *testing.T) {
	for _, call := range limitersWithID {
		local := newFailingServer(t, "local")
		c := local.dial()
		*local.fails = store.ErrUnavailable
		first := c.do(t, call+"a")
		require.Contains(t, first, "*5\r\n:0\r\n:5\r\n:4\r\n")
		require.Equal(t, first, c.do(t, call+"a"))
		*local.fails = nil
		require.Equal(t, first, c.do(t, call+"a"), "it is not known to the store, and decided there")
		require.Contains(t, c.do(t, call+"b"), "*5\r\n:0\r\n:5\r\n:3\r\n")

		for policy, want := range map[string]string{"allow": integers(0, 5, 0, -1, 0), "deny": integers(1, 5, 0, 1, 1),
			"error": storeUnsure} {
			s := newFailingServer(t, policy)
			c := s.dial()
			*s.fails = store.ErrUnavailable
			require.Equal(t, want, c.do(t, call+"a"))
			require.Equal(t, want, c.do(t, call+"a"))
			*s.fails = nil
			require.Contains(t, c.do(t, call+"a"), "*5\r\n:0\r\n:5\r\n:4\r\n")
		}
	}
}

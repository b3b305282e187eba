package tracking_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands/commandstest"
	"cellserver/internal/session/sessiontest"
	memstore "cellserver/internal/store/memory"
	"cellserver/internal/transcript"
)

// The expiry of a key of any kind invalidates it when the sweep finds it, within 5 seconds,
// wherever the sweep is when it expires.
func TestExpiryInvalidates(t *testing.T) {
	const round = int(5 * time.Second / memstore.SweepInterval)
	for _, phase := range []int{0, 1, round / 2, round - 1} {
		s := commandstest.New(t)
		c, b := s.ConnectTracking(t, ""), s.ConnectTracking(t, "BCAST PREFIX k")
		sweep := func() int {
			s.Clock.Advance(memstore.SweepInterval)
			return s.Instance.Store.(*memstore.Store).Sweep()
		}
		for n := range 500 { // the keys fill several pages in several shards
			c.Do(t, fmt.Sprintf("SET %d %s", n, strings.Repeat("x", 1000)))
		}
		c.Do(t, "SET k 1 PX 60000\r\nCL.FIXED window 10 60")
		commandstest.Pushed(b)
		c.Do(t, "GET k\r\nCL.INSPECT window\r\nGET other")
		for range phase {
			require.Zero(t, sweep())
		}
		s.Clock.Advance(time.Minute)
		swept := 0
		for range round {
			swept += sweep()
		}
		require.Equal(t, 2, swept)
		heard := commandstest.WaitForPush(c)
		for strings.Count(heard, "invalidate") < 2 {
			heard += commandstest.WaitForPush(c)
		}
		require.Contains(t, heard, commandstest.Invalidate("k"))
		require.Contains(t, heard, commandstest.Invalidate("window"))
		require.Equal(t, commandstest.Invalidate("k"), commandstest.WaitForPush(b))
	}
}

// If a call finds that a key has expired, the key is invalidated at once, before the sweep.
func TestExpiryFoundByCallInvalidates(t *testing.T) {
	for _, call := range []string{"GET k", "EXISTS k", "TTL k", "TYPE k", "DEL k", "GETEX k PERSIST", "MGET a k",
		"RENAME k l", "COPY k l", "KEYS *", "SCAN 0 COUNT 1000",
		"EXPIRE k 10", "CL.INSPECT k", "CL.THROTTLE k 1 1 1 1 PEEK", "MULTI\r\nGET k\r\nEXEC", "TOUCH k", "OBJECT ENCODING k",
		"SET k 1", "INCR k"} {
		s := commandstest.New(t)
		c, quiet, b, d := s.ConnectTracking(
			t,
			"",
		), s.ConnectTracking(
			t,
			"NOLOOP",
		), s.ConnectTracking(
			t,
			"BCAST NOLOOP",
		), s.Connect()
		c.Do(t, "SET k 1 PX 10")
		c.Do(t, "GET k")
		quiet.Do(t, "GET k")
		commandstest.Pushed(b)
		s.Clock.Advance(10 * time.Millisecond)
		require.NoError(t, d.Send([]byte(call+"\r\n")))
		for d.Session.HasUnanswered() {
			<-d.Woken
			d.Settle()
		}
		require.Equal(t, commandstest.Invalidate("k"), commandstest.Pushed(c), call)
		require.Equal(t, commandstest.Invalidate("k"), commandstest.Pushed(quiet), call)
		require.Equal(t, commandstest.Invalidate("k"), commandstest.Pushed(b), call)
	}
}

// A client that finds a key expired gets the invalidation too, after the reply, except with NOLOOP.
// In both cases it tracks the key's next value.
func TestReaderOfExpiredKeyTracksNextValue(t *testing.T) {
	s := commandstest.New(t)
	c, quiet, b, d := s.ConnectTracking(
		t,
		"",
	), s.ConnectTracking(
		t,
		"NOLOOP",
	), s.ConnectTracking(
		t,
		"BCAST NOLOOP",
	), s.Connect()
	for _, one := range []struct {
		*sessiontest.Client
		told string
	}{{c, commandstest.Invalidate("k")}, {quiet, ""}, {b, commandstest.Invalidate("k")}} {
		d.Do(t, "SET k 1 PX 10")
		one.Do(t, "GET k")
		commandstest.Pushed(b)
		s.Clock.Advance(10 * time.Millisecond)
		require.Equal(t, "_\r\n"+one.told, one.Do(t, "GET k"))
		commandstest.Pushed(b)
		d.Do(t, "SET k 2")
		require.Equal(t, commandstest.Invalidate("k"), commandstest.Pushed(one.Client))
		commandstest.Pushed(b)
	}
}

// Decisions of limiters are changes of their keys.
func TestDecisionsInvalidate(t *testing.T) {
	s := commandstest.New(t)
	c, d := s.ConnectTracking(t, ""), s.Connect()
	c.Do(t, "GET user123")
	d.Do(t, "CL.THROTTLE user123 15 30 60")
	require.Equal(t, commandstest.Invalidate("user123"), commandstest.Pushed(c))
	d.Do(t, "CL.THROTTLE user123 15 30 60")
	require.Empty(t, commandstest.Pushed(c))
}

// If many clients have read a key, they are sent the invalidation outside the event loop.
func TestManyReadersAreInvalidated(t *testing.T) {
	s := commandstest.New(t)
	var all []*sessiontest.Client
	for range 5 * 128 {
		c := s.ConnectTracking(t, "")
		c.Do(t, "GET k")
		all = append(all, c)
	}
	s.Connect().Do(t, "SET k 1")
	for _, c := range all {
		require.Equal(t, commandstest.Invalidate("k"), commandstest.WaitForPush(c))
	}
	require.Zero(t, s.Instance.Tracking.Figures().Keys)
	require.Zero(t, s.Instance.Tracking.Figures().Items)
	require.Zero(t, s.Instance.Tracking.Figures().Bytes)
}

// The table is bounded: when a key exceeds the bound, another is removed, and its readers are sent
// an invalidation.
func TestTrackedKeysAreBounded(t *testing.T) {
	s := commandstest.New(t)
	s.Instance.Tracking.SetMaxKeys(100)
	c := s.ConnectTracking(t, "")
	told := 0
	for i := range 1000 {
		told += strings.Count(c.Do(t, fmt.Sprintf("GET %d", i)), "invalidate")
	}
	kept := s.Instance.Tracking.Figures().Keys
	require.LessOrEqual(t, kept, int64(100))
	require.Equal(t, 1000, told+int(kept))
}

// A lowered bound applies soon, and no more keys than needed are removed. Each is invalidated.
func TestLoweredTrackingLimitApplies(t *testing.T) {
	s := commandstest.New(t)
	c := s.ConnectTracking(t, "")
	const keys, kept = 50 * 64, 100
	for i := range keys {
		c.Do(t, fmt.Sprintf("GET %d", i))
	}
	s.Instance.Tracking.SetMaxKeys(kept)
	for told := 0; told < keys-kept; {
		told += strings.Count(commandstest.WaitForPush(c), "invalidate")
	}
	require.Equal(t, int64(kept), s.Instance.Tracking.Figures().Keys)
	require.Empty(t, commandstest.Pushed(c))
}

// A flush empties the table without looking at each key, and so does the end of the last client's
// tracking.
func TestFlushEmptiesTheTable(t *testing.T) {
	for _, end := range []string{"FLUSHALL ASYNC", "FLUSHDB", "SWAPDB 0 1", "CLIENT TRACKING OFF"} {
		s := commandstest.New(t)
		c, d := s.ConnectTracking(t, ""), s.ConnectTracking(t, "")
		c.Do(t, "SET a 1\r\nMGET a b c")
		d.Do(t, "MGET b c d\r\nCLIENT TRACKING OFF")
		tr := s.Instance.Tracking
		require.Equal(t, int64(4), tr.Figures().Keys)
		require.Equal(t, int64(6), tr.Figures().Items)
		require.Positive(t, tr.Figures().Bytes)
		c.Do(t, end)
		require.Zero(t, tr.Figures().Keys, end)
		require.Zero(t, tr.Figures().Items, end)
		require.Zero(t, tr.Figures().Bytes, end)
	}
}

// Messages that wait when a client changes the protocol are written before the reply to HELLO, in
// the old protocol.
func TestPushesPrecedeProtocolChange(t *testing.T) {
	for _, call := range []string{"HELLO 2", "RESET"} {
		s := commandstest.New(t)
		s.AddRows((&command.Command{Name: "meanwhile", Run: func(c *command.Call) error {
			c.Client.Push([]byte(commandstest.Invalidate("k")))
			c.Out.Status("OK")
			return nil
		}}))
		c := s.Connect()
		c.Do(t, "HELLO 3")
		require.True(t, strings.HasPrefix(c.Do(t, "MEANWHILE\r\n"+call), "+OK\r\n"+commandstest.Invalidate("k")), call)
	}
}

// A client that reads a key with a call outside the event loop is sent the invalidation of a later
// change after the reply, never before it.
func TestInvalidationFollowsBackgroundReply(t *testing.T) {
	goOn := make(chan struct{})
	s := commandstest.NewWithRow(t, &command.Command{
		Name: "slowget", Flags: command.ReadOnly, Cost: command.Unbounded, KeyAccess: "RO",
		Args: []command.Arg{command.Key("key")},
		Run: func(c *command.Call) error {
			value, _, err := c.View.Read(c.Context, c.Key(), nil)
			<-goOn
			c.Out.Bulk(value)
			return err
		},
	})
	c, d := s.ConnectTracking(t, ""), s.Connect()
	d.Do(t, "SET k old")
	c.Session.Feed([]byte("SLOWGET k\r\n"))
	for s.Instance.Tracking.Figures().Keys == 0 {
		c.Session.Resume()
	}
	d.Do(t, "SET k new")
	require.Empty(t, commandstest.Pushed(c))
	close(goOn)
	out := ""
	for !strings.Contains(out, "invalidate") {
		<-c.Woken
		out += commandstest.Pushed(c)
	}
	require.Regexp(t, `^\$3\r\n(old|new)\r\n>2\r\n`, out)
}

// A client that disconnects is removed from the table. When no client tracks keys, the store does
// not notify.
func TestTrackingEnds(t *testing.T) {
	s := commandstest.New(t)
	for _, end := range []string{"CLIENT TRACKING OFF", "RESET", ""} {
		c := s.ConnectTracking(t, "")
		c.Do(t, "GET k")
		require.Equal(t, int64(1), s.Instance.Tracking.Figures().Keys)
		if c.Do(t, end); end == "" {
			c.Session.Close()
		}
		require.Zero(t, s.Instance.Tracking.Figures().Keys)
		require.Zero(t, s.Instance.Tracking.Figures().Clients)
	}
}

// WATCH and CLIENT TRACKING both see a change.
func TestWatchAndTrackingSeeTheSameChange(t *testing.T) {
	s := commandstest.New(t)
	c, w, d := s.ConnectTracking(t, ""), s.Connect(), s.Connect()
	c.Do(t, "GET k")
	w.Do(t, "WATCH k\r\nMULTI\r\nPING")
	d.Do(t, "SET k 1")
	require.Equal(t, commandstest.Invalidate("k"), commandstest.Pushed(c))
	require.Equal(t, "*-1\r\n", w.Do(t, "EXEC"))
	c.Do(t, "GET k")
	d.Do(t, "SET k 2")
	require.Equal(t, commandstest.Invalidate("k"), commandstest.Pushed(c))
}

// A cache that obeys invalidations is not stale in the end: after all writes it holds what the
// server holds.
func TestCachesConverge(t *testing.T) {
	require.Zero(t, staleAfter(t, func(string) bool { return false }))
}

// The test finds that a cache that misses one message in three is stale.
func TestAStaleCacheIsFound(t *testing.T) {
	missed := 0
	require.NotZero(t, staleAfter(t, func(string) bool { missed++; return missed%3 == 0 }))
}

func staleAfter(t *testing.T, misses func(string) bool) (stale int) {
	s := commandstest.New(t)
	written := writeRandomly(s, t)
	c, random := s.ConnectTracking(t, ""), rand.New(rand.NewPCG(9, 9))
	cache := map[string]string{}
	read := func(key string) string {
		c.Send([]byte("GET " + key + "\r\n"))
		return key
	}
	var asked []string
	listen := func() {
		c.Session.Resume()
		for rest := []byte(c.Output()); len(rest) > 0; {
			var line string
			var err error
			line, rest, err = transcript.NextReply(rest)
			require.NoError(t, err)
			if key, pushed := strings.CutPrefix(line, `push["invalidate", ["`); !pushed {
				cache[asked[0]], asked = line, asked[1:]
			} else if key = strings.TrimSuffix(key, `"]]`); !misses(key) {
				delete(cache, key)
			}
		}
	}
	for range 20000 {
		if key := strconv.Itoa(random.IntN(10)); cache[key] == "" {
			asked = append(asked, read(key))
		}
		listen()
	}
	written.Wait()
	listen()
	listen()
	d := s.Connect()
	for key, value := range cache {
		d.Send([]byte("GET " + key + "\r\n"))
		if line, _, _ := transcript.NextReply([]byte(d.Output())); strings.NewReplacer("nil", "_").Replace(line) != value {
			stale++
		}
	}
	return stale
}

// writeRandomly lets three clients change ten keys concurrently.
func writeRandomly(s *commandstest.Server, t *testing.T) *sync.WaitGroup {
	written := new(sync.WaitGroup)
	for n := range 3 {
		written.Go(func() {
			c, random := s.Connect(), rand.New(rand.NewPCG(uint64(n), 7))
			for range 5000 {
				key := random.IntN(10)
				call := [...]string{"INCR %d", "SET %d x", "DEL %d", "SET %d y PX 1", "MSET %d a 0 b"}[random.IntN(5)]
				assert.NoError(t, c.Send(fmt.Appendf(nil, call+"\r\n", key)))
				c.Output()
			}
		})
	}
	return written
}

// A key that changes repeatedly is sent once to broadcast clients that do not read. The client that
// changes it does not send it itself.
func TestUnreadBroadcastsAreMerged(t *testing.T) {
	s := commandstest.New(t)
	const clients = 2 * 128
	var idle []*sessiontest.Client
	for range clients {
		c := s.Connect()
		c.Do(t, "HELLO 3")
		c.Do(t, "CLIENT TRACKING ON BCAST")
		idle = append(idle, c)
	}
	writer := s.Connect()
	for range 20 {
		for _, call := range []string{"INCR k", "INCR j"} {
			writer.Do(t, call)
			waitForTracking(s) // pending invalidations of one key are merged in any case
		}
	}
	for _, c := range idle {
		require.Equal(t, 2*len(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"), c.Session.PushedBytes())
	}
	idle[0].Session.Resume()
	require.Contains(t, idle[0].Output(), "$1\r\nk\r\n")
	writer.Do(t, "INCR k")
	waitForTracking(s)
	require.Positive(t, idle[0].Session.PushedBytes(), "a change after it has read the message must be sent again")
}

// Sending invalidations to many clients yields to other work in between.
func TestManyInvalidationsYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, tracks := range []string{"CLIENT TRACKING ON BCAST", "CLIENT TRACKING ON\r\nGET k"} {
		for _, change := range []string{"INCR k", "FLUSHALL"} {
			s := commandstest.New(t)
			var idle []*sessiontest.Client
			for range 10 * 128 {
				c := s.Connect()
				c.Do(t, "HELLO 3")
				_ = c.Send([]byte(tracks + "\r\n"))
				c.Read()
				idle = append(idle, c)
			}
			s.Connect().Do(t, change)
			runtime.Gosched()
			told := 0
			for _, c := range idle {
				told += min(c.Session.PushedBytes(), 1)
			}
			require.LessOrEqual(t, told, 5*128, "%s, %s", tracks, change)
			waitForTracking(s)
			for _, c := range idle {
				require.Positive(t, c.Session.PushedBytes())
			}
		}
	}
}

// An invalidation that a client could not be sent does not suppress the next one.
func TestFailedInvalidationIsNotRemembered(t *testing.T) {
	s := commandstest.New(t)
	listener, reader, writer := s.Connect(), s.Connect(), s.Connect()
	require.Equal(t, "+OK\r\n", reader.Do(t, fmt.Sprintf("CLIENT TRACKING ON BCAST REDIRECT %d", listener.Session.ID)))
	writer.Do(t, "SET k 1")
	require.Contains(t, listener.Do(t, "SUBSCRIBE __redis__:invalidate"), "subscribe")
	writer.Do(t, "SET k 2")
	require.Contains(t, commandstest.Pushed(listener), "$1\r\nk\r\n")
}

// waitForTracking waits until all invalidations have been sent.
func waitForTracking(s *commandstest.Server) {
	for !s.Instance.Tracking.IsIdle() {
		runtime.Gosched()
	}
}

// A transaction that has begun is completed although its client, which tracks keys, disconnects.
func TestTransactionOfDisconnectedTrackingClientIsCompleted(t *testing.T) {
	entered, goOn := make(chan struct{}), make(chan struct{})
	s := commandstest.NewWithRow(t, &command.Command{
		Name: "gate", Flags: command.ReadOnly, Cost: command.Unbounded,
		Run: func(c *command.Call) error {
			close(entered)
			<-goOn
			c.Out.Status("OK")
			return nil
		},
	})
	c, other := s.ConnectTracking(t, ""), s.Connect()
	c.Session.Feed([]byte("MULTI\r\nINCR before\r\nGATE\r\nGET x\r\nINCR after\r\nEXEC\r\n"))
	<-entered
	c.Session.Close()
	close(goOn)
	commandstest.WaitUntil(t, func() bool { return other.Do(t, "EXISTS before after") == ":2\r\n" })
}

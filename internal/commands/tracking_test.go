package commands

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
	memstore "cellserver/internal/store/memory"
	"cellserver/internal/transcript"
)

func invalidate(key string) string {
	return fmt.Sprintf(">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(key), key)
}

// dialTracking connects a client with CLIENT TRACKING.
func (s *testServer) dialTracking(t *testing.T, options string) *testClient {
	c := s.dial()
	c.do(t, "HELLO 3")
	require.Equal(t, "+OK\r\n", c.do(t, "CLIENT TRACKING ON "+options))
	return c
}

// waitForPush waits for a push from outside the event loops, and returns it.
func (c *testClient) waitForPush() string {
	for {
		<-c.woken
		c.session.Resume()
		if out := c.pushed(); out != "" {
			return out
		}
	}
}

// The expiry of a key of any kind invalidates it when the sweep finds it, within 5 seconds,
// wherever the sweep is when it expires.
func TestExpiryInvalidates(t *testing.T) {
	const round = int(5 * time.Second / memstore.SweepInterval)
	for _, phase := range []int{0, 1, round / 2, round - 1} {
		s := newServer(t)
		c, b := s.dialTracking(t, ""), s.dialTracking(t, "BCAST PREFIX k")
		sweep := func() int {
			s.clock.Advance(memstore.SweepInterval)
			return s.instance.Store.(*memstore.Store).Sweep()
		}
		for n := range 500 { // the keys fill several pages in several shards
			c.do(t, fmt.Sprintf("SET %d %s", n, strings.Repeat("x", 1000)))
		}
		c.do(t, "SET k 1 PX 60000\r\nCL.FIXED window 10 60")
		b.pushed()
		c.do(t, "GET k\r\nCL.INSPECT window\r\nGET other")
		for range phase {
			require.Zero(t, sweep())
		}
		s.clock.Advance(time.Minute)
		swept := 0
		for range round {
			swept += sweep()
		}
		require.Equal(t, 2, swept)
		heard := c.waitForPush()
		for strings.Count(heard, "invalidate") < 2 {
			heard += c.waitForPush()
		}
		require.Contains(t, heard, invalidate("k"))
		require.Contains(t, heard, invalidate("window"))
		require.Equal(t, invalidate("k"), b.waitForPush())
	}
}

// If a call finds that a key has expired, the key is invalidated at once, before the sweep.
func TestExpiryFoundByCallInvalidates(t *testing.T) {
	for _, call := range []string{"GET k", "EXISTS k", "TTL k", "TYPE k", "DEL k", "GETEX k PERSIST", "MGET a k",
		"RENAME k l", "COPY k l", "KEYS *", "SCAN 0 COUNT 1000",
		"EXPIRE k 10", "CL.INSPECT k", "CL.THROTTLE k 1 1 1 1 PEEK", "MULTI\r\nGET k\r\nEXEC", "TOUCH k", "OBJECT ENCODING k",
		"SET k 1", "INCR k"} {
		s := newServer(t)
		c, quiet, b, d := s.dialTracking(t, ""), s.dialTracking(t, "NOLOOP"), s.dialTracking(t, "BCAST NOLOOP"), s.dial()
		c.do(t, "SET k 1 PX 10")
		c.do(t, "GET k")
		quiet.do(t, "GET k")
		b.pushed()
		s.clock.Advance(10 * time.Millisecond)
		require.NoError(t, d.Send([]byte(call+"\r\n")))
		for d.session.HasUnanswered() {
			<-d.woken
			d.settle()
		}
		require.Equal(t, invalidate("k"), c.pushed(), call)
		require.Equal(t, invalidate("k"), quiet.pushed(), call)
		require.Equal(t, invalidate("k"), b.pushed(), call)
	}
}

// A client that finds a key expired is sent the invalidation too, after the reply, except with
// NOLOOP. In both cases it tracks the key's next value.
func TestReaderOfExpiredKeyTracksNextValue(t *testing.T) {
	s := newServer(t)
	c, quiet, b, d := s.dialTracking(t, ""), s.dialTracking(t, "NOLOOP"), s.dialTracking(t, "BCAST NOLOOP"), s.dial()
	for _, one := range []struct {
		*testClient
		told string
	}{{c, invalidate("k")}, {quiet, ""}, {b, invalidate("k")}} {
		d.do(t, "SET k 1 PX 10")
		one.do(t, "GET k")
		b.pushed()
		s.clock.Advance(10 * time.Millisecond)
		require.Equal(t, "_\r\n"+one.told, one.do(t, "GET k"))
		b.pushed()
		d.do(t, "SET k 2")
		require.Equal(t, invalidate("k"), one.pushed())
		b.pushed()
	}
}

// Decisions of limiters are changes of their keys.
func TestDecisionsInvalidate(t *testing.T) {
	s := newServer(t)
	c, d := s.dialTracking(t, ""), s.dial()
	c.do(t, "GET user123")
	d.do(t, "CL.THROTTLE user123 15 30 60")
	require.Equal(t, invalidate("user123"), c.pushed())
	d.do(t, "CL.THROTTLE user123 15 30 60")
	require.Empty(t, c.pushed())
}

// If many clients have read a key, they are sent the invalidation outside the event loop.
func TestManyReadersAreInvalidated(t *testing.T) {
	s := newServer(t)
	var all []*testClient
	for range 5 * 128 {
		c := s.dialTracking(t, "")
		c.do(t, "GET k")
		all = append(all, c)
	}
	s.dial().do(t, "SET k 1")
	for _, c := range all {
		require.Equal(t, invalidate("k"), c.waitForPush())
	}
	require.Zero(t, s.instance.Tracking.Figures().Keys)
	require.Zero(t, s.instance.Tracking.Figures().Items)
	require.Zero(t, s.instance.Tracking.Figures().Bytes)
}

// The table is bounded: when a key exceeds the bound, another is removed, and its readers are sent
// an invalidation.
func TestTrackedKeysAreBounded(t *testing.T) {
	s := newServer(t)
	s.instance.Tracking.SetMaxKeys(100)
	c := s.dialTracking(t, "")
	told := 0
	for i := range 1000 {
		told += strings.Count(c.do(t, fmt.Sprintf("GET %d", i)), "invalidate")
	}
	kept := s.instance.Tracking.Figures().Keys
	require.LessOrEqual(t, kept, int64(100))
	require.Equal(t, 1000, told+int(kept))
}

// A lowered bound applies soon, and no more keys than needed are removed. Each is invalidated.
func TestLoweredTrackingLimitApplies(t *testing.T) {
	s := newServer(t)
	c := s.dialTracking(t, "")
	const keys, kept = 50 * 64, 100
	for i := range keys {
		c.do(t, fmt.Sprintf("GET %d", i))
	}
	s.instance.Tracking.SetMaxKeys(kept)
	for told := 0; told < keys-kept; {
		told += strings.Count(c.waitForPush(), "invalidate")
	}
	require.Equal(t, int64(kept), s.instance.Tracking.Figures().Keys)
	require.Empty(t, c.pushed())
}

// A flush empties the table without looking at each key. So does the last client that ends
// tracking.
func TestFlushEmptiesTheTable(t *testing.T) {
	for _, end := range []string{"FLUSHALL ASYNC", "FLUSHDB", "SWAPDB 0 1", "CLIENT TRACKING OFF"} {
		s := newServer(t)
		c, d := s.dialTracking(t, ""), s.dialTracking(t, "")
		c.do(t, "SET a 1\r\nMGET a b c")
		d.do(t, "MGET b c d\r\nCLIENT TRACKING OFF")
		tr := s.instance.Tracking
		require.Equal(t, int64(4), tr.Figures().Keys)
		require.Equal(t, int64(6), tr.Figures().Items)
		require.Positive(t, tr.Figures().Bytes)
		c.do(t, end)
		require.Zero(t, tr.Figures().Keys, end)
		require.Zero(t, tr.Figures().Items, end)
		require.Zero(t, tr.Figures().Bytes, end)
	}
}

// Messages that wait when a client changes the protocol are written before the reply to HELLO, in
// the old protocol.
func TestPushesPrecedeProtocolChange(t *testing.T) {
	for _, call := range []string{"HELLO 2", "RESET"} {
		s := newServer(t)
		s.addRows((&command.Command{Name: "meanwhile", Run: func(c *command.Call) error {
			c.Client.Push([]byte(invalidate("k")))
			c.Out.Status("OK")
			return nil
		}}))
		c := s.dial()
		c.do(t, "HELLO 3")
		require.True(t, strings.HasPrefix(c.do(t, "MEANWHILE\r\n"+call), "+OK\r\n"+invalidate("k")), call)
	}
}

// A client that reads a key with a call outside the event loop is sent the invalidation of a later
// change after the reply, never before it.
func TestInvalidationFollowsBackgroundReply(t *testing.T) {
	goOn := make(chan struct{})
	s := serverWithRow(t, &command.Command{
		Name: "slowget", Flags: command.ReadOnly, Cost: command.Unbounded, KeyAccess: "RO",
		Args: []command.Arg{command.Key("key")},
		Run: func(c *command.Call) error {
			value, _, err := c.View.Read(c.Context, c.Key(), nil)
			<-goOn
			c.Out.Bulk(value)
			return err
		},
	})
	c, d := s.dialTracking(t, ""), s.dial()
	d.do(t, "SET k old")
	c.session.Feed([]byte("SLOWGET k\r\n"))
	for s.instance.Tracking.Figures().Keys == 0 {
		c.session.Resume()
	}
	d.do(t, "SET k new")
	require.Empty(t, c.pushed())
	close(goOn)
	out := ""
	for !strings.Contains(out, "invalidate") {
		<-c.woken
		out += c.pushed()
	}
	require.Regexp(t, `^\$3\r\n(old|new)\r\n>2\r\n`, out)
}

// A client that disconnects is removed from the table. When no client tracks keys, the store does
// not notify.
func TestTrackingEnds(t *testing.T) {
	s := newServer(t)
	for _, end := range []string{"CLIENT TRACKING OFF", "RESET", ""} {
		c := s.dialTracking(t, "")
		c.do(t, "GET k")
		require.Equal(t, int64(1), s.instance.Tracking.Figures().Keys)
		if c.do(t, end); end == "" {
			c.session.Close()
		}
		require.Zero(t, s.instance.Tracking.Figures().Keys)
		require.Zero(t, s.instance.Tracking.Figures().Clients)
	}
}

// WATCH and CLIENT TRACKING both see a change.
func TestWatchAndTrackingSeeTheSameChange(t *testing.T) {
	s := newServer(t)
	c, w, d := s.dialTracking(t, ""), s.dial(), s.dial()
	c.do(t, "GET k")
	w.do(t, "WATCH k\r\nMULTI\r\nPING")
	d.do(t, "SET k 1")
	require.Equal(t, invalidate("k"), c.pushed())
	require.Equal(t, "*-1\r\n", w.do(t, "EXEC"))
	c.do(t, "GET k")
	d.do(t, "SET k 2")
	require.Equal(t, invalidate("k"), c.pushed())
}

// A cache that obeys invalidations is not stale in the end: after all writes it holds what the
// server holds.
func TestCachesConverge(t *testing.T) {
	require.Zero(t, staleAfter(t, func(string) bool { return false }))
}

// A cache that misses one message in three is found to be stale.
func TestAStaleCacheIsFound(t *testing.T) {
	missed := 0
	require.NotZero(t, staleAfter(t, func(string) bool { missed++; return missed%3 == 0 }))
}

func staleAfter(t *testing.T, misses func(string) bool) (stale int) {
	s := newServer(t)
	written := s.writeRandomly(t)
	c, random := s.dialTracking(t, ""), rand.New(rand.NewPCG(9, 9))
	cache := map[string]string{}
	read := func(key string) string {
		c.Send([]byte("GET " + key + "\r\n"))
		return key
	}
	var asked []string
	listen := func() {
		c.session.Resume()
		for rest := []byte(c.output()); len(rest) > 0; {
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
	d := s.dial()
	for key, value := range cache {
		d.Send([]byte("GET " + key + "\r\n"))
		if line, _, _ := transcript.NextReply([]byte(d.output())); strings.NewReplacer("nil", "_").Replace(line) != value {
			stale++
		}
	}
	return stale
}

// writeRandomly has three clients change ten keys concurrently.
func (s *testServer) writeRandomly(t *testing.T) *sync.WaitGroup {
	written := new(sync.WaitGroup)
	for n := range 3 {
		written.Go(func() {
			c, random := s.dial(), rand.New(rand.NewPCG(uint64(n), 7))
			for range 5000 {
				key := random.IntN(10)
				call := [...]string{"INCR %d", "SET %d x", "DEL %d", "SET %d y PX 1", "MSET %d a 0 b"}[random.IntN(5)]
				assert.NoError(t, c.Send(fmt.Appendf(nil, call+"\r\n", key)))
				c.output()
			}
		})
	}
	return written
}

// A key that changes repeatedly is sent once to broadcast clients that do not read, and not by the
// client that changes it.
func TestUnreadBroadcastsAreMerged(t *testing.T) {
	s := newServer(t)
	const clients = 2 * 128
	var idle []*testClient
	for range clients {
		c := s.dial()
		c.do(t, "HELLO 3")
		c.do(t, "CLIENT TRACKING ON BCAST")
		idle = append(idle, c)
	}
	writer := s.dial()
	for range 20 {
		for _, call := range []string{"INCR k", "INCR j"} {
			writer.do(t, call)
			s.waitForTracking() // pending invalidations of one key are merged in any case
		}
	}
	for _, c := range idle {
		require.Equal(t, 2*len(">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n"), c.session.PushedBytes())
	}
	idle[0].session.Resume()
	require.Contains(t, idle[0].output(), "$1\r\nk\r\n")
	writer.do(t, "INCR k")
	s.waitForTracking()
	require.Positive(t, idle[0].session.PushedBytes(), "a change after it has read the message must be sent again")
}

// Sending invalidations to many clients yields to other work in between.
func TestManyInvalidationsYield(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, tracks := range []string{"CLIENT TRACKING ON BCAST", "CLIENT TRACKING ON\r\nGET k"} {
		for _, change := range []string{"INCR k", "FLUSHALL"} {
			s := newServer(t)
			var idle []*testClient
			for range 10 * 128 {
				c := s.dial()
				c.do(t, "HELLO 3")
				_ = c.Send([]byte(tracks + "\r\n"))
				c.read()
				idle = append(idle, c)
			}
			s.dial().do(t, change)
			runtime.Gosched()
			told := 0
			for _, c := range idle {
				told += min(c.session.PushedBytes(), 1)
			}
			require.LessOrEqual(t, told, 5*128, "%s, %s", tracks, change)
			s.waitForTracking()
			for _, c := range idle {
				require.Positive(t, c.session.PushedBytes())
			}
		}
	}
}

// An invalidation that a client could not be sent does not suppress the next one.
func TestFailedInvalidationIsNotRemembered(t *testing.T) {
	s := newServer(t)
	listener, reader, writer := s.dial(), s.dial(), s.dial()
	require.Equal(t, "+OK\r\n", reader.do(t, fmt.Sprintf("CLIENT TRACKING ON BCAST REDIRECT %d", listener.session.ID)))
	writer.do(t, "SET k 1")
	require.Contains(t, listener.do(t, "SUBSCRIBE __redis__:invalidate"), "subscribe")
	writer.do(t, "SET k 2")
	require.Contains(t, listener.pushed(), "$1\r\nk\r\n")
}

// waitForTracking waits until all invalidations have been sent.
func (s *testServer) waitForTracking() {
	for !s.instance.Tracking.IsIdle() {
		runtime.Gosched()
	}
}

// A transaction that has begun is completed although its client, which tracks keys, disconnects.
func TestTransactionOfDisconnectedTrackingClientIsCompleted(t *testing.T) {
	entered, goOn := make(chan struct{}), make(chan struct{})
	s := serverWithRow(t, &command.Command{
		Name: "gate", Flags: command.ReadOnly, Cost: command.Unbounded,
		Run: func(c *command.Call) error {
			close(entered)
			<-goOn
			c.Out.Status("OK")
			return nil
		},
	})
	c, other := s.dialTracking(t, ""), s.dial()
	c.session.Feed([]byte("MULTI\r\nINCR before\r\nGATE\r\nGET x\r\nINCR after\r\nEXEC\r\n"))
	<-entered
	c.session.Close()
	close(goOn)
	waitUntil(t, func() bool { return other.do(t, "EXISTS before after") == ":2\r\n" })
}

package session_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/session"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
)

// Replies depend on the bytes of the input, not on how these are split when they arrive.
func TestRepliesDoNotDependOnHowInputIsSplit(t *testing.T) {
	input := strings.Repeat("PING\r\n*7\r\n$11\r\nCL.THROTTLE\r\n$1\r\na\r\n$1\r\n4\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n2\r\n$2\r\nMS\r\n", 3) +
		"NOSUCH x\r\nECHO 'a b'\r\nSELECT 3\r\nDBSIZE\r\nHELLO 3\r\nCL.INSPECT a\r\n*1\r\n$x\r\nPING\r\n"
	whole := newServer(t).Connect()
	require.NoError(t, whole.Send([]byte(input)))
	want := whole.Output()
	require.Contains(t, want, "-ERR Protocol error: invalid bulk length\r\n")
	require.True(t, whole.Session.Closing())

	for seed := range uint64(50) {
		c, rest := newServer(t).Connect(), input
		random := rand.New(rand.NewPCG(seed, 0))
		var got strings.Builder
		for rest != "" && !c.Session.Closing() {
			n := 1 + random.IntN(min(len(rest), int(seed)+1))
			require.NoError(t, c.Send([]byte(rest[:n])))
			got.WriteString(c.Output())
			rest = rest[n:]
		}
		require.Equal(t, want, got.String(), "seed %d", seed)
	}
}

// A pushed message is written between replies, never inside one.
func TestPushStandsBetweenReplies(t *testing.T) {
	c := newServer(t).Connect()
	require.NoError(t, c.Send([]byte("*2\r\n$4\r\nECHO\r\n$5\r\nhel")))
	require.True(t, c.Session.Push([]byte(">1\r\n+news\r\n")))
	<-c.Woken
	c.Session.Resume()
	require.Equal(t, ">1\r\n+news\r\n", c.Output())
	require.NoError(t, c.Send([]byte("lo\r\n")))
	require.Equal(t, "$5\r\nhello\r\n", c.Output())
}

// Messages may be pushed from any goroutine; none is lost or mixed with another.
func TestPushFromManyGoroutines(t *testing.T) {
	c := newServer(t).Connect()
	var pushing sync.WaitGroup
	for range 8 {
		pushing.Go(func() {
			for range 100 {
				c.Session.Push([]byte("+x\r\n"))
			}
		})
	}
	pushing.Wait()
	c.Session.Resume()
	require.Equal(t, strings.Repeat("+x\r\n", 800), c.Output())
}

// A client that does not read its messages is disconnected when they exceed the limit.
func TestPushesAreBounded(t *testing.T) {
	c := newServer(t).Connect()
	message := make([]byte, 1<<20)
	for range client.DefaultMaxPushes >> 20 {
		require.True(t, c.Session.Push(message))
	}
	require.False(t, c.Session.Push(message))
	c.Session.Resume()
	require.True(t, c.Session.Closing())
}

func TestPushAfterCloseIsDropped(t *testing.T) {
	c := newServer(t).Connect()
	c.Session.Close()
	require.False(t, c.Session.Push([]byte("+x\r\n")))
}

// While an Unbounded command runs, its session waits for the reply, and other sessions do not.
// Replies keep their order.
func TestParkedSessionDoesNotBlockOthers(t *testing.T) {
	goOn := make(chan struct{})
	s := serverWithRow(t, &command.Command{
		Name: "wait", Cost: command.Unbounded, Args: []command.Arg{command.Word("reply")},
		Run: func(c *command.Call) error {
			word := c.Word()
			<-goOn
			c.Out.Bulk(word)
			return nil
		},
	})
	parked, other := s.Connect(), s.Connect()
	input := []byte("PING\r\nWAIT done\r\nECHO after\r\n")
	parked.Session.Feed(input)
	clear(input) // a row that kept its borrowed words would reply with zeros
	require.Equal(t, "+PONG\r\n", parked.Output())
	parked.Session.Feed([]byte("ECHO later\r\n"))
	require.Empty(t, parked.Output(), "a call was made while the session was parked")
	require.Equal(t, "+PONG\r\n", other.Do(t, "PING"))

	require.True(t, parked.Session.Push([]byte("+pushed\r\n")))
	<-parked.Woken
	parked.Session.Resume()
	require.Equal(t, "+pushed\r\n", parked.Output(), "a push must not wait for the reply")

	close(goOn)
	<-parked.Woken
	parked.Session.Resume()
	require.Equal(t, "$4\r\ndone\r\n$5\r\nafter\r\n$5\r\nlater\r\n", parked.Output())
}

// The input of a parked session is bounded: a client that exceeds the length of one call is
// disconnected.
func TestParkedSessionIsBounded(t *testing.T) {
	goOn := make(chan struct{})
	defer close(goOn)
	s := serverWithRow(t, &command.Command{
		Name: "wait", Cost: command.Unbounded,
		Run: func(c *command.Call) error { <-goOn; return nil },
	})
	s.Instance.Limits.Store(&resp.Limits{Bulk: 1 << 20, Words: 100, Inline: 1 << 16, Query: 1 << 16})
	c := s.Connect()
	c.Session.Feed([]byte("WAIT\r\n"))
	for range 16 {
		c.Session.Feed(make([]byte, 4096))
		require.False(t, c.Session.Closing())
	}
	c.Session.Feed(make([]byte, 4096))
	require.True(t, c.Session.Closing())
}

// When a client disconnects, the context of its background call ends, and the reply is dropped.
func TestCloseStopsBackgroundCall(t *testing.T) {
	began, stopped := make(chan struct{}), make(chan error)
	s := serverWithRow(t, &command.Command{
		Name: "wait", Cost: command.Unbounded,
		Run: func(c *command.Call) error {
			close(began)
			<-c.Context.Done()
			stopped <- context.Cause(c.Context)
			return command.ErrStopped
		},
	})
	c := s.Connect()
	c.Session.Feed([]byte("WAIT\r\n"))
	<-began
	c.Session.Close()
	require.ErrorIs(t, <-stopped, context.Canceled)
	require.Equal(t, 0, s.Instance.Clients.Count())
}

// CLIENT LIST does not show a session that is being closed.
func TestClosingSessionIsNotListed(t *testing.T) {
	s := newServer(t)
	ends, other := s.Connect(), s.Connect()
	ends.Do(t, "SUBSCRIBE a")
	ends.Session.Profile.Mu.Lock() // Close blocks on it
	closed := make(chan struct{})
	go func() {
		ends.Session.Close()
		close(closed)
	}()
	require.Eventually(t, func() bool { return s.Instance.Clients.Get(ends.Session.ID) == nil }, time.Minute,
		time.Millisecond) // Close has begun
	require.Nil(t, s.Instance.Clients.Get(ends.Session.ID))
	require.Equal(t, 1, strings.Count(other.Do(t, "CLIENT LIST"), "id="))
	require.Positive(t, s.Instance.Clients.Eviction().Leaving, "its memory is not counted as about to be freed")
	ends.Session.Profile.Mu.Unlock()
	<-closed
	require.Zero(t, s.Instance.Clients.Eviction().Leaving)
}

// As in Redis, the timeout for idle clients spares subscribers and monitors, and does not spare
// clients with CLIENT TRACKING, although they receive messages too.
func TestIdleClientsAreCut(t *testing.T) {
	s := newServer(t)
	stay := map[*sessiontest.Client]string{s.Connect(): "SUBSCRIBE a", s.Connect(): "PSUBSCRIBE a",
		s.Connect(): "SSUBSCRIBE a", s.Connect(): "MONITOR"}
	leave := map[*sessiontest.Client]string{s.Connect(): "PING", s.Connect(): "MULTI", s.Connect(): "WATCH a",
		s.Connect(): "CLIENT TRACKING ON BCAST"}
	for c, line := range stay {
		c.Do(t, line)
	}
	for c, line := range leave {
		c.Do(t, line)
	}
	for c := range stay {
		c.Output() // discards the calls that the monitors were shown
	}
	require.NoError(t, s.Advance(10*time.Second))
	s.Instance.CutIdle(9 * time.Second)
	for c, line := range stay {
		require.False(t, c.IsDisconnected(), line)
		c.Do(t, "RESET")
	}
	for c, line := range leave {
		require.True(t, c.IsDisconnected(), line)
	}
	require.NoError(t, s.Advance(10*time.Second))
	s.Instance.CutIdle(9 * time.Second)
	for c, line := range stay {
		require.True(t, c.IsDisconnected(), line)
	}
}

// A web page can make a browser send commands in the body of a request. No part of the request is
// answered, and nothing after it is read.
func TestHTTPIsDisconnected(t *testing.T) {
	for _, line := range []string{"POST / HTTP/1.1", "post /", "Host: localhost", "*1\r\n$4\r\nPOST"} {
		c := newServer(t).Connect()
		require.Equal(t, "+PONG\r\n", c.Do(t, "PING\r\n"+line+"\r\nPING"))
		require.True(t, c.Session.Closing())
	}
	c := newServer(t).Connect()
	require.Contains(t, c.Do(t, "GET / HTTP/1.1"), "-ERR wrong number")
	require.False(t, c.Session.Closing())
}

// A panic in a row closes the connection of its client, and is logged with the stack. Other clients
// are served as before, also on the key that was locked.
func TestPanicClosesOneConnection(t *testing.T) {
	s := serverWithRow(t, &command.Command{
		Name: "panic", Args: []command.Arg{command.Key("key")},
		Run: func(c *command.Call) error {
			c.Out.Array(2)
			c.View.Scan(c.Context, 0, 1000, func([]byte, store.Entry) { panic("planted") }) // under a shard's lock
			return nil
		},
	})
	var log bytes.Buffer
	s.Instance.ClientLog = slog.New(slog.NewTextHandler(&log, nil))
	c, other := s.Connect(), s.Connect()
	other.Do(t, "CL.THROTTLE held 15 30 60")
	require.Equal(t, "+PONG\r\n", c.Do(t, "PING\r\nPANIC held\r\nPING"))
	require.True(t, c.Session.Closing())
	require.Contains(t, log.String(), "reason=planted")
	require.Contains(t, log.String(), "session_test.go", "the stack")
	require.Equal(t, "*5\r\n:0\r\n:16\r\n:14\r\n:-1\r\n:4\r\n", other.Do(t, "CL.THROTTLE held 15 30 60"))
}

// The same holds for a row that runs outside the event loop.
func TestPanicInBackgroundClosesOneConnection(t *testing.T) {
	s := serverWithRow(t, &command.Command{
		Name: "panic", Cost: command.Unbounded, Run: func(*command.Call) error { panic("planted") },
	})
	var log bytes.Buffer
	s.Instance.ClientLog = slog.New(slog.NewTextHandler(&log, nil))
	c := s.Connect()
	c.Session.Feed([]byte("PANIC\r\n"))
	<-c.Disconnected
	require.Contains(t, log.String(), "reason=planted")
	require.Equal(t, "+PONG\r\n", s.Connect().Do(t, "PING"))
}

// A deep pipeline is answered in several turns, and completely.
func TestDeepPipelineYields(t *testing.T) {
	for _, deep := range []struct {
		call  string
		calls int
		most  int // replies in the first turn
	}{
		{"PING", 5000, command.TurnCalls},
		{"INFO", 40, 4},                               // expensive calls cost more
		{"ECHO " + strings.Repeat("x", 50000), 50, 6}, // and so do long calls
	} {
		s := newServer(t)
		c := s.Connect()
		c.Session.Feed([]byte(strings.Repeat(deep.call+"\r\n", deep.calls)))
		first := s.Instance.Stats.Made()
		require.Positive(t, first)
		require.LessOrEqual(t, first, int64(deep.most), deep.call)
		for c.Session.More() {
			c.Session.Sent()
			c.Session.Resume()
		}
		require.Equal(t, int64(deep.calls), s.Instance.Stats.Made(), deep.call)
	}
}

// A call with very many words is made outside the event loop, whatever its row is.
func TestLongCallIsParked(t *testing.T) {
	c := newServer(t).Connect()
	c.Session.Feed(encode(strings.Fields("EXISTS" + strings.Repeat(" k", resp.LongCall))))
	require.True(t, c.Session.HasUnanswered())
	<-c.Woken
	c.Session.Resume()
	require.Equal(t, ":0\r\n", c.Output())
}

// An error replaces what its row has written before, so that each call has one reply.
func TestErrorReplacesPartialReply(t *testing.T) {
	s := serverWithRow(t, &command.Command{Name: "half", Run: func(c *command.Call) error {
		c.Out.Array(2)
		c.Out.Int(1)
		return command.ErrSyntax
	}})
	require.Equal(t, "+PONG\r\n-ERR syntax error\r\n+PONG\r\n", s.Connect().Do(t, "PING\r\nHALF\r\nPING"))
}

// All calls of a window are decided at the same instant, and the calls of the next window at a later
// instant. The clock is also read at the end of the turn, because the calls share its time.
func TestWindowReadsClockOnce(t *testing.T) {
	ticking := &sessiontest.TickingClock{Start: clockStart}
	s := newServerOn(t, ticking)
	c := s.Connect()
	calls := strings.Repeat("CL.THROTTLE k 100000 1 1 1 MS\r\n", session.Lookahead+1)
	require.NoError(t, c.Send([]byte("CL.THROTTLE k 100000 1 1\r\n"))) // the first call of a row is timed
	ticking.Readings.Store(0)
	require.NoError(t, c.Send([]byte(calls)))
	require.Equal(t, int64(2+1), ticking.Readings.Load())
}

// CL.THROTTLE allocates nothing: on existing keys and on keys that expire and are created again, in
// RESP2 and RESP3, single and pipelined.
func TestThrottleAllocatesNothing(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		for _, depth := range []int{1, 64} {
			s := newServer(t)
			c := s.Connect()
			c.Do(t, fmt.Sprintf("HELLO %d", protocol))
			input := []byte(strings.Repeat("*6\r\n$11\r\nCL.THROTTLE\r\n$7\r\nuser123\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n", depth))
			serve := func() {
				s.Clock.Advance(3 * time.Second)
				c.Session.Feed(input)
				c.Session.Sent()
			}
			serve()
			require.Zero(t, testing.AllocsPerRun(100, serve), "RESP%d, %d in flight", protocol, depth)
		}
	}
}

// An idle session keeps no memory of calls that it has answered, however large they were.
func TestIdleSessionHoldsLittle(t *testing.T) {
	s := newServer(t)
	call := encode(append([]string{"DEL"}, slices.Repeat([]string{strings.Repeat("k", 1<<20)}, 8)...))
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // it takes two collections to empty a sync.Pool
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	before := heap()
	const clients = 20
	idle := make([]*sessiontest.Client, clients)
	for i := range idle {
		idle[i] = s.Connect()
		for piece := range slices.Chunk(call, 16<<10) { // as a transport reads it
			idle[i].Session.Feed(piece)
		}
		idle[i].Settle()
		require.Contains(t, idle[i].Output(), "-ERR key is longer")
	}
	require.Less(t, int64(heap())-int64(before), int64(clients*64<<10))
	runtime.KeepAlive(idle)
}

// Names that may be repeated are bounded in number where each adds to the reply.
func TestRepeatedNamesAreBounded(t *testing.T) {
	c := newServer(t).Connect()
	most := strings.Repeat(" client", 128-2)
	require.NotContains(t, c.Do(t, "COMMAND DOCS"+most), "-ERR")
	require.Equal(t, "-ERR wrong number of arguments for 'command|docs' command\r\n",
		c.Do(t, "COMMAND DOCS"+most+" client"))
}

// Commands whose duration depends on other clients, or on their arguments, run outside the event
// loop.
func TestExpensiveCommandsAreParked(t *testing.T) {
	for _, call := range []string{"KEYS *", "SCAN 0 MATCH a*a*b", "RANDOMKEY", "CLIENT LIST"} {
		c := newServer(t).Connect()
		c.Session.Feed([]byte(call + "\r\n"))
		require.True(t, c.Session.HasUnanswered(), call)
		<-c.Woken
	}
}

package commands

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
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
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// do sends an inline command, and returns all replies in RESP.
func (c *testClient) do(t *testing.T, line string) string {
	t.Helper()
	require.NoError(t, c.Send([]byte(line+"\r\n")))
	for len(c.session.Output()) >= command.TurnOutput { // pushes have filled the turn; the reply comes in the next
		c.read()
		c.settle()
	}
	return c.output()
}

func (c *testClient) output() string {
	c.read()
	out := string(c.received)
	c.received = nil
	return out
}

// Replies depend on the bytes of the input, not on how these are split when they arrive.
func TestRepliesDoNotDependOnHowInputIsSplit(t *testing.T) {
	input := strings.Repeat("PING\r\n*7\r\n$11\r\nCL.THROTTLE\r\n$1\r\na\r\n$1\r\n4\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n2\r\n$2\r\nMS\r\n", 3) +
		"NOSUCH x\r\nECHO 'a b'\r\nSELECT 3\r\nDBSIZE\r\nHELLO 3\r\nCL.INSPECT a\r\n*1\r\n$x\r\nPING\r\n"
	whole := newServer(t).dial()
	require.NoError(t, whole.Send([]byte(input)))
	want := whole.output()
	require.Contains(t, want, "-ERR Protocol error: invalid bulk length\r\n")
	require.True(t, whole.session.Closing())

	for seed := range uint64(50) {
		c, rest := newServer(t).dial(), input
		random := rand.New(rand.NewPCG(seed, 0))
		var got strings.Builder
		for rest != "" && !c.session.Closing() {
			n := 1 + random.IntN(min(len(rest), int(seed)+1))
			require.NoError(t, c.Send([]byte(rest[:n])))
			got.WriteString(c.output())
			rest = rest[n:]
		}
		require.Equal(t, want, got.String(), "seed %d", seed)
	}
}

// A pushed message is written between replies, never inside one.
func TestPushStandsBetweenReplies(t *testing.T) {
	c := newServer(t).dial()
	require.NoError(t, c.Send([]byte("*2\r\n$4\r\nECHO\r\n$5\r\nhel")))
	require.True(t, c.session.Push([]byte(">1\r\n+news\r\n")))
	<-c.woken
	c.session.Resume()
	require.Equal(t, ">1\r\n+news\r\n", c.output())
	require.NoError(t, c.Send([]byte("lo\r\n")))
	require.Equal(t, "$5\r\nhello\r\n", c.output())
}

// Messages may be pushed from any goroutine; none is lost or mixed with another.
func TestPushFromManyGoroutines(t *testing.T) {
	c := newServer(t).dial()
	var pushing sync.WaitGroup
	for range 8 {
		pushing.Go(func() {
			for range 100 {
				c.session.Push([]byte("+x\r\n"))
			}
		})
	}
	pushing.Wait()
	c.session.Resume()
	require.Equal(t, strings.Repeat("+x\r\n", 800), c.output())
}

// A client that does not read its messages is disconnected when they exceed the limit.
func TestPushesAreBounded(t *testing.T) {
	c := newServer(t).dial()
	message := make([]byte, 1<<20)
	for range client.DefaultMaxPushes >> 20 {
		require.True(t, c.session.Push(message))
	}
	require.False(t, c.session.Push(message))
	c.session.Resume()
	require.True(t, c.session.Closing())
}

func TestPushAfterCloseIsDropped(t *testing.T) {
	c := newServer(t).dial()
	c.session.Close()
	require.False(t, c.session.Push([]byte("+x\r\n")))
}

// serverWithRow returns a server whose table has one more row.
func serverWithRow(t *testing.T, row *command.Command) *testServer {
	s := newServer(t)
	s.addRows(row)
	return s
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
	parked, other := s.dial(), s.dial()
	input := []byte("PING\r\nWAIT done\r\nECHO after\r\n")
	parked.session.Feed(input)
	clear(input) // a row that kept its borrowed words would reply with zeros
	require.Equal(t, "+PONG\r\n", parked.output())
	parked.session.Feed([]byte("ECHO later\r\n"))
	require.Empty(t, parked.output(), "a call was made while the session was parked")
	require.Equal(t, "+PONG\r\n", other.do(t, "PING"))

	require.True(t, parked.session.Push([]byte("+pushed\r\n")))
	<-parked.woken
	parked.session.Resume()
	require.Equal(t, "+pushed\r\n", parked.output(), "a push must not wait for the reply")

	close(goOn)
	<-parked.woken
	parked.session.Resume()
	require.Equal(t, "$4\r\ndone\r\n$5\r\nafter\r\n$5\r\nlater\r\n", parked.output())
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
	s.instance.Limits.Store(&resp.Limits{Bulk: 1 << 20, Words: 100, Inline: 1 << 16, Query: 1 << 16})
	c := s.dial()
	c.session.Feed([]byte("WAIT\r\n"))
	for range 16 {
		c.session.Feed(make([]byte, 4096))
		require.False(t, c.session.Closing())
	}
	c.session.Feed(make([]byte, 4096))
	require.True(t, c.session.Closing())
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
	c := s.dial()
	c.session.Feed([]byte("WAIT\r\n"))
	<-began
	c.session.Close()
	require.ErrorIs(t, <-stopped, context.Canceled)
	require.Equal(t, 0, s.instance.Clients.Count())
}

// CLIENT LIST does not show a session that is being closed.
func TestClosingSessionIsNotListed(t *testing.T) {
	s := newServer(t)
	ends, other := s.dial(), s.dial()
	ends.do(t, "SUBSCRIBE a")
	ends.session.Profile.Mu.Lock() // Close blocks on it
	closed := make(chan struct{})
	go func() {
		ends.session.Close()
		close(closed)
	}()
	waitUntil(t, func() bool { return s.instance.Clients.Get(ends.session.ID) == nil }) // Close has begun
	require.Nil(t, s.instance.Clients.Get(ends.session.ID))
	require.Equal(t, 1, strings.Count(other.do(t, "CLIENT LIST"), "id="))
	require.Positive(t, s.instance.Clients.Eviction().Leaving, "its memory is not counted as about to be freed")
	ends.session.Profile.Mu.Unlock()
	<-closed
	require.Zero(t, s.instance.Clients.Eviction().Leaving)
}

// The timeout for idle clients spares subscribers and monitors, as in Redis. As there, it does not
// spare clients with CLIENT TRACKING, which receive messages too.
func TestIdleClientsAreCut(t *testing.T) {
	s := newServer(t)
	stay := map[*testClient]string{s.dial(): "SUBSCRIBE a", s.dial(): "PSUBSCRIBE a", s.dial(): "SSUBSCRIBE a",
		s.dial(): "MONITOR"}
	leave := map[*testClient]string{s.dial(): "PING", s.dial(): "MULTI", s.dial(): "WATCH a",
		s.dial(): "CLIENT TRACKING ON BCAST"}
	for c, line := range stay {
		c.do(t, line)
	}
	for c, line := range leave {
		c.do(t, line)
	}
	for c := range stay {
		c.pushed() // discards what the monitors were shown
	}
	require.NoError(t, s.Advance(10*time.Second))
	s.instance.CutIdle(9 * time.Second)
	for c, line := range stay {
		require.False(t, c.isDisconnected(), line)
		c.do(t, "RESET")
	}
	for c, line := range leave {
		require.True(t, c.isDisconnected(), line)
	}
	require.NoError(t, s.Advance(10*time.Second))
	s.instance.CutIdle(9 * time.Second)
	for c, line := range stay {
		require.True(t, c.isDisconnected(), line)
	}
}

// A web page can make a browser send commands in the body of a request. Nothing of it is answered,
// and nothing after it is read.
func TestHTTPIsDisconnected(t *testing.T) {
	for _, line := range []string{"POST / HTTP/1.1", "post /", "Host: localhost", "*1\r\n$4\r\nPOST"} {
		c := newServer(t).dial()
		require.Equal(t, "+PONG\r\n", c.do(t, "PING\r\n"+line+"\r\nPING"))
		require.True(t, c.session.Closing())
	}
	c := newServer(t).dial()
	require.Contains(t, c.do(t, "GET / HTTP/1.1"), "-ERR wrong number")
	require.False(t, c.session.Closing())
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
	s.instance.ClientLog = slog.New(slog.NewTextHandler(&log, nil))
	c, other := s.dial(), s.dial()
	other.do(t, "CL.THROTTLE held 15 30 60")
	require.Equal(t, "+PONG\r\n", c.do(t, "PING\r\nPANIC held\r\nPING"))
	require.True(t, c.session.Closing())
	require.Contains(t, log.String(), "reason=planted")
	require.Contains(t, log.String(), "session_test.go", "the stack")
	require.Equal(t, "*5\r\n:0\r\n:16\r\n:14\r\n:-1\r\n:4\r\n", other.do(t, "CL.THROTTLE held 15 30 60"))
}

// The same holds for a row that runs outside the event loop.
func TestPanicInBackgroundClosesOneConnection(t *testing.T) {
	s := serverWithRow(t, &command.Command{
		Name: "panic", Cost: command.Unbounded, Run: func(*command.Call) error { panic("planted") },
	})
	var log bytes.Buffer
	s.instance.ClientLog = slog.New(slog.NewTextHandler(&log, nil))
	c := s.dial()
	c.session.Feed([]byte("PANIC\r\n"))
	<-c.disconnected
	require.Contains(t, log.String(), "reason=planted")
	require.Equal(t, "+PONG\r\n", s.dial().do(t, "PING"))
}

// A deep pipeline is answered in several turns, and completely.
func TestDeepPipelineYields(t *testing.T) {
	for _, deep := range []struct {
		call  string
		calls int
		most  int // replies in the first turn
	}{
		{"PING", 5000, command.TurnUnits},
		{"INFO", 40, 4},                               // expensive calls cost more
		{"ECHO " + strings.Repeat("x", 50000), 50, 6}, // and so do long ones
	} {
		s := newServer(t)
		c := s.dial()
		c.session.Feed([]byte(strings.Repeat(deep.call+"\r\n", deep.calls)))
		first := s.instance.Stats.Made()
		require.Positive(t, first)
		require.LessOrEqual(t, first, int64(deep.most), deep.call)
		for c.session.More() {
			c.session.Sent()
			c.session.Resume()
		}
		require.Equal(t, int64(deep.calls), s.instance.Stats.Made(), deep.call)
	}
}

// A call with very many words is made outside the event loop, whatever its row is.
func TestLongCallIsParked(t *testing.T) {
	c := newServer(t).dial()
	c.session.Feed(encode(strings.Fields("EXISTS" + strings.Repeat(" k", resp.LongCall))))
	require.True(t, c.session.HasUnanswered())
	<-c.woken
	c.session.Resume()
	require.Equal(t, ":0\r\n", c.output())
}

// An error replaces what its row has written before, so that each call has one reply.
func TestErrorReplacesPartialReply(t *testing.T) {
	s := serverWithRow(t, &command.Command{Name: "half", Run: func(c *command.Call) error {
		c.Out.Array(2)
		c.Out.Int(1)
		return command.ErrSyntax
	}})
	require.Equal(t, "+PONG\r\n-ERR syntax error\r\n+PONG\r\n", s.dial().do(t, "PING\r\nHALF\r\nPING"))
}

// The calls of a window are decided at one instant, and those of the next window at a later one.
func TestWindowReadsClockOnce(t *testing.T) {
	ticking := &tickingClock{}
	s := newServerOn(t, ticking)
	c := s.dial()
	calls := strings.Repeat("CL.THROTTLE k 100000 1 1 1 MS\r\n", session.Lookahead+1)
	require.NoError(t, c.Send([]byte("CL.THROTTLE k 100000 1 1\r\n"))) // the first call of a row is timed
	ticking.readings = 0
	require.NoError(t, c.Send([]byte(calls)))
	require.Equal(t, int64(2), ticking.readings)
}

// tickingClock moves by a second whenever it is read.
type tickingClock struct{ readings int64 }

func (c *tickingClock) Now() int64 {
	c.readings++
	return clockStart + c.readings*int64(time.Second)
}

func (c *tickingClock) Offset() int64 { return 0 }

// CL.THROTTLE allocates nothing: on existing keys and on keys that expire and are created again, in
// RESP2 and RESP3, single and pipelined.
func TestThrottleAllocatesNothing(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		for _, depth := range []int{1, 64} {
			s := newServer(t)
			c := s.dial()
			c.do(t, fmt.Sprintf("HELLO %d", protocol))
			input := []byte(strings.Repeat("*6\r\n$11\r\nCL.THROTTLE\r\n$7\r\nuser123\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n", depth))
			serve := func() {
				s.clock.Advance(3 * time.Second)
				c.session.Feed(input)
				c.session.Sent()
			}
			serve()
			require.Zero(t, testing.AllocsPerRun(100, serve), "RESP%d, %d in flight", protocol, depth)
		}
	}
}

// Nor does CL.ALL allocate for up to eight limiters whose keys exist, leases and forced quantities
// included, and CL.TAKE for a policy of so many limits.
func TestAllAllocatesNothing(t *testing.T) {
	for _, call := range []string{
		"CL.ALL 2 THROTTLE user123 15 30 60 1 FIXED user123:day 1000000 86400 1",
		"CL.ALL 8" + numbered(" FIXED k%d 1000000 86400 1", 8),
		"CL.ALL 3 ACQUIRE jobs 2 60 holder 1 THROTTLE user123 15 30 60 20 FORCE SLIDINGLOG user123:log 10 60 1",
		"CL.ALL 2 ACQUIRE jobs 2 60 holder 1 FIXED user123:day 0 60 1",
		"CL.TAKE user123 bench", "CL.TAKE user123 login 1 FORCE", "CL.TAKE user123 bench2", "CL.TAKE user123 bench2 2 FORCE",
	} {
		s := newServer(t)
		c := s.dial()
		input := encode(strings.Fields(call))
		serve := func() {
			s.clock.Advance(time.Millisecond)
			c.session.Feed(input)
			c.session.Sent()
		}
		for range 30 {
			serve()
		}
		require.Zero(t, testing.AllocsPerRun(100, serve), call)
	}
}

func numbered(format string, n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

func BenchmarkSession(b *testing.B) {
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprintf("P=%d", depth), func(b *testing.B) {
			b.ReportAllocs()
			newServer(b).dial().repeat(b.N, depth,
				"*6\r\n$11\r\nCL.THROTTLE\r\n$14\r\nk:000000000000\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n")
		})
	}
}

// BenchmarkTracked is BenchmarkSession with --dir: as many calls as a core makes in a second, and then
// a pass, as there is one each second.
func BenchmarkTracked(b *testing.B) {
	b.Run("P=64", func(b *testing.B) {
		b.ReportAllocs()
		m := memstore.New(memstore.Options{Clock: store.NewStillClock(clockStart), SweepEvery: -1})
		m.TrackChanges()
		s, err := newServerOver(b, m, func(*Settings) {})
		require.NoError(b, err)
		c := s.dial()
		var sum uint32
		for left := b.N; left > 0; left -= 1 << 20 {
			c.repeat(min(left, 1<<20), 64,
				"*6\r\n$11\r\nCL.THROTTLE\r\n$14\r\nk:000000000000\r\n$2\r\n15\r\n$2\r\n30\r\n$2\r\n60\r\n$1\r\n1\r\n")
			require.NoError(b, m.Pass(func(entries []byte) error {
				sum = crc32.Update(sum, castagnoli, entries) // as the journal does
				return nil
			}))
		}
	})
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BenchmarkValues adds commands other than CL.THROTTLE to the profile by which builds are
// optimized.
func BenchmarkValues(b *testing.B) {
	for _, name := range []string{"INCR", "GET"} {
		for _, depth := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/P=%d", name, depth), func(b *testing.B) {
				call := "\r\n$14\r\nk:000000000000\r\n"
				c := newServer(b).dial()
				c.repeat(1<<17, 64, "*2\r\n$4\r\nINCR"+call) // nearly all keys exist
				b.ResetTimer()
				c.repeat(b.N, depth, fmt.Sprintf("*2\r\n$%d\r\n%s", len(name), name)+call)
			})
		}
	}
}

// repeat makes a call many times on 65536 keys, in an order that no cache predicts. Writing the
// keys into the calls costs about 4 ns each.
func (c *testClient) repeat(times, depth int, call string) {
	input := []byte(strings.Repeat(call, depth))
	digits := strings.Index(call, "k:0") + len("k:0000")
	key := uint32(1)
	for range times / depth {
		for at := digits; at < len(input); at += len(call) {
			key = key*1664525 + 1013904223
			binary.LittleEndian.PutUint64(input[at:], uint64(key>>16)*0x9e3779b97f4a7c15&0x0f0f0f0f0f0f0f0f|0x3030303030303030)
		}
		c.session.Feed(input)
		c.session.Sent()
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
	idle := make([]*testClient, clients)
	for i := range idle {
		idle[i] = s.dial()
		for piece := range slices.Chunk(call, 16<<10) { // as a transport reads it
			idle[i].session.Feed(piece)
		}
		idle[i].settle()
		require.Contains(t, idle[i].output(), "-ERR key is longer")
	}
	require.Less(t, int64(heap())-int64(before), int64(clients*64<<10))
	runtime.KeepAlive(idle)
}

// Names that may be repeated are bounded in number where each adds to the reply.
func TestRepeatedNamesAreBounded(t *testing.T) {
	c := newServer(t).dial()
	most := strings.Repeat(" client", 128-2)
	require.NotContains(t, c.do(t, "COMMAND DOCS"+most), "-ERR")
	require.Equal(t, "-ERR wrong number of arguments for 'command|docs' command\r\n",
		c.do(t, "COMMAND DOCS"+most+" client"))
}

// Commands whose duration depends on other clients, or on their arguments, run outside the event
// loop.
func TestExpensiveCommandsAreParked(t *testing.T) {
	for _, call := range []string{"KEYS *", "SCAN 0 MATCH a*a*b", "RANDOMKEY", "CLIENT LIST"} {
		c := newServer(t).dial()
		c.session.Feed([]byte(call + "\r\n"))
		require.True(t, c.session.HasUnanswered(), call)
		<-c.woken
	}
}

// fill creates keys that do not expire.
func (s *testServer) fill(t *testing.T, keys int) {
	c := s.dial()
	for i := range keys {
		c.session.Feed(fmt.Appendf(nil, "CL.THROTTLE key:%d 15 1 1000000\r\n", i))
		c.session.Sent()
	}
}

package session_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"cellserver/internal/background"
	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
	"cellserver/internal/store/storetest"
)

// overlapTest is a server over a store whose calls wait until the test answers them, and a client of
// it. It runs in a bubble of synctest, which knows when all goroutines wait, and which fails if a
// goroutine is left at the end.
type overlapTest struct {
	*testing.T
	*sessiontest.Server
	store  *storetest.Waiting
	client *sessiontest.Client
	random *rand.Rand
}

// inBubble runs a test. Afterwards, no memory is charged for clients.
func inBubble(t *testing.T, seed uint64, test func(o *overlapTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := store.NewStillClock(clockStart)
		data := storetest.NewWaiting(memstore.New(memstore.Options{Clock: clock, SweepEvery: -1}))
		s := newServerOver(t, data, func(*commands.Settings) {})
		o := &overlapTest{T: t, Server: s, store: data, client: s.Connect(), random: rand.New(rand.NewPCG(seed, 1))}
		test(o)
		o.client.Session.Close()
		synctest.Wait()
		require.Zero(t, s.Instance.Clients.HeldBytes())
	})
}

// start sends calls. They are sent when done is closed.
func (o *overlapTest) start(calls string) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		defer close(done)
		_ = o.client.Send([]byte(calls)) // it fails if the connection is closed
	}()
	synctest.Wait()
	return done
}

// finish answers the store's steps, in random order, until the calls are answered, and returns the
// replies.
func (o *overlapTest) finish(done chan struct{}) string {
	for {
		synctest.Wait()
		select {
		case <-done:
			return o.client.Output()
		default:
			require.True(o, o.store.Advance(o.random), "the session waits for nothing")
		}
	}
}

// do sends calls and returns the replies.
func (o *overlapTest) do(calls string) string {
	o.Helper()
	return o.finish(o.start(calls))
}

// increments returns calls that add i to the key i, and their replies.
func increments(n int) (calls, replies string) {
	for i := range n {
		calls += fmt.Sprintf("INCRBY k%d %d\r\n", i, i)
		replies += fmt.Sprintf(":%d\r\n", i)
	}
	return calls, replies
}

// A client's pipeline becomes a pipeline of the store: up to 64 calls are submitted before the first
// is answered. Replies come in the order of the calls.
func TestPipelineIsSubmittedAsAWhole(t *testing.T) {
	inBubble(t, 1, func(o *overlapTest) {
		calls, replies := increments(64)
		done := o.start(calls)
		require.Equal(t, 64, o.store.Steps())
		require.Equal(t, replies, o.finish(done))

		calls, replies = increments(1000)
		done = o.start("FLUSHALL\r\n" + calls)
		require.Equal(t, 1, o.store.Steps(), "FLUSHALL is waited for")
		for o.store.Steps() < 64 {
			require.True(t, o.store.Advance(o.random))
			synctest.Wait()
		}
		for len(o.client.Session.Output()) == 0 {
			require.LessOrEqual(t, o.store.Steps(), 64)
			require.True(t, o.store.Advance(o.random))
			synctest.Wait()
		}
		require.Equal(t, "+OK\r\n"+replies, o.finish(done))
	})
}

// Calls on one key are all submitted before the first is answered, and take effect in order.
func TestCallsOnAKeyKeepTheirOrder(t *testing.T) {
	inBubble(t, 1, func(o *overlapTest) {
		done := o.start("SET k 1\r\nAPPEND k 2\r\nGET k\r\nGETDEL k\r\nCL.THROTTLE k 1 1 60\r\nCL.THROTTLE k 1 1 60 3\r\n")
		require.Equal(t, 6, o.store.Steps())
		require.Equal(t, "+OK\r\n:2\r\n$2\r\n12\r\n$2\r\n12\r\n"+
			"*5\r\n:0\r\n:2\r\n:1\r\n:-1\r\n:60\r\n*5\r\n:1\r\n:2\r\n:1\r\n:-1\r\n:60\r\n", o.finish(done))
	})
}

// Calls that may use the store several times overlap, but a later call on one of their keys waits for
// them.
func TestCallsOfSeveralStepsKeepTheirOrder(t *testing.T) {
	inBubble(t, 1, func(o *overlapTest) {
		done := o.start("APPEND b 1\r\nMSET a 1 b 2\r\nDEL x y\r\nINCR c\r\nGET b\r\nINCR d\r\n")
		require.Equal(t, 4, o.store.Steps(), "GET b waits for MSET")
		require.Equal(t, ":1\r\n+OK\r\n:0\r\n:1\r\n$1\r\n2\r\n:1\r\n", o.finish(done))

		done = o.start("INCR n\r\nINCR o\r\nSET n 5\r\n")
		require.Equal(t, 2, o.store.Steps(), "SET n waits for INCR n, which may look why it cannot add")
		require.Equal(t, ":1\r\n:1\r\n+OK\r\n", o.finish(done))

		done = o.start("CL.FIXED k 5 60\r\nDUMP k\r\nDUMP l\r\nDEL k\r\n")
		require.Equal(t, 3, o.store.Steps(), "DEL k waits for DUMP k, which reads a value and then a limiter")
		require.Regexp(t, `^\*5\r\n(:-?\d+\r\n){5}\$\d+\r\n[^$]*\r\n\$-1\r\n:1\r\n$`, o.finish(done))
	})
}

// Only a few calls that may read a long value are under way at a time, and the values are charged:
// all replies of a pipeline of such calls would not fit in memory together.
func TestFewLongValuesAreUnderWay(t *testing.T) {
	inBubble(t, 1, func(o *overlapTest) {
		long := strings.Repeat("x", 100_000)
		require.Equal(t, "+OK\r\n", o.do("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\n"+long+"\r\n"))
		for _, call := range []string{"GET k", "GETRANGE k 0 -1", "GETEX k", "SET k v XX GET KEEPTTL"} {
			done := o.start("INCR a\r\n" + strings.Repeat(call+"\r\n", 20))
			require.LessOrEqual(t, o.store.Steps(), 5, call)
			require.GreaterOrEqual(t, o.store.Steps(), 3, call)
			for most := int64(0); o.store.Advance(o.random); {
				synctest.Wait()
				require.LessOrEqual(t, o.store.Steps(), 5)
				most = max(most, o.client.Session.HeldBytes())
				require.LessOrEqual(t, most, int64(20*len(long)), "the replies that are sent, and those of four calls")
			}
			o.finish(done)
		}
	})
}

// Calls that use more than their view are made alone.
func TestOtherCallsAreMadeAlone(t *testing.T) {
	for _, call := range []string{
		"SELECT 1", "MULTI", "CLIENT REPLY ON", "CLIENT TRACKING OFF", "HELLO 3", "PING", "DBSIZE", "MGET c d", "KEYS *",
		"RENAME a b", "SUBSCRIBE ch", "SET k " + strings.Repeat("x", 20_000),
	} {
		inBubble(t, 1, func(o *overlapTest) {
			done := o.start("INCR a\r\nINCR b\r\n" + call + "\r\nPING\r\nINCR c\r\nINCR d\r\n")
			require.Equal(t, 2, o.store.Steps(), call)
			o.finish(done)
		})
	}
}

// When a client is disconnected, its calls do not wait any longer.
func TestDisconnectedClientDoesNotWait(t *testing.T) {
	inBubble(t, 1, func(o *overlapTest) {
		calls, _ := increments(100)
		done := o.start(calls)
		held := o.client.Session.HeldBytes()
		require.GreaterOrEqual(t, held, int64(64*10<<10), "calls under way count as memory of the client")
		require.True(t, o.store.Advance(o.random))
		o.client.Session.Peer.Cut()
		<-done
		require.Zero(t, o.store.Steps())
	})
}

// Calls outside the session's turn do not hold a slot of the background while they wait.
func TestBackgroundCallsWaitWithoutASlot(t *testing.T) {
	inBubble(t, 1, func(o *overlapTest) {
		var clients []*sessiontest.Client
		for range background.MaxSlots() + 1 {
			c := o.Connect()
			clients = append(clients, c)
			c.Session.Feed([]byte("KEYS *\r\n"))
		}
		synctest.Wait()
		require.Equal(t, len(clients), o.store.Steps())
		for o.store.Advance(o.random) {
			synctest.Wait()
		}
		for _, c := range clients {
			c.Settle()
			require.Equal(t, "*0\r\n", c.Output())
			c.Session.Close()
		}
	})
}

// promptStore is a store whose calls wait for nothing.
type promptStore struct{ store.Store }

func (promptStore) MayBlock() bool { return true }

func (s promptStore) View() store.View { return &promptView{View: s.Store.View()} }

type promptView struct {
	store.View
	wait func(done <-chan struct{})
}

func (v *promptView) SetWait(wait func(done <-chan struct{})) { v.wait = wait }

var alreadyDone = func() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}()

func (v *promptView) Throttle(
	ctx context.Context, key []byte, limit gcra.Limit, quantity int64, mode quota.Mode,
) (gcra.Outcome, error) {
	v.wait(alreadyDone)
	return v.View.Throttle(ctx, key, limit, quantity, mode)
}

// newPrompt returns a client of a server over a promptStore, and a pipeline of 64 calls.
func newPrompt(t testing.TB) (c *sessiontest.Client, calls []byte) {
	clock := store.NewStillClock(clockStart) // no call is slow by this clock
	data := promptStore{memstore.New(memstore.Options{Clock: clock, SweepEvery: -1})}
	s := newServerOver(t, data, func(*commands.Settings) {})
	for i := range 64 {
		calls = fmt.Appendf(calls, "*5\r\n$11\r\nCL.THROTTLE\r\n$3\r\nk%02d\r\n$2\r\n10\r\n$2\r\n10\r\n$2\r\n60\r\n", i)
	}
	c = s.Connect()
	t.Cleanup(c.Session.Close)
	return c, calls
}

func TestOverlappingCallsDoNotAllocate(t *testing.T) {
	c, calls := newPrompt(t)
	allocations := testing.AllocsPerRun(100, func() {
		c.Session.Feed(calls)
		c.Session.Sent()
	})
	if !racetest.Enabled {
		require.Zero(t, allocations)
	}
}

func BenchmarkOverlappingCalls(b *testing.B) {
	c, calls := newPrompt(b)
	b.ReportAllocs()
	for range b.N / 64 {
		c.Session.Feed(calls)
		c.Session.Sent()
	}
}

// A panic in a call ends the connection after the replies to the calls before it. Calls that were
// begun after it are completed, but not answered.
func TestPanicInACallThatOverlaps(t *testing.T) {
	for _, when := range []string{"before", "in", "after"} {
		inBubble(t, 1, func(o *overlapTest) {
			var log strings.Builder
			o.Instance.ClientLog = slog.New(slog.NewTextHandler(&log, nil))
			o.Plant("getdel", func(c *command.Call, run func(*command.Call) error) error {
				panicIf(when == "before")
				err := c.View.Edit(c.Context, c.Words[1], func(store.Entry, []byte) (store.Change, error) {
					panicIf(when == "in")
					return store.Change{}, nil
				})
				panicIf(when == "after")
				return err
			})
			require.Equal(t, ":1\r\n:2\r\n", o.do("INCR k\r\nINCR k\r\nGETDEL k\r\nINCR k\r\nGET k\r\n"), when)
			require.True(t, o.client.Session.Closing())
			require.Contains(t, log.String(), "command=getdel reason=planted")
			require.Contains(t, log.String(), "overlap_test.go")
			o.client.Session.Close()
			o.client = o.Connect()
			require.Equal(t, "$1\r\n3\r\n", o.do("GET k\r\n"))
		})
	}
}

func panicIf(planted bool) {
	if planted {
		panic("planted")
	}
}

// randomCalls are calls of many rows on a few keys, with % for a key, # for a small number.
var randomCalls = []string{
	"CL.THROTTLE % 3 1 60", "CL.THROTTLE % 3 1 60 # UPTO", "CL.THROTTLE % # 1 60 1 PEEK MS",
	"CL.THROTTLE % 3 1", "CL.FIXED % 5 60", "CL.SLIDING % 5 60 # FORCE", "CL.SLIDINGLOG % 5 60 #",
	"CL.QUOTA % 5 DAY@Asia/Tokyo #", "CL.QUOTA % 5 90s # UPTO",
	"CL.INSPECT %", "GCRA % 3 1 60", "CL.ALL 2 THROTTLE % 3 1 60 1 FIXED % 4 60 #",
	"CL.ALL 2 ACQUIRE % 3 60 h# 1 FIXED % 4 60 # FORCE",
	"CL.ACQUIRE % 3 60 h#", "CL.RELEASE % h#", "CL.HOLDERS %", "SET % #", "SET % word", "SET % v NX GET",
	"SET % v EX #", "GET %", "GET %", "GETDEL %", "GETEX % PERSIST", "INCR %", "INCRBY % #",
	"INCRBYFLOAT % 0.5", "DECR %", "APPEND % x", "SETRANGE % # yy", "GETRANGE % 0 #", "STRLEN %", "SETNX % #",
	"GETSET % z", "MGET %", "MGET % %", "MSET % 1", "MSET % 1 % 2", "MSETNX % a % b", "DEL %", "DEL % %",
	"EXISTS %", "TOUCH % %", "UNLINK %", "EXPIRE % 100", "PERSIST %", "TTL %", "TYPE %", "RENAME % %",
	"COPY % % REPLACE", "DUMP %", "OBJECT ENCODING %", "DBSIZE", "PING", "ECHO #", "SELECT 0", "SELECT 1",
	"NOSUCH %", "GET", "GET % %", "MULTI", "EXEC", "DISCARD", "WATCH %", "UNWATCH", "HELLO 2", "HELLO 3",
	"CLIENT REPLY ON", "CLIENT REPLY SKIP", "CLIENT REPLY OFF", "FLUSHDB", "CL.TOP", "CLIENT TRACKING ON",
	"CLIENT TRACKING OFF", "SUBSCRIBE ch", "UNSUBSCRIBE ch", "PUBLISH ch #", "AUTH u x", "RESET",
}

// randomPipeline returns up to 150 random calls, mostly of rows that overlap.
func randomPipeline(random *rand.Rand) string {
	var b strings.Builder
	if random.IntN(2) == 0 {
		b.WriteString("RESET\r\n")
	}
	for range 1 + random.IntN(150) {
		call := randomCalls[random.IntN(len(randomCalls))]
		if random.IntN(3) > 0 {
			call = randomCalls[random.IntN(slices.Index(randomCalls, "RENAME % %"))]
		}
		for _, r := range call {
			switch r {
			case '%':
				fmt.Fprintf(&b, "k%d", random.IntN(4))
			case '#':
				fmt.Fprint(&b, random.IntN(5))
			default:
				b.WriteRune(r)
			}
		}
		b.WriteString("\r\n")
	}
	return b.String()
}

// differences sends the same random pipelines to a server over a store that waits, and to a server
// over the memory store, and returns the first pipeline with different replies. The store answers in
// random order. The seed also decides whether a client monitors the servers, and whether they log all
// calls as slow.
func differences(t *testing.T, seed uint64, pipelines int, disorder bool) (difference string) {
	inBubble(t, seed, func(o *overlapTest) {
		o.store.DisorderKeys = disorder
		plain := newServer(o)
		other := plain.Connect()
		defer other.Session.Close()
		setting := "CONFIG SET slowlog-max-len 10000 slowlog-log-slower-than " + []string{"0", "-1"}[seed%2] +
			"\r\nACL SETUSER u on nopass +@all -getset ~k[012] &*\r\n"
		require.NoError(t, other.Send([]byte(setting)))
		require.Equal(t, other.Output(), o.do(setting))
		monitors := []*sessiontest.Client{o.Connect(), plain.Connect()}
		for _, m := range monitors {
			defer m.Session.Close()
			if seed%3 == 0 {
				m.Do(t, "MONITOR")
			}
		}
		for i := range pipelines {
			calls := randomPipeline(o.random)
			if i == pipelines-1 {
				calls = "CLIENT REPLY ON\r\nRESET\r\nSLOWLOG GET -1\r\nINFO commandstats errorstats\r\n"
			}
			require.NoError(t, other.Send([]byte(calls)))
			want, got := other.Output(), o.do(calls)
			for n, m := range monitors {
				_, _ = m.Receive(0)
				*[]*string{&got, &want}[n] += m.Output()
			}
			if got != want {
				difference = fmt.Sprintf("pipeline %d:\n%s\nreplies:\n%s\nwithout waiting:\n%s", i, calls, got, want)
				return
			}
		}
	})
	return difference
}

// A thousand random pipelines have the same replies over a store that waits, in whatever order it
// answers, as over the memory store. The statistics, the slow log and MONITOR are the same too.
func TestRandomPipelinesOnWaitingStore(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		require.Empty(t, differences(t, seed, 21, false), "seed %d", seed)
	}
}

// The test above finds a store that applies steps on a key in another order.
func TestRandomPipelinesFindDisorder(t *testing.T) {
	found := false
	for seed := uint64(0); seed < 10 && !found; seed++ {
		found = differences(t, seed, 21, true) != ""
	}
	require.True(t, found)
}

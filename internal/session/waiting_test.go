package session_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/command"
	"cellserver/internal/commands"
	"cellserver/internal/session/sessiontest"
	"cellserver/internal/store"
	memstore "cellserver/internal/store/memory"
)

// admitted returns the numbers of the clients with a reply that admits them, in the order of clients.
// It fails if a client has another reply.
func admitted(t testing.TB, clients []*sessiontest.Client) (numbers []int) {
	for i, c := range clients {
		if line := c.Reply(); line != "" {
			require.True(t, strings.HasPrefix(line, "[0, "), "client %d: %s", i, line)
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// waiters connects clients that each wait for a key, with a limit of one per second.
func waiters(t testing.TB, s *sessiontest.Server, number int, key func(i int) string) (clients []*sessiontest.Client) {
	for i := range number {
		c := s.Connect()
		t.Cleanup(func() { c.Session.Close() })
		require.Empty(t, c.Ask(t, "CL.THROTTLE %s 0 1 1 1 WAIT 3600000", key(i)))
		clients = append(clients, c)
	}
	return clients
}

func numbers(from, to int) (all []int) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// A thousand clients that wait for one key are admitted in the order of their arrival, one each second,
// even if some of them die, and whatever happens to the key.
func TestOrderOfArrivalIsKept(t *testing.T) {
	s := newServer(t)
	other := s.Connect()
	defer other.Session.Close()
	other.Ask(t, "CL.THROTTLE key 0 1 1")
	clients := waiters(t, s, 1000, func(int) string { return "key" })
	onlyAdmits := func(i int, why string) {
		require.Equal(t, []int{0}, admitted(t, clients[i:min(i+3, len(clients))]), why)
	}
	for i := range 300 {
		require.NoError(t, s.Advance(time.Second))
		onlyAdmits(i, "time")
	}
	for i := 300; i < 400; i++ {
		clients[i].Session.Close()
	}
	for i := 400; i < 500; i++ {
		require.NoError(t, s.Advance(time.Second))
		onlyAdmits(i, "time")
	}
	frees := []string{"DEL key", "FLUSHDB", "FLUSHALL", "SWAPDB 0 1", "RENAME key other", "CL.THROTTLE key 0 1 1 -1"}
	for i := 500; i < 1000; i++ {
		require.NotEmpty(t, other.Ask(t, "%s", frees[i%len(frees)]))
		onlyAdmits(i, frees[i%len(frees)])
	}
	require.Empty(t, admitted(t, clients))
	require.Equal(t, store.Never, s.Instance.RunWaiting(), "a call is forgotten")
}

// Clients that wait for keys of their own do not wait for one another.
func TestKeysDoNotWaitForOneAnother(t *testing.T) {
	s := newServer(t)
	other := s.Connect()
	defer other.Session.Close()
	key := func(i int) string { return fmt.Sprint("key:", i%250) }
	for i := range 250 {
		other.Ask(t, "CL.THROTTLE %s 0 1 1", key(i))
	}
	clients := waiters(t, s, 1000, key)
	for i := range 3 {
		require.NoError(t, s.Advance(time.Second))
		require.Equal(t, numbers(i*250, (i+1)*250), admitted(t, clients))
	}
	other.Ask(t, "FLUSHALL")
	require.Equal(t, numbers(750, 1000), admitted(t, clients))
}

// Later calls with another limit change nothing for calls that wait: each call has its own limit.
func TestLimitsMayDiffer(t *testing.T) {
	s := newServer(t)
	first, second, other := s.Connect(), s.Connect(), s.Connect()
	other.Ask(t, "CL.THROTTLE key 0 1 10")
	require.Empty(t, first.Ask(t, "CL.THROTTLE key 0 1 10 1 WAIT 60000"))
	require.Empty(t, second.Ask(t, "CL.THROTTLE key 9 1 1 1 WAIT 60000"), "it would be admitted, but one waits before it")
	require.NoError(t, s.Advance(9*time.Second))
	require.Empty(t, first.Reply()+second.Reply())
	require.NoError(t, s.Advance(time.Second))
	require.Equal(t, "[0, 1, 0, -1, 10]", first.Reply())
	require.Equal(t, "[1, 10, 0, 1, 10]", other.Ask(t, "CL.THROTTLE key 9 1 1 1 PEEK"))
	require.NoError(t, s.Advance(time.Second))
	require.Equal(t, "[0, 10, 0, -1, 10]", second.Reply())
}

// The number of calls that wait is bounded, in all and for each key. A call beyond a bound takes
// nothing.
func TestManyCallsWait(t *testing.T) {
	s := newServer(t)
	s.Instance.SetMaxWaiting(20)
	other := s.Connect()
	for i := range 11 {
		other.Ask(t, "CL.THROTTLE key:%d 0 1 1", i)
	}
	waiters(t, s, 20, func(i int) string { return fmt.Sprint("key:", i/2) })
	require.Equal(t, "-ERR too many calls wait", other.Ask(t, "CL.THROTTLE key:10 0 1 1 1 WAIT 1000"))
	require.Equal(t, "+OK", other.Ask(t, "CONFIG SET max-waiting 29"))
	require.Equal(t, "-ERR too many calls wait", other.Ask(t, "CL.THROTTLE key:0 0 1 1 1 WAIT 1000"))
	require.Equal(t, "[1, 1, 0, 1, 1]", other.Ask(t, "CL.THROTTLE key:0 0 1 1 1 PEEK"))
	require.Equal(t, 20, s.Instance.Blocked.Count())
}

// A call that waits takes at most 1 KB, and its client is charged for it.
func TestMemoryOfWaitingCalls(t *testing.T) {
	const calls = 10_000
	s := newServer(t)
	var clients []*sessiontest.Client
	for i := range calls {
		c := s.Connect()
		c.Ask(t, "CL.THROTTLE ratelimit:user:%d 0 1 1", i)
		clients = append(clients, c)
	}
	before, held := heapInUse(), clients[0].Session.HeldBytes()
	for i, c := range clients {
		require.NoError(t, c.Send(fmt.Appendf(nil, "CL.THROTTLE ratelimit:user:%d 0 1 1 1 WAIT 3600000\r\n", i)))
	}
	each := (heapInUse() - before) / calls
	require.Less(t, each, int64(1000))
	charged := clients[0].Session.HeldBytes() - held
	require.Greater(t, charged, int64(500))
	t.Logf("%d bytes each, charged %d", each, charged)
	require.NoError(t, s.Advance(time.Second))
	require.Equal(t, numbers(0, calls), admitted(t, clients))
	require.Less(t, clients[0].Session.HeldBytes(), held+charged)
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// subscribable is a store that counts its listeners.
type subscribable struct {
	*memstore.Store
	listeners int
}

func (s *subscribable) Subscribe(l store.Listener) (unsubscribe func()) {
	s.listeners++
	leave := s.Store.Subscribe(l)
	return func() {
		s.listeners--
		leave()
	}
}

// The store announces changes only while a call waits.
func TestListensWhileCallsWait(t *testing.T) {
	clock := store.NewStillClock(clockStart)
	over := &subscribable{Store: memstore.New(memstore.Options{Clock: clock, SweepEvery: -1})}
	s := newServerOver(t, over, func(*commands.Settings) {})
	clients := []*sessiontest.Client{s.Connect(), s.Connect(), s.Connect()}
	for i, c := range clients {
		require.Equal(t, i == 0, c.Ask(t, "CL.THROTTLE key 0 1 1 1 WAIT 5000") != "")
		require.Equal(t, min(i, 1), over.listeners)
	}
	require.NoError(t, s.Advance(time.Second))
	require.Equal(t, 1, over.listeners)
	clients[2].Session.Close()
	require.Zero(t, over.listeners)
}

// A call that waits is counted, timed and shown when it ends. Its time does not include the wait.
func TestWaitingCallsAreCounted(t *testing.T) {
	s := newServer(t)
	c, other, monitor := s.Connect(), s.Connect(), s.Connect()
	calls := s.Instance.Stats.Of(s.Instance.Table.Lookup([]byte("cl.throttle")).Number)
	other.Ask(t, "CONFIG SET slowlog-log-slower-than 0")
	other.Ask(t, "CL.THROTTLE key 0 1 1")
	monitor.Ask(t, "MONITOR")
	require.Empty(t, c.Ask(t, "CL.THROTTLE key 0 1 1 1 WAIT 5000"))
	require.Contains(t, monitor.Reply(), "WAIT")
	require.EqualValues(t, 1, calls.Calls.Load())
	before := other.Ask(t, "SLOWLOG LEN")
	require.NoError(t, s.Advance(time.Second))
	require.NotEmpty(t, c.Reply())
	require.EqualValues(t, 2, calls.Calls.Load())
	require.Zero(t, calls.Limited.Load())
	require.NotEqual(t, before, other.Ask(t, "SLOWLOG LEN"))
	require.Contains(t, other.Ask(t, "SLOWLOG GET 2"), `, 0, ["CL.THROTTLE"`, "the time it has waited is not part of it")
	require.Equal(t, `[["key", 2, 0]]`, other.Ask(t, "CL.TOP SEEN"))
}

// Changes that a call makes after it has waited count as its own client's changes.
func TestChangesOfWaitingCallsAreTheirClients(t *testing.T) {
	s := newServer(t)
	c, other, listener := s.Connect(), s.Connect(), s.Connect()
	other.Ask(t, "CONFIG SET notify-keyspace-events KEA")
	other.Ask(t, "CL.THROTTLE key 0 1 1")
	listener.Ask(t, "PSUBSCRIBE __keyspace*")
	c.Ask(t, "HELLO 3")
	c.Ask(t, "CLIENT TRACKING ON BCAST NOLOOP")
	require.Empty(t, c.Ask(t, "CL.THROTTLE key 0 1 1 1 WAIT 5000"))
	require.NoError(t, s.Advance(time.Second))
	require.Equal(t, "[0, 1, 0, -1, 1]", c.Reply())
	require.Empty(t, c.Reply(), "an invalidation because of its own call")
	var events string
	for line := listener.Reply(); line != ""; line = listener.Reply() {
		events += line
	}
	require.Contains(t, events, `"cl.throttle"`)
}

// Rights are checked at the time of the decision: a call does not have rights that were taken away
// while it waited.
func TestRightsOfWaitingCalls(t *testing.T) {
	s := newServer(t)
	c, other := s.Connect(), s.Connect()
	other.Ask(t, "ACL SETUSER u on nopass ~* +@all")
	other.Ask(t, "CL.THROTTLE key 0 1 1")
	c.Ask(t, "AUTH u x")
	require.Empty(t, c.Ask(t, "CL.THROTTLE key 0 1 1 1 WAIT 5000"))
	other.Ask(t, "ACL SETUSER u -@all")
	require.NoError(t, s.Advance(time.Second))
	require.Equal(t, "-NOPERM User u has no permissions to run the 'cl.throttle' command", c.Reply())
	require.Equal(t, "[0, 1, 0, -1, 1]", other.Ask(t, "CL.THROTTLE key 0 1 1"), "nothing was taken")
}

// When the server stops, calls that wait are limited, and so are calls with WAIT that arrive later.
func TestServerStopsWhileCallsWait(t *testing.T) {
	s := newServer(t)
	s.Connect().Ask(t, "CL.THROTTLE key 0 1 1")
	clients := waiters(t, s, 3, func(int) string { return "key" })
	s.Instance.UnblockAll()
	s.Instance.RunWaiting()
	for _, c := range append(clients, s.Connect()) {
		line := c.Reply()
		if line == "" {
			line = c.Ask(t, "CL.THROTTLE key 0 1 1 1 WAIT 1000")
			if line == "" {
				line = c.Reply()
			}
		}
		require.Equal(t, "[1, 1, 0, 1, 1]", line)
	}
}

// A call of a row that fails after it has waited disconnects its client, and no other.
func TestPanicAfterWaiting(t *testing.T) {
	s := newServer(t)
	s.Connect().Ask(t, "CL.THROTTLE key 0 1 1")
	clients := waiters(t, s, 2, func(int) string { return "key" })
	row := s.Instance.Table.Lookup([]byte("cl.throttle"))
	run := row.Run
	row.Run = func(*command.Call) error { row.Run = run; panic("a defect") }
	require.NoError(t, s.Advance(time.Second))
	require.True(t, clients[0].IsDisconnected())
	require.False(t, clients[1].IsDisconnected())
	require.Equal(t, "[0, 1, 0, -1, 1]", clients[1].Reply())
}

// Many clients wait at once, on a real clock; some die, and others unblock them and remove the keys.
// Every client that stays gets each reply, and at the end no client waits.
func TestManyClientsWaitAtOnce(t *testing.T) {
	s := newServerOn(t, store.NewClock())
	var clients sync.WaitGroup
	for i := range 40 {
		clients.Go(func() {
			c := s.Connect()
			defer c.Session.Close()
			for n := range 15 {
				c.Session.Feed(fmt.Appendf(nil, "CL.THROTTLE key:%d 0 1000 1 1 WAIT 60000\r\n", i%3))
				if i%4 == 0 && n == 10 {
					return // while the call waits
				}
				for c.Session.HasUnanswered() {
					<-c.Woken
					c.Session.Resume()
				}
				c.Read()
				line := c.Reply()
				assert.True(t, strings.HasPrefix(line, "[0, 1, ") || strings.HasPrefix(line, "[1, 1, "), line)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		other := s.Connect()
		defer other.Session.Close()
		for i := range 200 {
			line := []string{fmt.Sprint("CLIENT UNBLOCK ", i/4), "DEL key:1", "CLIENT PAUSE 1 WRITE", "FLUSHDB"}[i%4]
			other.Session.Feed([]byte(line + "\r\n"))
			for other.Session.HasUnanswered() {
				<-other.Woken
				other.Session.Resume()
			}
			other.Read()
		}
	}()
	clients.Wait()
	<-done
	s.Instance.RunWaiting()
	require.Zero(t, s.Instance.Blocked.Count())
	require.Equal(t, store.Never, s.Instance.RunWaiting())
}

// Calls of CL.ALL that wait for the keys of their tenants hold up no call on the key that all tenants
// share, with WAIT or without.
func TestTenantsDoNotHoldUpOthers(t *testing.T) {
	s := newServer(t)
	other := s.Connect()
	defer other.Session.Close()
	const all = "CL.ALL 2 FIXED global 1000 60 1 THROTTLE tenant:%d 0 1 1 1"
	var clients []*sessiontest.Client
	for i := range 500 {
		c := s.Connect()
		t.Cleanup(func() { c.Session.Close() })
		if tenant := i % 100; i < 100 {
			require.NotEmpty(t, c.Ask(t, all, tenant))
		} else {
			require.Empty(t, c.Ask(t, all+" WAIT 3600000", tenant))
			clients = append(clients, c)
		}
	}
	require.Equal(t, "[0, 1000, 899, -1, 60]", other.Ask(t, "CL.FIXED global 1000 60 1 WAIT 3600000"))
	for i := range 3 {
		require.NoError(t, s.Advance(time.Second))
		require.Equal(t, numbers(i*100, (i+1)*100), admitted(t, clients))
	}
	require.Equal(t, "[0, 1000, 598, -1, 57]", other.Ask(t, "CL.FIXED global 1000 60"))
	require.NotEmpty(t, other.Ask(t, "CL.FIXED global 1000 60 598"))
	require.NoError(t, s.Advance(time.Second)) // now the global key limits them, and there is one line
	require.Empty(t, admitted(t, clients))
	require.NoError(t, s.Advance(57*time.Second))
	require.Equal(t, numbers(300, 400), admitted(t, clients))
}

// A CL.ALL with many leases waits too, although it is not decided on an event loop.
func TestManyLeasesWait(t *testing.T) {
	s := newServer(t)
	c, other := s.Connect(), s.Connect()
	all := "CL.ALL 64"
	for i := range 64 {
		all += fmt.Sprintf(" ACQUIRE lease:%d 1 60 %%s 1", i)
	}
	call := func(holder string) string { return strings.ReplaceAll(all, "%s", holder) }
	require.True(t, strings.HasPrefix(other.Ask(t, "%s", call("a")+" WAIT 1000"), "[0, "))
	require.True(t, strings.HasPrefix(c.Ask(t, "%s", call("b")+" WAIT 59999"), "[1, 60, "))
	require.Empty(t, c.Ask(t, "%s", call("b")+" WAIT 60000"))
	require.NoError(t, s.Advance(time.Minute))
	require.True(t, strings.HasPrefix(c.Reply(), "[0, "))
}

// Clients repeat calls that wait, with the same ID, from other connections, while they are admitted. Each
// call takes once.
func TestRepeatedCallsTakeOverPlaces(t *testing.T) {
	s := newServerOn(t, store.NewClock())
	var clients sync.WaitGroup
	var unblocked, replies atomic.Int64
	for i := range 40 {
		clients.Go(func() {
			c := s.Connect()
			defer c.Session.Close()
			for n := range 10 {
				c.Session.Feed(fmt.Appendf(nil, "CL.FIXED key 1000 1000 1 ID %d WAIT 60000\r\n", n))
				c.Session.Feed(fmt.Appendf(nil, "CL.THROTTLE pace 0 100 1 1 ID %d:%d WAIT 60000\r\n", i/4, n))
				for c.Session.HasUnanswered() {
					<-c.Woken
					c.Session.Resume()
				}
				for c.Read(); ; replies.Add(1) {
					line := c.Reply()
					if line == "" {
						break
					}
					if strings.HasPrefix(line, "-UNBLOCKED") {
						unblocked.Add(1)
					}
				}
			}
		})
	}
	clients.Wait()
	require.EqualValues(t, 800, replies.Load())
	require.Positive(t, unblocked.Load())
	require.Contains(t, s.Connect().Ask(t, "CL.FIXED key 1000 1000 0"), "[0, 1000, 990, -1, ")
	require.Zero(t, s.Instance.Blocked.Count())
	require.Equal(t, store.Never, s.Instance.RunWaiting())
}

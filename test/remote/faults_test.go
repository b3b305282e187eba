package remote

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/store/remote/backend"
	"cellserver/internal/store/remote/combine"
	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// fronts are proxies, each in front of a server.
type fronts struct {
	t  testing.TB
	mu sync.Mutex
	of map[string]*proxy.Proxy // by the address of the server
}

func newFronts(t testing.TB) *fronts { return &fronts{t: t, of: map[string]*proxy.Proxy{}} }

// before returns the address of a proxy in front of a server.
func (f *fronts) before(addr string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[addr] == nil {
		f.of[addr] = proxy.New(f.t, addr)
	}
	return f.of[addr].Addr
}

// fronted is a backend, with the server of these tests' key and the proxy in front of it.
type fronted struct {
	url    string
	server string
	proxy  *proxy.Proxy
}

// onEach runs a test on each kind of deployment, through a proxy in front of the key's server.
func onEach(t *testing.T, key string, test func(t *testing.T, f fronted)) {
	t.Run("single", func(t *testing.T) {
		s, f := start(t), newFronts(t)
		test(t, fronted{"redis://" + f.before(s.Addr), s.Addr, f.of[s.Addr]})
	})
	t.Run("sentinel", func(t *testing.T) {
		f := newFronts(t)
		s := peer.StartSentinels(t, start, f.before)
		test(t, fronted{s.URL(), s.Primary.Addr, f.of[s.Primary.Addr]})
	})
	t.Run("cluster", func(t *testing.T) {
		f := newFronts(t)
		c := peer.StartCluster(t, start, 3, false, f.before)
		holder := c.Primaries[backend.Slot(key)*len(c.Primaries)/backend.Slots].Addr
		test(t, fronted{c.URL(), holder, f.of[holder]})
	})
}

// A connection is cut before or after the server has executed what was sent. In both cases nothing
// is sent again, and the caller is told that the outcome is unknown.
func TestNothingIsSentTwice(t *testing.T) {
	const key = "cl:counter"
	onEach(t, key, func(t *testing.T, f fronted) {
		l := open(t, f.url)
		counter, done := 0, int64(0)
		for _, test := range []struct {
			fault   proxy.Fault
			counted int64
		}{{proxy.LoseReply, 1}, {proxy.TearReply, 1}, {proxy.LoseRequest, 0}} {
			l.join(key)
			l.done(call("INCR", key))
			struck := f.proxy.Arm(test.fault, key, 0)
			lost, other := call("INCR", key), read(key)
			assert.True(t, l.send(lost, other), "the connection has failed")
			<-struck
			assert.Equal(t, combine.Unknown, lost.Reply.Status)
			assert.Equal(t, combine.Unknown, other.Reply.Status)
			after := call("INCR", key)
			assert.True(t, l.send(after), "the connection is not opened again by itself")
			assert.Equal(t, combine.Unsent, after.Reply.Status)
			counter, done = counter+1, done+1+test.counted
			l.join(key)
			got := l.done(call("INCRBY", key, "0"))
			assert.Equal(t, done, got.Reply.Raw, "fault %d", test.fault)
		}
		calls := peer.Ask(t, f.server, "info", "commandstats").(string)
		assert.Contains(t, calls, "cmdstat_incr:calls=5,", "as many as have arrived")
		assert.Equal(t, 3, counter)
	})
}

// A change with compare and set is not sent again either, although that would be harmless in most
// cases.
func TestChangesAreNotSentTwice(t *testing.T) {
	const key = "cl:state"
	s, f := start(t), newFronts(t)
	l := open(t, "redis://"+f.before(s.Addr))
	l.join(key)
	struck := f.of[s.Addr].Arm(proxy.LoseReply, key, 0)
	r := write(set(key, "nil", "1"))
	assert.True(t, l.send(r))
	<-struck
	assert.Equal(t, combine.Unknown, r.Reply.Status)
	l.join(key)
	assert.Equal(t, []string{"1"}, values(l.ends(combine.Conflict, write(set(key, "nil", "1")))),
		"what was to be set is there, and another may have set it")
}

// Replies that arrive before the connection is cut count.
func TestRepliesBeforeTheCut(t *testing.T) {
	const key = "cl:half"
	s, f := start(t), newFronts(t)
	l := open(t, "redis://"+f.before(s.Addr))
	l.join(key)
	l.done(call("SET", key, strings.Repeat("x", 256<<10))) // its reply comes in several pieces
	f.of[s.Addr].Arm(proxy.LoseReply, key, 1)
	first, second := call("STRLEN", key), call("GET", key)
	assert.True(t, l.send(first, second))
	assert.Equal(t, combine.Unknown, second.Reply.Status)
	if first.Reply.Status != combine.Unknown { // its reply was in a piece that has arrived
		assert.Equal(t, int64(256<<10), first.Reply.Raw)
	}
}

// If a server does not reply within the time limit, the connection is closed, and the request is
// not sent again.
func TestSilence(t *testing.T) {
	const key = "cl:counter"
	s, f := start(t), newFronts(t)
	l := open(t, "redis://"+f.before(s.Addr), func(c *backend.Config) { c.Silence = 2 * time.Second })
	peer.Until(t, "a connection", func() bool { return l.connect(key) })
	resume := f.of[s.Addr].Stall()
	lost := call("INCR", key)
	assert.True(t, l.send(lost))
	assert.Equal(t, combine.Unknown, lost.Reply.Status)
	assert.False(t, l.connect(key), "a new connection gets no reply either")
	resume()
	peer.Until(t, "a reply: the lost request has counted once", func() bool {
		r := call("GET", key)
		return l.connect(key) && !l.send(r) && raw(r) == "1"
	})
}

// becomeIdle waits for so long that a backend takes its connections for idle.
func becomeIdle(t *testing.T) {
	used := now()
	peer.Until(t, "idle connections", func() bool { return now()-used >= int64(time.Millisecond) })
}

// The backend notices that an idle connection was closed before it sends anything on it.
func TestIdleConnectionIsClosed(t *testing.T) {
	const key = "cl:counter"
	s := start(t)
	l := open(t, "redis://"+s.Addr)
	l.join(key)
	l.done(read(key))
	becomeIdle(t)
	peer.Ask(t, s.Addr, "client", "kill", "type", "normal", "skipme", "yes")
	peer.Says(t, s.Addr, "connected_clients:1\r", "info", "clients")
	r := call("INCR", key)
	assert.True(t, l.send(r))
	assert.Equal(t, combine.Unsent, r.Reply.Status)
	l.join(key)
	l.done(r)
	assert.Equal(t, int64(1), r.Reply.Raw)
}

// A delay makes the round trip longer, and the clock's offset is wrong by at most half the round
// trip.
func TestClockBehindDelay(t *testing.T) {
	const key = "cl:k"
	s, f := start(t), newFronts(t)
	url := "redis://" + f.before(s.Addr)
	near := open(t, "redis://"+s.Addr)
	require.True(t, near.connect(key))
	f.of[s.Addr].SetDelay(20 * time.Millisecond)
	far := open(t, url)
	require.True(t, far.connect(key))
	p := far.Primary(key)
	assert.GreaterOrEqual(t, far.RoundTrip(p), int64(40*time.Millisecond))
	difference := far.Offset(p) - near.Offset(p)
	bound := (far.RoundTrip(p)+near.RoundTrip(p))/2 + int64(time.Millisecond)
	assert.LessOrEqual(t, max(difference, -difference), bound)
}

// Without a server, nothing is sent, and the reason is kept.
func TestNoServer(t *testing.T) {
	s := start(t)
	l := open(t, "redis://"+s.Addr)
	l.join("cl:k")
	s.Stop()
	r := call("INCR", "cl:k")
	assert.True(t, l.send(r))
	assert.Equal(t, combine.Unsent, r.Reply.Status)
	assert.False(t, l.connect("cl:k"))
	assert.ErrorContains(t, l.Trouble(l.Primary("cl:k")), "refused")
}

// The proxy finds a client that sends again, as go-redis does by default.
func TestSendingTwiceIsFound(t *testing.T) {
	const key = "counter"
	s, f := start(t), newFronts(t)
	client := peer.Client(&redis.Options{Addr: f.before(s.Addr)})
	defer client.Close()
	require.NoError(t, client.Ping(t.Context()).Err())
	f.of[s.Addr].Arm(proxy.LoseReply, key, 0)
	assert.NoError(t, client.Incr(t.Context(), key).Err())
	assert.Equal(t, "2", peer.Ask(t, s.Addr, "get", key))
}

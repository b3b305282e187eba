package exactness

import (
	"context"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"cellserver/test/peer"
)

// load is the load of many clients on several cellservers that share a store.
type load struct {
	t       *testing.T
	servers []*peer.Server
	limits  []*limit
	used    atomic.Int64   // how many limits the clients use
	decided []atomic.Int64 // decisions, by limit
	failed  atomic.Int64   // calls without a decision
	trip    atomic.Int64   // the longest round trip with which a server has measured the store's clock

	stop    chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex
	calls   []call
}

// servers is the number of cellservers that share a store.
const servers = 4

// startLoad starts cellservers on a store, and their clients. The clients use the first l.used
// limits.
func startLoad(t *testing.T, store string, limits []*limit, args ...string) *load {
	t.Helper()
	l := &load{t: t, limits: limits, decided: make([]atomic.Int64, len(limits)), stop: make(chan struct{})}
	l.used.Store(int64(len(limits)))
	for range servers {
		l.servers = append(l.servers,
			peer.Start(t, append([]string{"--store", store, "--loglevel", "nothing"}, args...)...))
	}
	l.running.Go(l.watchClocks)
	for n := range amount(50, 200) {
		l.running.Go(func() { l.client(n) })
	}
	t.Cleanup(l.end)
	return l
}

// end stops the clients, if they are still running.
func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.running.Wait()
}

// connect returns a client with one connection. It sends nothing twice.
func connect(s *peer.Server) *redis.Client {
	return peer.Client(&redis.Options{Addr: s.Addr, TLSConfig: s.TLS, Protocol: 2, MaxRetries: -1, PoolSize: 1,
		DisableIdentity: true, ReadTimeout: time.Minute, DialerRetries: 1})
}

// pace is the time between two pipelines of a client. Without it, clients would make far more calls,
// nearly all of them refused.
const pace = 100 * time.Millisecond

// client sends pipelines to a server until the load ends. If the server ends, the client goes to
// the next one.
func (l *load) client(n int) {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	var calls []call
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls = append(l.calls, calls...)
	}()
	ticks := time.NewTicker(pace)
	defer ticks.Stop()
	for at := n; ; at++ {
		p := &pipeline{load: l, name: strconv.Itoa(n), random: random, client: connect(l.servers[at%len(l.servers)])}
		for !p.broken {
			select {
			case <-ticks.C:
				calls = append(calls, p.send()...)
			case <-l.stop:
				p.client.Close()
				return
			}
		}
		p.client.Close()
	}
}

var roundTrip = regexp.MustCompile(`round_trip_usec=(\d+)`)

// watchClocks asks the servers again and again how well they know the clock of the store.
func (l *load) watchClocks() {
	ticks := time.NewTicker(100 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ticks.C:
		}
		l.trip.Store(max(l.trip.Load(), longestTrip(l.servers)))
	}
}

// longestTrip returns the longest round trip, in nanoseconds, with which one of the servers knows the clock of the
// store.
func longestTrip(servers []*peer.Server) (longest int64) {
	for _, s := range servers {
		c := connect(s)
		info := c.Info(context.Background(), "store").Val() // empty if the server has been killed
		c.Close()
		for _, found := range roundTrip.FindAllStringSubmatch(info, -1) {
			usec, _ := strconv.ParseInt(found[1], 10, 64)
			longest = max(longest, usec*1000)
		}
	}
	return longest
}

// wrong bounds the servers' error about the store's clock, which is at most half a round trip. It is
// twice that because watchClocks may miss a longer round trip, and has 10 ms more because the servers
// ignore smaller changes.
func (l *load) wrong() time.Duration { return time.Duration(l.trip.Load()) + 10*time.Millisecond }

// progress waits until there are n more decisions of a limit. It fails if there are none for two minutes.
func (l *load) progress(limit, n int) {
	l.t.Helper()
	before := l.decided[limit].Load()
	end := before + int64(n)
	for at := before; at < end; at = l.decided[limit].Load() {
		peer.Until(l.t, "decisions", func() bool { return l.decided[limit].Load() > at })
	}
}

// failures waits until n more calls got no decision.
func (l *load) failures(n int64) {
	l.t.Helper()
	end := l.failed.Load() + n
	peer.Until(l.t, "calls without a decision", func() bool { return l.failed.Load() >= end })
}

// finish ends the load, asks what is left of each limit, and returns the history of each.
func (l *load) finish() []*history {
	l.t.Helper()
	l.end()
	p := &pipeline{load: l, name: "last", client: connect(l.servers[len(l.servers)-1])}
	defer p.client.Close()
	for i, limit := range l.limits {
		if limit.command != "CL.ACQUIRE" {
			peer.Until(l.t, "a last decision", func() bool {
				calls := p.exchange([]call{{limit: i}}, [][]any{limit.take(0, "PEEK", "")})
				l.calls = append(l.calls, calls...)
				return len(calls) == 1 && calls[0].outcome >= limited
			})
		}
	}
	all := make([]*history, len(l.limits))
	for i := range all {
		all[i] = &history{limit: l.limits[i], wrong: l.wrong()}
	}
	for _, c := range l.calls {
		all[c.limit].calls = append(all[c.limit].calls, c)
	}
	return all
}

// check checks the histories of all limits. lost returns the failover of the server that has a key, or nil if there
// was none. lost may be nil.
func check(t *testing.T, histories []*history, lost func(key string) *failover) {
	t.Helper()
	for _, h := range histories {
		if lost != nil {
			h.lost = lost(h.limit.key)
		}
		assert.NoError(t, h.check())
	}
	h := histories[0]
	count, forgotten := map[outcome]int{}, 0
	for i := range h.calls {
		count[h.calls[i].outcome]++
		if h.calls[i].outcome == allowed && h.mayBeForgotten(&h.calls[i]) {
			forgotten++
		}
	}
	assert.NotZero(t, count[limited], "the key is used more than its limit allows")
	t.Logf("%s: %d calls allowed (%d perhaps forgotten), %d limited, %d unsure; clocks wrong by %v at most", h.limit.key,
		count[allowed], forgotten, count[limited], count[unsure], h.wrong)
}

// pipeline sends the calls of one client.
type pipeline struct {
	load   *load
	name   string
	random *rand.Rand
	client *redis.Client
	held   []string // the holders of its leases
	leases int
	broken bool // the server has closed the connection
}

// send sends some calls: half of them about the limit that is used most, a quarter about the named
// limits, and a quarter about any limit.
func (p *pipeline) send() []call {
	var calls []call
	var words [][]any
	for range 1 + p.random.IntN(8) {
		c := call{asked: 1 + p.random.Int64N(2)}
		switch p.random.IntN(4) {
		case 0:
			c.limit = p.random.IntN(listed)
		case 1:
			c.limit = p.random.IntN(int(p.load.used.Load()))
		}
		words = append(words, p.choose(&c))
		calls = append(calls, c)
	}
	return p.exchange(calls, words)
}

// choose returns the words of a call: most calls take, some only ask, and some give back.
func (p *pipeline) choose(c *call) []any {
	l, chance := p.load.limits[c.limit], p.random.IntN(8)
	if l.command == "CL.ACQUIRE" {
		c.asked = 1
		if len(p.held) > 0 && chance < 4 {
			holder := p.held[0]
			p.held, c.asked = p.held[1:], -1
			return []any{"CL.RELEASE", l.key, holder}
		}
		p.leases++
		return l.take(1, "", p.name+":"+strconv.Itoa(p.leases))
	}
	switch {
	case chance == 0:
		c.asked = 0
		return l.take(0, "PEEK", "")
	case chance == 1:
		c.asked = -1
		return l.take(-1, "UPTO", "")
	case chance == 2:
		c.asked = 3
		return l.take(3, "UPTO", "")
	}
	return l.take(c.asked, "", "")
}

// exchange sends calls in a pipeline, and returns the calls that may have been counted, with their
// replies.
func (p *pipeline) exchange(calls []call, words [][]any) []call {
	ctx := context.Background()
	pipe := p.client.Pipeline()
	var replies []*redis.Cmd
	for i := range words {
		replies = append(replies, pipe.Do(ctx, words[i]...))
	}
	sent := now()
	_, _ = pipe.Exec(ctx) // each reply has its own error
	returned := now()
	for i := range calls {
		calls[i].sent, calls[i].returned = sent, returned
		p.note(&calls[i], replies[i], words[i])
	}
	return slices.DeleteFunc(calls, func(c call) bool { return c.outcome == uncounted })
}

// note records the reply to a call.
func (p *pipeline) note(c *call, reply *redis.Cmd, words []any) {
	switch err := reply.Err(); {
	case err == nil:
		p.load.decided[c.limit].Add(1)
		p.decided(c, reply, words)
		return
	case strings.HasPrefix(err.Error(), "STOREDOWN ") || strings.HasPrefix(err.Error(), "STOREBUSY "):
	case strings.HasPrefix(err.Error(), "STOREUNSURE "):
		c.outcome = unsure
	default:
		_, isReply := err.(redis.Error)
		assert.False(p.load.t, isReply, "%v: %v", words, err)
		c.outcome, p.broken = unsure, true
	}
	p.load.failed.Add(1)
}

func (p *pipeline) decided(c *call, reply *redis.Cmd, words []any) {
	if words[0] == "CL.RELEASE" {
		n, err := reply.Int64()
		assert.NoError(p.load.t, err)
		c.outcome, c.taken, c.remaining = allowed, -n, unknown
		return
	}
	got, err := reply.Int64Slice()
	if !assert.NoError(p.load.t, err) {
		return
	}
	c.remaining, c.outcome = got[2], limited
	if got[0] == 1 {
		return
	}
	c.outcome, c.taken = allowed, c.asked
	if len(got) > 5 {
		c.taken = got[5]
	}
	if words[0] == "CL.ACQUIRE" {
		p.held = append(p.held, words[4].(string))
	}
}

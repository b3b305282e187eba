package exactness

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// recording records calls on objects. A counter serves as the clock: it orders ends and beginnings.
type recording struct {
	t     *testing.T
	ticks atomic.Int64
	mu    sync.Mutex
	calls map[string][]porcupine.Operation // by object
}

func newRecording(t *testing.T) *recording {
	return &recording{t: t, calls: map[string][]porcupine.Operation{}}
}

// words returns the command of a call.
func (a asked) words() []any {
	switch a.object + " " + a.verb {
	case "counter add":
		return []any{"INCRBY", a.key, a.n}
	case "counter read", "value read":
		return []any{"GET", a.key}
	case "value write":
		return []any{"SET", a.key, a.text}
	case "value swap":
		return []any{"SET", a.key, a.text, "IFEQ", a.old}
	case "tokens take":
		return []any{"CL.THROTTLE", a.key, tokensAtOnce - 1, 1, long, a.n}
	case "tokens up to":
		return []any{"CL.THROTTLE", a.key, tokensAtOnce - 1, 1, long, a.n, "UPTO"}
	case "quota take":
		return []any{"CL.QUOTA", a.key, tokensAtOnce, "YEAR", a.n}
	case "once take":
		return []any{"CL.FIXED", a.key, manyAtOnce, long, 1, "ID", a.text}
	case "held hold":
		return []any{"CL.FIXED", a.key, manyAtOnce, long, heldAtOnce, "HOLD", a.text, "1h"}
	case "held settle":
		return []any{"CL.FIXED", a.key, manyAtOnce, long, a.n, "SETTLE", a.text}
	case "permits acquire":
		return []any{"CL.ACQUIRE", a.key, permitsAtOnce, long, a.text}
	case "standing take":
		return []any{"CL.TAKE", a.key, "p"}
	case "standing ban":
		return []any{"CL.BAN", a.key, "p", a.n}
	case "standing exempt":
		return []any{"CL.EXEMPT", a.key, "p", a.n}
	case "standing pardon":
		return []any{"CL.PARDON", a.key, "p"}
	}
	return []any{"CL.RELEASE", a.key, a.text}
}

// answerOf returns the text of a reply in the form that the models use.
func answerOf(a asked, reply any) string {
	switch got := reply.(type) {
	case nil:
		if a.object == "counter" {
			return "0"
		}
		return ""
	case []any:
		switch a.object {
		case "permits":
			return fmt.Sprint(got[0], got[2])
		case "standing":
			return decisionOf(got)
		}
		taken := any(a.n * (1 - got[0].(int64)))
		if a.verb == "hold" {
			taken = heldAtOnce
		}
		if len(got) > 5 {
			taken = got[5]
		}
		return fmt.Sprint(got[0], got[2], taken)
	}
	return fmt.Sprint(reply)
}

// record makes a call, and records it unless it certainly had no effect. It returns the answer.
func (r *recording) record(client int, c *redis.Client, a asked) (got answer) {
	operation := porcupine.Operation{ClientId: client, Input: a, Call: r.ticks.Add(1)}
	reply, err := c.Do(context.Background(), a.words()...).Result()
	operation.Return = r.ticks.Add(1)
	switch {
	case err == nil || err == redis.Nil:
		got.text = answerOf(a, reply)
	case strings.HasPrefix(err.Error(), "NOHOLD ") || strings.HasPrefix(err.Error(), "HOLDSETTLED "):
		got.text, _, _ = strings.Cut(err.Error(), " ")
	case strings.HasPrefix(err.Error(), "STOREUNSURE "):
		got.unknown, operation.Return = true, math.MaxInt64
	default:
		assert.Regexp(r.t, "^STORE(DOWN|BUSY) ", err.Error(), "%v", a.words())
		return answer{unknown: true}
	}
	operation.Output = got
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls[a.object] = append(r.calls[a.object], operation)
	return got
}

// check returns the objects whose history is not linearizable.
func (r *recording) check() (wrong []string) {
	for object := range objects {
		found := porcupine.CheckOperationsTimeout(model(object), r.calls[object], 10*time.Minute)
		require.NotEqual(r.t, porcupine.Unknown, found, "the search takes too long")
		if found == porcupine.Illegal {
			wrong = append(wrong, object)
		}
	}
	return wrong
}

// kinds are the objects, in an order that does not change.
var kinds = []string{"counter", "value", "tokens", "permits", "quota", "once", "standing", "held"}

// player makes random calls. It releases and gives back only what it certainly has.
type player struct {
	random *rand.Rand
	name   string
	round  int
	calls  int
	holds  string // a lease
	tokens int64
}

func (p *player) next() (a asked) {
	p.calls++
	name := fmt.Sprint(p.name, p.calls)
	object := kinds[p.random.IntN(len(kinds))]
	a = asked{object: object, key: object + strconv.Itoa(p.round), text: name}
	choose := func(verbs ...string) string { return verbs[p.random.IntN(len(verbs))] }
	switch object {
	case "counter":
		a.n, a.verb = 1+p.random.Int64N(3), choose("add", "add", "read")
		if a.verb == "read" {
			a.n = 0
		}
	case "value":
		a.verb, a.text, a.old = choose("write", "swap", "swap", "read"), choose("a", "b", "c"), choose("a", "b", "c")
	case "tokens":
		a.verb, a.n = choose("take", "up to"), 1+p.random.Int64N(2)
		if p.tokens >= a.n && p.random.IntN(2) == 0 {
			a.verb, a.n, p.tokens = "up to", -a.n, p.tokens-a.n
		}
	case "quota":
		a.verb, a.n = "take", 1+p.random.Int64N(2)
	case "once":
		a.verb, a.n, a.text = "take", 1, fmt.Sprint("id", p.random.IntN(20)) // an ID that all clients use
	case "held":
		a.verb, a.n, a.text = choose("hold", "settle", "settle"), 3*p.random.Int64N(4), fmt.Sprint("id", p.random.IntN(6))
	case "standing":
		a.verb = choose("take", "take", "take", "take", "take", "ban", "pardon", "pardon", "exempt", "exempt")
		if a.verb == "ban" || a.verb == "exempt" {
			a.n = p.random.Int64N(2) * 100 * long // seconds, or 0 to end it
		}
	case "permits":
		a.verb = "acquire"
		if p.holds != "" {
			a.verb, a.text, p.holds = "release", p.holds, ""
		}
	}
	return a
}

// The histories of two servers on one store are linearizable, also while connections to the store are cut.
// The objects are counters, values that are compared, limits, calls with IDs, holds, leases, and a policy
// that bans.
func TestHistoriesAreLinearizable(t *testing.T) {
	t.Parallel()
	store := peer.StartStore(t)
	front := proxy.New(t, store.Addr)
	var servers [2]*peer.Server
	var clients [2]*redis.Client
	for i := range servers {
		servers[i] = peer.Start(t, "--store", "redis://"+front.Addr, "--loglevel", "nothing", "--store-timeout", "5000",
			"--policies", "testdata/policies.yaml", "--id-ttl", "3600")
		clients[i] = connect(servers[i])
		defer clients[i].Close()
	}
	unknown := 0
	for round := range amount(10, 500) {
		r, ended := newRecording(t), make(chan struct{})
		takeOne(t, clients[:], fmt.Sprint("tokens", round))
		var running, cutting sync.WaitGroup
		for n := range 6 {
			running.Go(func() { r.play(servers[n%2], n, round) })
		}
		if round%2 == 1 {
			cutting.Go(func() { cutOften(front, round, ended) })
		}
		running.Wait()
		close(ended)
		cutting.Wait()
		require.Empty(t, r.check(), "round %d", round)
		unknown += r.unknown()
	}
	t.Logf("%d calls of unknown outcome", unknown)
}

// takeOne takes a token. It then waits until every server sees exactly one missing token, because enough time has
// passed since the take.
func takeOne(t *testing.T, clients []*redis.Client, key string) {
	a := asked{object: "tokens", key: key, verb: "take", n: 1}
	for i, c := range clients {
		peer.Until(t, "a token is taken", func() bool {
			if i == 0 {
				_ = c.Del(t.Context(), key).Err() // if it fails, the loop tries again
				_ = c.Do(t.Context(), a.words()...).Err()
			}
			reply, err := c.Do(t.Context(), "CL.THROTTLE", key, tokensAtOnce-1, 1, long, 0).Int64Slice()
			return err == nil && reply[2] == tokensAtOnce-1
		})
	}
}

// cutOften cuts connections on which the objects of a round are used, until the round has ended.
func cutOften(front *proxy.Proxy, round int, ended <-chan struct{}) {
	for i, fault := range []proxy.Fault{proxy.LoseReply, proxy.LoseRequest, proxy.TearReply, proxy.LoseReply} {
		object := kinds[(round/2+i)%len(kinds)]
		select {
		case <-front.Arm(fault, object+strconv.Itoa(round), 0):
		case <-ended:
			return
		}
	}
}

// unknown returns how many calls have an unknown outcome.
func (r *recording) unknown() (n int) {
	for _, calls := range r.calls {
		for _, c := range calls {
			if c.Output.(answer).unknown {
				n++
			}
		}
	}
	return n
}

// play makes the calls of one client.
func (r *recording) play(s *peer.Server, n, round int) {
	c := connect(s)
	defer c.Close()
	p := &player{random: rand.New(rand.NewPCG(uint64(round), uint64(n))), name: fmt.Sprint("c", n, "-"), round: round}
	for range 30 {
		a := p.next()
		got := r.record(n, c, a)
		if a.verb == "acquire" && strings.HasPrefix(got.text, "0") {
			p.holds = a.text
		}
		if a.object == "tokens" && a.n > 0 && !got.unknown {
			words := strings.Fields(got.text)
			taken, err := strconv.ParseInt(words[len(words)-1], 10, 64)
			assert.NoError(r.t, err)
			p.tokens += taken
		}
	}
}

// The search finds a lost change: the store has an old value again, and the other server sees it.
func TestLostChangesAreFound(t *testing.T) {
	t.Parallel()
	store := peer.StartStore(t)
	var clients [2]*redis.Client
	for i := range clients {
		clients[i] = connect(peer.Start(t, "--store", "redis://"+store.Addr, "--store-timeout", "30000", "--policies",
			"testdata/policies.yaml"))
		defer clients[i].Close()
	}
	take := asked{verb: "take", n: 1}
	for object, calls := range map[string][]asked{
		"counter":  {{verb: "add", n: 1}, {verb: "add", n: 2}, {verb: "read"}},
		"value":    {{verb: "write", text: "a"}, {verb: "swap", old: "a", text: "b"}, {verb: "read"}},
		"tokens":   {take, take, take},
		"permits":  {{verb: "acquire", text: "a"}, {verb: "acquire", text: "b"}, {verb: "acquire", text: "c"}},
		"quota":    {take, take, take},
		"once":     {{verb: "take", n: 1, text: "a"}, {verb: "take", n: 1, text: "b"}, {verb: "take", n: 1, text: "c"}},
		"held":     {{verb: "hold", text: "a"}, {verb: "hold", text: "b"}, {verb: "settle", n: 2, text: "a"}},
		"standing": {take, take, take, take, take}, // two are allowed, and the third refusal leads to a ban
	} {
		for _, isLost := range []bool{false, true} {
			r, key := newRecording(t), fmt.Sprint(object, isLost)
			if object == "tokens" {
				takeOne(t, clients[:], key)
			}
			stored := key
			if object == "standing" {
				stored = "p:{" + key + "}:standing"
			}
			var old any
			last := len(calls) - 1
			for i, a := range calls {
				a.object, a.key = object, key
				if i == last-1 {
					old = peer.Ask(t, store.Addr, "dump", stored)
				}
				if i == last && isLost {
					peer.Ask(t, store.Addr, "restore", stored, 0, old, "replace")
				}
				r.record(0, clients[i/last], a)
			}
			if isLost {
				require.Equal(t, []string{object}, r.check())
			} else {
				require.Empty(t, r.check())
			}
		}
	}
}

// Replies that contradict each other are found, and calls of unknown outcome explain what they can.
func TestContradictionsAreFound(t *testing.T) {
	add, take := asked{object: "counter", verb: "add", n: 1}, asked{object: "tokens", verb: "take", n: 3}
	give := asked{object: "tokens", verb: "up to", n: -3}
	once := asked{object: "once", verb: "take", n: 1, text: "id"}
	other := asked{object: "once", verb: "take", n: 1, text: "other"}
	hold := asked{object: "held", verb: "hold", text: "id"}
	settle := asked{object: "held", verb: "settle", n: 2, text: "id"}
	for name, test := range map[string]struct {
		right   bool
		replies []reply
	}{
		"right":                   {true, []reply{{add, answer{text: "1"}}, {add, answer{text: "2"}}}},
		"one overwrites another":  {false, []reply{{add, answer{text: "1"}}, {add, answer{text: "1"}}}},
		"one is made twice":       {false, []reply{{add, answer{text: "1"}}, {add, answer{text: "3"}}}},
		"unknown, and made":       {true, []reply{{add, answer{unknown: true}}, {add, answer{text: "2"}}}},
		"unknown, and not made":   {true, []reply{{add, answer{unknown: true}}, {add, answer{text: "1"}}}},
		"unknown, and made twice": {false, []reply{{add, answer{unknown: true}}, {add, answer{text: "3"}}}},
		"too much is admitted":    {false, []reply{{take, answer{text: "0 1 3"}}, {take, answer{text: "0 1 3"}}}},
		"limited too early":       {false, []reply{{take, answer{text: "1 4 0"}}}},
		"an ID is repeated":       {true, []reply{{once, answer{text: "0 999 1"}}, {once, answer{text: "0 999 1"}}}},
		"an ID counts twice":      {false, []reply{{once, answer{text: "0 999 1"}}, {once, answer{text: "0 998 1"}}}},
		"another ID counts":       {true, []reply{{once, answer{text: "0 999 1"}}, {other, answer{text: "0 998 1"}}}},
		"an ID, unknown and made": {true, []reply{{once, answer{unknown: true}}, {other, answer{text: "0 998 1"}}}},
		"a hold is settled":       {true, []reply{{hold, answer{text: "0 995 5"}}, {settle, answer{text: "0 998 -3"}}}},
		"settled, and repeated": {true, []reply{{hold, answer{unknown: true}}, {settle, answer{text: "0 998 -3"}},
			{settle, answer{text: "0 998 -3"}}, {hold, answer{text: "0 995 5"}}}},
		"a hold is charged twice": {false, []reply{{hold, answer{text: "0 995 5"}}, {hold, answer{text: "0 990 5"}}}},
		"a hold is settled twice": {false, []reply{{hold, answer{text: "0 995 5"}}, {settle, answer{text: "0 998 -3"}},
			{settle, answer{text: "0 1001 -3"}}}},
		"a hold is forgotten": {false, []reply{{hold, answer{text: "0 995 5"}}, {settle, answer{text: "NOHOLD"}}}},
		"a refund":            {true, []reply{{take, answer{text: "0 1 3"}}, {give, answer{text: "0 4 -3"}}}},
		"a refund is lost":    {false, []reply{{take, answer{text: "0 1 3"}}, {give, answer{text: "0 1 -3"}}}},
	} {
		requireRight(t, name, test.right, test.replies)
	}
}

// reply is a call with its reply.
type reply struct {
	asked
	answer
}

// requireRight checks whether replies contradict each other.
func requireRight(t *testing.T, name string, right bool, replies []reply) {
	r := newRecording(t)
	for i, made := range replies {
		operation := porcupine.Operation{Input: made.asked, Output: made.answer, Call: int64(2 * i), Return: int64(2*i + 1)}
		if made.unknown {
			operation.Return = math.MaxInt64
		}
		r.calls[made.object] = append(r.calls[made.object], operation)
	}
	require.Equal(t, right, len(r.check()) == 0, name)
}

// Package cellserver limits rates with a cellserver, through go-redis.
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
//	limiter := cellserver.New(rdb, cellserver.Options{})
//	d, err := limiter.Throttle(ctx, "mail:42", cellserver.Rate{Burst: 16, Count: 30, Period: time.Minute}, 1)
//	if err == nil && !d.Allowed {
//		fmt.Println("try again in", d.RetryAfter)
//	}
//
// If the server cannot decide a call, the call does not fail: [Options.OnError] decides it, and Cause of the decision
// says why. An error means that the call is wrong, or not permitted, or that its context was cancelled.
package cellserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Never is the RetryAfter of a call that will never be allowed, because its quantity is above the limit.
const Never time.Duration = -1

// Decision is the answer to a call.
type Decision struct {
	Allowed    bool
	Limit      int64
	Remaining  int64
	RetryAfter time.Duration // until the call would be allowed: 0 if it is allowed, Never if it never will be
	ResetAfter time.Duration // until the limit has fully recovered
	Taken      int64         // by a call with UpTo
	Corrected  int64         // by [Hold.Settle]; negative if it was given back

	// Cause is nil if the server made the decision. Otherwise OnError made it, and Cause says why the server did not.
	Cause error

	// Remembered is true if the decision is an earlier refusal (Options.Remember).
	Remembered bool
}

// OnError says how a call is decided if the server does not answer, or answers that it cannot decide at the moment.
type OnError uint8

const (
	Allow OnError = iota // allows all calls
	Deny                 // refuses all calls
	Local                // decides in this process, by the part Options.Share of each limit
)

// Options are the options of a Limiter. The zero value is ready to use.
type Options struct {
	// Timeout is the time for all tries of a call. A context may end earlier. The default is 100 ms.
	Timeout time.Duration

	OnError OnError

	// Share is the part of each limit that this process admits with Local, such as 0.25 for one of four processes: in
	// an outage, at most Share x (burst + rate x time), and nothing if Share x burst is below 1. Calls on policies and
	// leases are refused then, because only the server knows their limits.
	Share float64

	// Remember repeats a refusal without asking the server, until its RetryAfter is over, and for a second at most. It
	// refuses calls of the same limit that have at least the refused quantity and no options, even if another client
	// resets or refunds the limit in that second.
	Remember bool

	// Observe is called after each call, with the name of its command. It is the place for metrics and traces.
	Observe func(ctx context.Context, command string, d Decision, err error)
}

// Limiter makes calls. It is safe for concurrent use, and a process needs one for each Redis client.
type Limiter struct {
	options Options
	ring    *redis.Ring
	single  *node
	nodes   sync.Map // *node by *redis.Client, with a ring
	local   buckets
	refused *refusals
	prefix  string // of IDs
	ids     atomic.Uint64
	now     func() time.Time
}

// New returns a Limiter that uses a client and its connections. If the client repeats calls without a reply, as
// go-redis does unless its MaxRetries is -1, each call has an ID, so that it counts once. Hooks of the client do not
// see the calls: Options.Observe does.
func New(rdb *redis.Client, o Options) *Limiter {
	l := newLimiter(o)
	l.single = newNode(rdb, l.options.Timeout)
	return l
}

// NewRing returns a Limiter that asks, for each key, its server in the ring. All keys of a call of All must be on one
// server.
func NewRing(ring *redis.Ring, o Options) *Limiter {
	l := newLimiter(o)
	l.ring = ring
	return l
}

func newLimiter(o Options) *Limiter {
	if o.Timeout <= 0 {
		o.Timeout = 100 * time.Millisecond
	}
	l := &Limiter{options: o, prefix: rand.Text()[:13] + "-", now: time.Now}
	if o.Remember {
		l.refused = &refusals{byCall: map[string]refusal{}}
	}
	return l
}

// Throttle takes from a token bucket. A negative quantity is a refund, here and in all other calls.
func (l *Limiter) Throttle(ctx context.Context, key string, r Rate, quantity int64, o ...Option) (Decision, error) {
	return l.Do(ctx, Throttle(key, r), quantity, o...)
}

// Take takes from the limits of a policy.
func (l *Limiter) Take(ctx context.Context, policy, subject string, quantity int64, o ...Option) (Decision, error) {
	return l.Do(ctx, Policy(policy, subject), quantity, o...)
}

// Do takes a quantity from a limit.
func (l *Limiter) Do(ctx context.Context, limit Limit, quantity int64, o ...Option) (Decision, error) {
	return l.decide(ctx, newCall(limit, quantity, o))
}

// All takes from several limits, or from none. It returns the decision about the call, and one about each part.
func (l *Limiter) All(ctx context.Context, parts []Part, o ...Option) (Decision, []Decision, error) {
	c := newAll(parts, o)
	reply, d, err := l.ask(ctx, c)
	if err != nil || d.Cause != nil {
		return d, nil, err
	}
	values, ok := reply.([]any)
	if !ok || len(values) != 2+len(parts) {
		return Decision{}, nil, fmt.Errorf("cellserver: the reply to CL.ALL is %v", reply)
	}
	all := make([]Decision, len(parts))
	for i := range all {
		if all[i], err = decisionOf(values[2+i]); err != nil {
			return Decision{}, nil, err
		}
	}
	limited, _ := values[0].(int64)
	retry, _ := values[1].(int64)
	d = Decision{Allowed: limited == 0, RetryAfter: retryAfter(limited, retry)}
	l.observe(ctx, c, d, nil)
	return d, all, nil
}

// decide makes a call whose reply is one decision.
func (l *Limiter) decide(ctx context.Context, c *call) (Decision, error) {
	if d, found := l.refused.find(c, l.now()); found {
		l.observe(ctx, c, d, nil)
		return d, nil
	}
	reply, d, err := l.ask(ctx, c)
	if err != nil || d.Cause != nil {
		return d, err
	}
	if d, err = decisionOf(reply); err == nil {
		l.refused.note(c, d, l.now())
	}
	l.observe(ctx, c, d, err)
	return d, err
}

// decisionOf reads a decision whose times are milliseconds.
func decisionOf(reply any) (d Decision, err error) {
	values, ok := reply.([]any)
	if !ok || len(values) < 5 || len(values) > 6 {
		return d, fmt.Errorf("cellserver: the reply is %v", reply)
	}
	var n [6]int64
	for i, v := range values {
		if n[i], ok = v.(int64); !ok {
			return d, fmt.Errorf("cellserver: the reply is %v", reply)
		}
	}
	return Decision{Allowed: n[0] == 0, Limit: n[1], Remaining: n[2], RetryAfter: retryAfter(n[0], n[3]),
		ResetAfter: time.Duration(n[4]) * time.Millisecond, Taken: n[5]}, nil
}

func retryAfter(limited, retry int64) time.Duration {
	switch {
	case limited == 0:
		return 0
	case retry < 0:
		return Never
	}
	return time.Duration(retry) * time.Millisecond
}

// ask returns the reply to a call. If there is none, it returns the decision of OnError, whose Cause is set.
func (l *Limiter) ask(ctx context.Context, c *call) (reply any, d Decision, err error) {
	n, err := l.node(c.key)
	if err == nil {
		if n.repeats && mayHaveID(c) {
			c.words = append(c.words, "ID", l.prefix+strconv.FormatUint(l.ids.Add(1), 36))
		}
		reply, err = n.do(ctx, c, l.options.Timeout, l.now())
	}
	switch {
	case err == nil:
		return reply, d, nil
	case !NoAnswer(err):
		err = fmt.Errorf("cellserver: %w", err)
	default:
		d, err = l.fallback(c, err), nil
	}
	l.observe(ctx, c, d, err)
	return nil, d, err
}

// mayHaveID reports whether the call needs an ID to be repeatable: whether it takes something, and has no other ID.
func mayHaveID(c *call) bool {
	for _, w := range c.words[2:] {
		if w == "PEEK" || w == "HOLD" || w == "SETTLE" {
			return false
		}
	}
	return !c.isLease
}

func (l *Limiter) fallback(c *call, cause error) (d Decision) {
	switch {
	case l.options.OnError == Allow:
		d.Allowed = true
	case l.options.OnError == Local && !c.isLease:
		d = l.local.take(c.takes, l.options.Share, l.now())
	}
	d.Cause = cause
	return d
}

func (l *Limiter) observe(ctx context.Context, c *call, d Decision, err error) {
	if l.options.Observe != nil {
		command, _ := c.words[0].(string)
		l.options.Observe(ctx, command, d, err)
	}
}

// node returns the server of a key.
func (l *Limiter) node(key string) (*node, error) {
	if l.single != nil {
		return l.single, nil
	}
	rdb, err := l.ring.GetShardClientForKey(key)
	if err != nil {
		return nil, errors.Join(errNoAnswer, err) // all servers are down
	}
	n, ok := l.nodes.Load(rdb)
	if !ok {
		n, _ = l.nodes.LoadOrStore(rdb, newNode(rdb, l.options.Timeout))
	}
	return n.(*node), nil
}

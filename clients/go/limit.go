package cellserver

import (
	"strconv"
	"time"
)

// Rate is the limit of [Limiter.Throttle]: a bucket of Burst tokens, which gets Count tokens back in each Period.
type Rate struct {
	Burst, Count int64
	Period       time.Duration
}

// Limit is a limiter and its key, or a policy and its subject, that a call takes from.
type Limit struct {
	kind   string
	key    string // the subject of a policy
	words  []any  // what follows the key
	policy string
	size   int64         // 0 if only the server knows it
	period time.Duration // in which the size comes back; 0 if only the server knows it
}

// Throttle is the limit of CL.THROTTLE, a token bucket.
func Throttle(key string, r Rate) Limit {
	l := Limit{kind: "THROTTLE", key: key, words: []any{r.Burst - 1, r.Count, word(r.Period)}, size: r.Burst}
	if r.Count > 0 {
		l.period = time.Duration(float64(r.Period) / float64(r.Count) * float64(r.Burst))
	}
	return l
}

// Fixed is the limit of CL.FIXED, which counts in windows that begin with a first call.
func Fixed(key string, limit int64, period time.Duration) Limit {
	return window("FIXED", key, limit, period)
}

// Sliding is the limit of CL.SLIDING, which estimates the count of a sliding window from two counters.
func Sliding(key string, limit int64, period time.Duration) Limit {
	return window("SLIDING", key, limit, period)
}

// SlidingLog is the limit of CL.SLIDINGLOG, which counts in a sliding window exactly.
func SlidingLog(key string, limit int64, period time.Duration) Limit {
	return window("SLIDINGLOG", key, limit, period)
}

func window(kind, key string, limit int64, period time.Duration) Limit {
	return Limit{kind: kind, key: key, words: []any{limit, word(period)}, size: limit, period: period}
}

// Quota is the limit of CL.QUOTA, which counts per HOUR, DAY, WEEK, MONTH or YEAR, in UTC or in a time zone, as
// in DAY@Europe/Berlin.
func Quota(key string, limit int64, unit string) Limit {
	return Limit{kind: "QUOTA", key: key, words: []any{limit, unit}, size: limit}
}

// Policy stands for all limits of one of the server's policies, for a subject.
func Policy(name, subject string) Limit {
	return Limit{kind: "TAKE", key: subject, words: []any{name}, policy: name}
}

// word writes a period: in seconds, or in milliseconds if it is not a whole number of seconds.
func word(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10)
	}
	return strconv.FormatInt(milliseconds(d), 10) + "ms"
}

// milliseconds rounds up, so that a short time does not become 0.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

// Option is an option of a call, such as Peek or Leave(10).
type Option struct {
	word  string
	value int64
	wait  time.Duration
}

var (
	Peek  = Option{word: "PEEK"}  // takes nothing, and gets the decision that a call without it would get
	UpTo  = Option{word: "UPTO"}  // takes what is available, and reports it as Decision.Taken
	Force = Option{word: "FORCE"} // takes the quantity even if less remains
)

// Leave leaves a part of the limit to other calls.
func Leave(n int64) Option { return Option{word: "LEAVE", value: n} }

// Wait waits for the limit, on a connection of its own. The time comes on top of Options.Timeout.
func Wait(d time.Duration) Option { return Option{word: "WAIT", value: milliseconds(d), wait: d} }

// call is one call: its words, and what decides it if there is no answer.
type call struct {
	words   []any
	key     string
	wait    time.Duration
	takes   []take // what the local buckets decide
	isLease bool
	plain   bool // without options, and not a refund: its refusal may be remembered
}

// add adds options, to all parts of the call.
func (c *call) add(options []Option) {
	for _, o := range options {
		c.words = append(c.words, o.word)
		if o.word == "LEAVE" || o.word == "WAIT" {
			c.words = append(c.words, o.value)
		}
		c.wait = max(c.wait, o.wait)
		for i := range c.takes {
			c.takes[i].set(o)
		}
	}
}

// take is a part of a call, for the local buckets.
type take struct {
	Limit
	quantity, leave   int64
	peek, upTo, force bool
}

func (t *take) set(o Option) {
	switch o.word {
	case "PEEK":
		t.peek = true
	case "UPTO":
		t.upTo = true
	case "FORCE":
		t.force = true
	case "LEAVE":
		t.leave = o.value
	}
}

// newCall returns the call of a limit, without ID.
func newCall(l Limit, quantity int64, options []Option, more ...any) *call {
	c := &call{key: l.key, words: make([]any, 0, 12), takes: []take{{Limit: l, quantity: quantity}}}
	c.words = append(append(append(c.words, "CL."+l.kind, l.key), l.words...), quantity)
	c.add(options)
	c.words = append(append(c.words, more...), "MS")
	c.plain = len(options) == 0 && len(more) == 0 && quantity > 0 && l.kind != "ACQUIRE"
	return c
}

// Part is one of the limits in a call of [Limiter.All]. If Force is set, the quantity is taken even if less remains.
type Part struct {
	Limit    Limit
	Quantity int64
	Force    bool
}

func newAll(parts []Part, options []Option) *call {
	c := &call{words: []any{"CL.ALL", len(parts)}}
	for i, p := range parts {
		if i == 0 {
			c.key = p.Limit.key
		}
		c.words = append(append(append(c.words, p.Limit.kind, p.Limit.key), p.Limit.words...), p.Quantity)
		if p.Force {
			c.words = append(c.words, "FORCE")
		}
		c.takes = append(c.takes, take{Limit: p.Limit, quantity: p.Quantity, force: p.Force})
	}
	c.add(options)
	c.words = append(c.words, "MS")
	return c
}

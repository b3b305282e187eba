package commands

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"cellserver/internal/resp"
)

// SLOWLOG: the calls that took long, of late.

// slowLog keeps them, the oldest first. Quick calls are only measured, and so only kept, where somebody asks for less than a millisecond.
type slowLog struct {
	slowerThan atomic.Int64 // microseconds; -1: nothing is kept

	mu      sync.Mutex
	most    int
	next    int64 // id
	entries []slowCall
}

type slowCall struct {
	id, unix, usec int64
	words          [][]byte
	address, name  string
}

// The bounds of an entry are Redis's, so that it takes some 4 KiB at most. Of entries there are no more than maxSlowCalls.
const (
	slowWords    = 32
	slowBytes    = 128 // of a word
	maxSlowCalls = 100_000
	quickest     = 1000 // microseconds: what a quick call does not reach
)

// wants says whether a call took long enough to be kept.
func (l *slowLog) wants(row *Command, usec int64) bool {
	least := l.slowerThan.Load()
	return least >= 0 && usec >= least && row.Flags&Unlogged == 0
}

// slowCall is a call as SLOWLOG keeps it, but for how long it took.
func (c *Call) slowCall(row *Command, words [][]byte) slowCall {
	e := slowCall{unix: c.unix(c.View.Now()) / 1e9, words: shorten(redact(row, words), slowWords, slowBytes), address: clientOf(c).peer.Remote}
	clientOf(c).about.mu.Lock()
	defer clientOf(c).about.mu.Unlock()
	e.name = clientOf(c).about.name
	return e
}

// add keeps a call.
func (l *slowLog) add(e slowCall, usec int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id, e.usec = l.next, usec
	l.next++
	l.entries = append(l.entries, e)
	l.trim()
}

// trim forgets the oldest. It needs the lock.
func (l *slowLog) trim() {
	for extra := len(l.entries) - l.most; extra > 0; extra-- {
		l.entries[0] = slowCall{}
		l.entries = l.entries[1:]
	}
}

// redact hides what is secret in a call.
func redact(row *Command, words [][]byte) [][]byte {
	if row.Secrets == nil {
		return words
	}
	words = slices.Clone(words)
	row.Secrets(words, func(word int) { words[word] = []byte("(redacted)") })
	return words
}

// wordsFrom makes a row's Secrets of all words from one on.
func wordsFrom(first int) func(words [][]byte, hide func(int)) {
	return func(words [][]byte, hide func(int)) {
		for i := first; i < len(words); i++ {
			hide(i)
		}
	}
}

// shorten copies the beginning of a call, and says how much more there was.
func shorten(words [][]byte, most, bytes int) [][]byte {
	short := make([][]byte, 0, min(len(words), most))
	for i, word := range words {
		if len(words) > most && i == most-1 {
			return append(short, fmt.Appendf(nil, "... (%d more arguments)", len(words)-i))
		}
		if len(word) > bytes {
			word = fmt.Appendf(nil, "%s... (%d more bytes)", word[:bytes], len(word)-bytes)
		}
		short = append(short, slices.Clone(word))
	}
	return short
}

// latest are so many entries, the newest first; all for -1.
func (l *slowLog) latest(count int64) []slowCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.entries)
	if count >= 0 {
		n = int(min(count, int64(n)))
	}
	newest := slices.Clone(l.entries[len(l.entries)-n:])
	slices.Reverse(newest)
	return newest
}

var slowlog = Command{
	Name: "slowlog", Group: "server", Category: "none", Since: "2.2.12", Complexity: "Depends on the subcommand.", Min: 2,
	Summary: "Commands about calls that took long.", AnyMore: true,
	Subs: []*Command{&slowlogGet, &slowlogLen, &slowlogReset, helpOf("slowlog", "6.2.0")},
}

const aboutSlow = Admin | Dangerous | Loading | Stale

var slowlogGet = Command{
	Name: "slowlog|get", Group: "server", Category: "none", Since: "2.2.12", Complexity: "O(N) in the number of entries", Flags: aboutSlow, Cost: Unbounded,
	Tips: []string{allNodes, "nondeterministic_output"}, Summary: "Returns the latest calls that took slowlog-log-slower-than microseconds or more.",
	Args:  []Arg{Int("count").By(parseSlowCount).Or(10)},
	Reply: "The newest first, of each: its number, when in Unix seconds, microseconds, the words, the client's address and name.",
	Run: func(c *Call) error {
		calls := instanceOf(c).slowlog.latest(c.Int())
		c.Out.Array(len(calls))
		for _, call := range calls {
			c.Out.Array(6)
			c.Out.Int(call.id)
			c.Out.Int(call.unix)
			c.Out.Int(call.usec)
			c.Out.Array(len(call.words))
			for _, word := range call.words {
				c.Out.Bulk(word)
			}
			c.Out.BulkString(call.address)
			c.Out.BulkString(call.name)
			c.Out.Break()
		}
		return nil
	},
}

func parseSlowCount(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	if !ok || n < -1 {
		return 0, refusal("ERR count should be greater than or equal to -1")
	}
	return n, nil
}

var slowlogLen = Command{
	Name: "slowlog|len", Group: "server", Category: "none", Since: "2.2.12", Complexity: "O(1)", Flags: aboutSlow,
	Tips:    []string{allNodes, "response_policy:agg_sum", "nondeterministic_output"},
	Summary: "Counts the calls that SLOWLOG GET -1 would show.", Reply: "Their number.",
	Run: func(c *Call) error {
		l := &instanceOf(c).slowlog
		l.mu.Lock()
		defer l.mu.Unlock()
		c.Out.Int(int64(len(l.entries)))
		return nil
	},
}

var slowlogReset = Command{
	Name: "slowlog|reset", Group: "server", Category: "none", Since: "2.2.12", Complexity: "O(1)", Flags: aboutSlow,
	Tips:    []string{allNodes, "response_policy:all_succeeded"},
	Summary: "Forgets them.", Reply: "OK.",
	Run: func(c *Call) error {
		l := &instanceOf(c).slowlog
		l.mu.Lock()
		defer l.mu.Unlock()
		l.entries = nil
		c.Out.Status("OK")
		return nil
	},
}

// keep bounds the calls that are kept.
func (l *slowLog) keep(most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
	l.trim()
}

// logSlowerThan says from how many microseconds on calls are kept. For less than a quick call takes, all calls are measured.
func (in *Instance) logSlowerThan(usec int64) {
	in.slowlog.slowerThan.Store(usec)
	if 0 <= usec && usec < quickest {
		in.concerns.Or(timed)
	} else {
		in.concerns.And(^timed)
	}
}

package commands

import (
	"slices"

	"cellserver/internal/resp"
)

// SLOWLOG: the calls that took long, of late.

// slowCall is a call as SLOWLOG keeps it, but for how long it took.
func (c *Call) slowCall(row *Command, words [][]byte) slowCall {
	e := slowCall{unix: c.unix(c.View.Now()) / 1e9, words: shorten(redact(row, words), slowWords, slowBytes), address: clientOf(c).peer.Remote}
	clientOf(c).about.mu.Lock()
	defer clientOf(c).about.mu.Unlock()
	e.name = clientOf(c).about.name
	return e
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
		c.Out.Int(int64(instanceOf(c).slowlog.count()))
		return nil
	},
}

var slowlogReset = Command{
	Name: "slowlog|reset", Group: "server", Category: "none", Since: "2.2.12", Complexity: "O(1)", Flags: aboutSlow,
	Tips:    []string{allNodes, "response_policy:all_succeeded"},
	Summary: "Forgets them.", Reply: "OK.",
	Run: func(c *Call) error {
		instanceOf(c).slowlog.reset()
		c.Out.Status("OK")
		return nil
	},
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

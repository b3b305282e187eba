package commands

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/stats"
)

// SLOWLOG: the calls that took long, of late.

// newSlowCall is a call as SLOWLOG keeps it, but for how long it took.
func newSlowCall(c *command.Call, row *command.Command, words [][]byte) stats.SlowCall {
	e := stats.SlowCall{Unix: c.Unix(c.View.Now()) / 1e9,
		Arguments: stats.Shorten(redact(row, words), stats.SlowArguments, stats.SlowArgumentBytes),
		Address:   c.Client.Peer.Remote}
	c.Client.Profile.Mu.Lock()
	defer c.Client.Profile.Mu.Unlock()
	e.Name = c.Client.Profile.Name
	return e
}

// redact hides what is secret in a call.
func redact(row *command.Command, words [][]byte) [][]byte {
	if row.Secrets == nil {
		return words
	}
	words = slices.Clone(words)
	row.Secrets(words, func(word int) { words[word] = []byte("(redacted)") })
	return words
}

var slowlog = command.Command{
	Name: "slowlog", Group: "server", Category: "none", Since: "2.2.12",
	Complexity: "Depends on the subcommand.", Min: 2,
	Summary: "Commands about calls that took long.", AnyMore: true,
	Subs: []*command.Command{&slowlogGet, &slowlogLen, &slowlogReset, command.HelpOf("slowlog", "6.2.0")},
}

const aboutSlow = command.Admin | command.Dangerous | command.Loading | command.Stale

var slowlogGet = command.Command{
	Name: "slowlog|get", Group: "server", Category: "none", Since: "2.2.12",
	Complexity: "O(N) in the number of entries", Flags: aboutSlow, Cost: command.Unbounded,
	Tips:    []string{allNodes, "nondeterministic_output"},
	Summary: "Returns the latest calls that took slowlog-log-slower-than microseconds or more.",
	Args:    []command.Arg{command.Int("count").By(parseSlowCount).Or(10)},
	Reply:   "The newest first; for each: its number, the Unix time in seconds, the microseconds it took, its arguments, the client's address and name.",
	Run: func(c *command.Call) error {
		calls := instanceOf(c).slowlog.Latest(c.Int())
		c.Out.Array(len(calls))
		for _, call := range calls {
			c.Out.Array(6)
			c.Out.Int(call.ID)
			c.Out.Int(call.Unix)
			c.Out.Int(call.Usec)
			c.Out.Array(len(call.Arguments))
			for _, word := range call.Arguments {
				c.Out.Bulk(word)
			}
			c.Out.BulkString(call.Address)
			c.Out.BulkString(call.Name)
			c.Out.Break()
		}
		return nil
	},
}

func parseSlowCount(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	if !ok || n < -1 {
		return 0, command.Refusal("ERR count should be greater than or equal to -1")
	}
	return n, nil
}

var slowlogLen = command.Command{
	Name: "slowlog|len", Group: "server", Category: "none", Since: "2.2.12", Complexity: "O(1)",
	Flags:   aboutSlow,
	Tips:    []string{allNodes, "response_policy:agg_sum", "nondeterministic_output"},
	Summary: "Counts the calls that SLOWLOG GET -1 would show.", Reply: "Their number.",
	Run: func(c *command.Call) error {
		c.Out.Int(int64(instanceOf(c).slowlog.Count()))
		return nil
	},
}

var slowlogReset = command.Command{
	Name: "slowlog|reset", Group: "server", Category: "none", Since: "2.2.12", Complexity: "O(1)",
	Flags: aboutSlow, Tips: []string{allNodes, "response_policy:all_succeeded"},
	Summary: "Forgets them.", Reply: "OK.",
	Run: func(c *command.Call) error {
		instanceOf(c).slowlog.Reset()
		c.Out.Status("OK")
		return nil
	},
}

// logSlowerThan says from how many microseconds on calls are kept. For less than a quick call
// takes, all calls are measured.
func (in *Instance) logSlowerThan(usec int64) {
	in.slowlog.SlowerThan.Store(usec)
	if 0 <= usec && usec < stats.FastCallMax {
		in.hooks.Or(timed)
	} else {
		in.hooks.And(^timed)
	}
}

package admin

import (
	"cellserver/internal/command"
	"cellserver/internal/resp"
)

var slowlog = command.Container("slowlog", "server", "2.2.12", "Commands about calls that took long.",
	&slowlogGet, &slowlogLen, &slowlogReset, command.HelpOf("slowlog", "6.2.0"))

const slowlogFlags = command.Admin | command.Dangerous | command.Loading | command.Stale

var slowlogGet = command.Command{
	Name: "slowlog|get", Group: "server", Category: "none", Since: "2.2.12",
	Complexity: "O(N) in the number of entries", Flags: slowlogFlags, Cost: command.Unbounded,
	Tips:    []string{command.AllNodes, "nondeterministic_output"},
	Summary: "Returns the latest calls that took slowlog-log-slower-than microseconds or more.",
	Args:    []command.Arg{command.Int("count").By(parseSlowCount).Or(10)},
	Reply:   "The newest first; for each: its number, the Unix time in seconds, the microseconds it took, its arguments, the client's address and name.",
	Run: func(c *command.Call) error {
		calls := c.Server.Stats.SlowLog.Latest(c.Int())
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
	Flags:   slowlogFlags,
	Tips:    []string{command.AllNodes, "response_policy:agg_sum", "nondeterministic_output"},
	Summary: "Counts the calls that SLOWLOG GET -1 would show.", Reply: "Their number.",
	Run: func(c *command.Call) error {
		c.Out.Int(int64(c.Server.Stats.SlowLog.Count()))
		return nil
	},
}

var slowlogReset = command.Command{
	Name: "slowlog|reset", Group: "server", Category: "none", Since: "2.2.12", Complexity: "O(1)",
	Flags: slowlogFlags, Tips: []string{command.AllNodes, "response_policy:all_succeeded"},
	Summary: "Forgets them.", Reply: "OK.",
	Run: func(c *command.Call) error {
		c.Server.Stats.SlowLog.Reset()
		c.Out.Status("OK")
		return nil
	},
}

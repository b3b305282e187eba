package admin

import "cellserver/internal/command"

// LATENCY: the calls that took latency-monitor-threshold milliseconds or more, and histograms of
// how long calls take.

var latency = command.Container("latency", "server", "2.8.13", "Commands about how long calls take.",
	latencyDoctor, latencyHistogram, latencyHistory, latencyLatest, latencyReset, command.HelpOf("latency", "2.8.13"))

// latencyCommand fills in the fields that the subcommands of LATENCY share.
func latencyCommand(row command.Command) *command.Command {
	row.Group, row.Category, row.Complexity, row.Flags = "server", "none", "O(1)",
		command.Admin|command.Dangerous|command.NoScript|command.Loading|command.Stale
	if row.Tips == nil {
		row.Tips = []string{"nondeterministic_output", command.AllNodes, "response_policy:special"}
	}
	return &row
}

var latencyLatest = latencyCommand(command.Command{
	Name: "latency|latest", Since: "2.8.13", Summary: "Returns the latest spike of each event.",
	Reply: "For each event: name, Unix seconds, milliseconds, the maximum in milliseconds.",
	Run: func(c *command.Call) error {
		names, events := c.Server.Stats.Latency.All()
		c.Out.Array(len(names))
		for i, name := range names {
			e := events[i]
			last := e.Samples[len(e.Samples)-1]
			c.Out.Array(4)
			c.Out.BulkString(name)
			c.Out.Int(last.Unix)
			c.Out.Int(last.Ms)
			c.Out.Int(e.Longest)
		}
		return nil
	},
})

var latencyHistory = latencyCommand(command.Command{
	Name: "latency|history", Since: "2.8.13", Summary: "Returns the spikes of an event.",
	Args:  []command.Arg{command.Word("event")},
	Reply: "Pairs of Unix seconds and milliseconds, the oldest first; at most 160.",
	Run: func(c *command.Call) error {
		e := c.Server.Stats.Latency.Of(c.Word())
		c.Out.Array(len(e.Samples))
		for _, s := range e.Samples {
			c.Out.Ints(s.Unix, s.Ms)
		}
		return nil
	},
})

var latencyReset = latencyCommand(command.Command{
	Name: "latency|reset", Since: "2.8.13",
	Summary: "Forgets the spikes of these events, or of all.",
	Tips:    []string{command.AllNodes, "response_policy:all_succeeded"},
	Args:    []command.Arg{command.Word("event").Optional().Many()},
	Reply:   "How many events there were.",
	Run: func(c *command.Call) error {
		c.Out.Int(int64(c.Server.Stats.Latency.Reset(c.Many())))
		return nil
	},
})

var latencyDoctor = latencyCommand(command.Command{
	Name: "latency|doctor", Since: "2.8.13", Summary: "Explains the latency spikes.",
	Reply: "A text.",
	Run: func(c *command.Call) error {
		c.Out.Verbatim("txt", c.Server.Stats.Latency.Report())
		return nil
	},
})

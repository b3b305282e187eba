package commands

// LATENCY: calls that took latency-monitor-threshold milliseconds or more, and how long calls take.

var latency = Command{
	Name: "latency", Group: "server", Category: "none", Since: "2.8.13", Complexity: "Depends on the subcommand.", Min: 2,
	Summary: "Commands about how long calls take.", AnyMore: true,
	Subs: []*Command{&latencyDoctor, &latencyHistogram, &latencyHistory, &latencyLatest, &latencyReset, helpOf("latency", "2.8.13")},
}

// aboutLatency makes the rows of LATENCY.
func aboutLatency(row Command) Command {
	row.Group, row.Category, row.Complexity, row.Flags = "server", "none", "O(1)", Admin|Dangerous|NoScript|Loading|Stale
	if row.Tips == nil {
		row.Tips = []string{"nondeterministic_output", allNodes, "response_policy:special"}
	}
	return row
}

var latencyLatest = aboutLatency(Command{
	Name: "latency|latest", Since: "2.8.13", Summary: "Returns the latest spike of each event.",
	Reply: "Of each event: name, Unix seconds, milliseconds, the most milliseconds ever.",
	Run: func(c *Call) error {
		names, events := instanceOf(c).spikes.all()
		c.Out.Array(len(names))
		for i, name := range names {
			e := events[i]
			last := e.samples[len(e.samples)-1]
			c.Out.Array(4)
			c.Out.BulkString(name)
			c.Out.Int(last.unix)
			c.Out.Int(last.ms)
			c.Out.Int(e.longest)
		}
		return nil
	},
})

var latencyHistory = aboutLatency(Command{
	Name: "latency|history", Since: "2.8.13", Summary: "Returns the spikes of an event.",
	Args: []Arg{Word("event")}, Reply: "Pairs of Unix seconds and milliseconds, the oldest first; at most 160.",
	Run: func(c *Call) error {
		e := instanceOf(c).spikes.of(c.Word())
		c.Out.Array(len(e.samples))
		for _, s := range e.samples {
			c.Out.Ints(s.unix, s.ms)
		}
		return nil
	},
})

var latencyReset = aboutLatency(Command{
	Name: "latency|reset", Since: "2.8.13", Summary: "Forgets the spikes of these events, or of all.", Tips: []string{allNodes, "response_policy:all_succeeded"},
	Args: []Arg{Word("event").Optional().Many()}, Reply: "How many events there were.",
	Run: func(c *Call) error {
		c.Out.Int(int64(instanceOf(c).spikes.reset(c.Many())))
		return nil
	},
})

var latencyDoctor = aboutLatency(Command{
	Name: "latency|doctor", Since: "2.8.13", Summary: "Says what is known of spikes, in words.", Reply: "A text.",
	Run: func(c *Call) error {
		c.Out.Verbatim("txt", instanceOf(c).spikes.report())
		return nil
	},
})

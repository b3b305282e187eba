package commands

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// LATENCY: calls that took latency-monitor-threshold milliseconds or more, and how long calls take.

// spikes remembers them, by event: of commands that are not quick, and of those that are, as far as those are measured.
type spikes struct {
	threshold atomic.Int64 // milliseconds, 0 for none

	mu     sync.Mutex
	events map[string]*event
}

// event is what happened of late, and the longest ever.
type event struct {
	samples []spike // the oldest first; at most maxSpikes
	longest int64
}

type spike struct{ unix, ms int64 }

// maxSpikes is how many an event remembers, as in Redis.
const maxSpikes = 160

// add remembers a call, if it took long enough. Of one second the longest counts.
func (l *spikes) add(name string, unix, ns int64) {
	threshold, ms := l.threshold.Load(), ns/1e6
	if threshold == 0 || ms < threshold {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[name]
	if e == nil {
		e = new(event)
		l.events[name] = e
	}
	e.longest = max(e.longest, ms)
	if last := len(e.samples) - 1; last >= 0 && e.samples[last].unix == unix {
		e.samples[last].ms = max(e.samples[last].ms, ms)
		return
	}
	if e.samples = append(e.samples, spike{unix, ms}); len(e.samples) > maxSpikes {
		e.samples = slices.Clone(e.samples[1:])
	}
}

// names are the events that there are, in order. It needs the lock.
func (l *spikes) names() []string { return slices.Sorted(maps.Keys(l.events)) }

// of is what is remembered of an event; empty if nothing is.
func (l *spikes) of(name []byte) event {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.events[string(name)]; e != nil {
		return event{slices.Clone(e.samples), e.longest}
	}
	return event{}
}

var latency = Command{
	Name: "latency", Group: "server", Category: "none", Since: "2.8.13", Complexity: "Depends on the subcommand.", Min: 2,
	Summary: "Commands about how long calls take.", AnyMore: true,
	Subs: []*Command{&latencyDoctor, &latencyGraph, &latencyHistogram, &latencyHistory, &latencyLatest, &latencyReset, helpOf("latency", "2.8.13")},
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
		l := &instanceOf(c).spikes
		l.mu.Lock()
		defer l.mu.Unlock()
		c.Out.Array(len(l.events))
		for _, name := range l.names() {
			e := l.events[name]
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
		l, events := &instanceOf(c).spikes, c.Many()
		l.mu.Lock()
		defer l.mu.Unlock()
		before := len(l.events)
		for _, name := range events {
			delete(l.events, string(name))
		}
		if len(events) == 0 {
			clear(l.events)
		}
		c.Out.Int(int64(before - len(l.events)))
		return nil
	},
})

var latencyGraph = aboutLatency(Command{
	Name: "latency|graph", Since: "2.8.13", Summary: "Draws the spikes of an event.", Args: []Arg{Word("event")}, Reply: "Lines of text.",
	Run: func(c *Call) error {
		name := c.Word()
		e := instanceOf(c).spikes.of(name)
		if len(e.samples) == 0 {
			return refusal(fmt.Sprintf("ERR No samples available for event '%.128s'", name))
		}
		c.Out.Verbatim("txt", e.graph(string(name), c.unix(c.View.Now())/1e9))
		return nil
	},
})

// The size of a graph, in characters, and what its steps are drawn with.
const (
	graphRows, graphColumns = 4, 80
	graphSteps              = "_o#"
)

// graph is a column a spike, with how long ago it was below: as Redis draws it.
func (e *event) graph(name string, now int64) string {
	samples := e.samples[max(0, len(e.samples)-graphColumns):]
	low, high := samples[0].ms, samples[0].ms
	labels, deepest := make([]string, len(samples)), 0
	for i, s := range samples {
		low, high = min(low, s.ms), max(high, s.ms)
		labels[i] = ago(now - s.unix)
		deepest = max(deepest, len(labels[i]))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s - high %d ms, low %d ms (all time high %d ms)\n%s\n", name, high, low, e.longest, strings.Repeat("-", graphColumns))
	for row := range graphRows {
		for _, s := range samples {
			const steps = graphRows * len(graphSteps)
			step := min(int((s.ms-low)*int64(steps)/max(high-low, 1)), steps-1) - (graphRows-row-1)*len(graphSteps)
			switch {
			case step < 0:
				out.WriteByte(' ')
			case step < len(graphSteps):
				out.WriteByte(graphSteps[step])
			default:
				out.WriteByte('|')
			}
		}
		out.WriteByte('\n')
	}
	out.WriteString(strings.Repeat(" ", len(samples)) + "\n")
	for row := range deepest {
		for _, label := range labels {
			out.WriteByte((label + "       ")[row])
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// ago is so many seconds in one letter's unit, of at most 7 characters.
func ago(seconds int64) string {
	switch seconds = max(seconds, 0); {
	case seconds < 60:
		return fmt.Sprintf("%ds", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%dm", seconds/60)
	case seconds < 86400:
		return fmt.Sprintf("%dh", seconds/3600)
	}
	return fmt.Sprintf("%dd", min(seconds/86400, 99999))
}

var latencyDoctor = aboutLatency(Command{
	Name: "latency|doctor", Since: "2.8.13", Summary: "Says what is known of spikes, in words.", Reply: "A text.",
	Run: func(c *Call) error {
		c.Out.Verbatim("txt", instanceOf(c).spikes.report())
		return nil
	},
})

// The doctor's words are Redis's.
const (
	doctorOff = "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use " +
		"\"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it. If we weren't in a deep space mission I'd " +
		"suggest to take a look at https://redis.io/topics/latency-monitor.\n"
	doctorWell = "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest bit. I honestly " +
		"think you ought to sit down calmly, take a stress pill, and think things over.\n"
	doctorAdvice = "\nI have a few advices for you:\n\n- Check your Slow Log to understand what are the commands you are running which are " +
		"too slow to execute. Please check https://redis.io/commands/slowlog for more information.\n"
)

func (l *spikes) report() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.events) == 0 && l.threshold.Load() == 0:
		return doctorOff
	case len(l.events) == 0:
		return doctorWell
	}
	var out strings.Builder
	out.WriteString("Dave, I have observed latency spikes in this Redis instance. You don't mind talking about it, do you Dave?\n\n")
	for i, name := range l.names() {
		e := l.events[name]
		sum, deviation, n := int64(0), int64(0), int64(len(e.samples))
		for _, s := range e.samples {
			sum += s.ms
		}
		for _, s := range e.samples {
			deviation += max(s.ms-sum/n, sum/n-s.ms)
		}
		period := float64(max(e.samples[n-1].unix-e.samples[0].unix, 1)) / float64(n)
		fmt.Fprintf(&out, "%d. %s: %d latency spikes (average %dms, mean deviation %dms, period %.2f sec). Worst all time event %dms.\n",
			i+1, name, n, sum/n, deviation/n, period, e.longest)
	}
	return out.String() + doctorAdvice
}

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

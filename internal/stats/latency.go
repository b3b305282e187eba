package stats

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// LatencyEvents holds the latency events of Redis: calls that took at least Threshold, by the name
// of the event. It is safe for concurrent use.
type LatencyEvents struct {
	Threshold atomic.Int64 // milliseconds; 0 turns the monitoring off

	mu     sync.Mutex
	events map[string]*LatencyEvent
}

// LatencyEvent holds the latest samples of one event, and the longest duration ever, in
// milliseconds.
type LatencyEvent struct {
	Samples []LatencySample // oldest first, at most maxLatencySamples
	Longest int64
}

type LatencySample struct{ Unix, Ms int64 }

// maxLatencySamples is how many samples an event keeps, as in Redis.
const maxLatencySamples = 160

// Add records a call that took ns nanoseconds at a Unix time in seconds, if it reaches the
// threshold. Of the samples of one second only the longest is kept.
func (l *LatencyEvents) Add(name string, unix, ns int64) {
	threshold, ms := l.Threshold.Load(), ns/1e6
	if threshold == 0 || ms < threshold {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.events[name]
	if e == nil {
		if l.events == nil {
			l.events = make(map[string]*LatencyEvent)
		}
		e = new(LatencyEvent)
		l.events[name] = e
	}
	e.Longest = max(e.Longest, ms)
	if last := len(e.Samples) - 1; last >= 0 && e.Samples[last].Unix == unix {
		e.Samples[last].Ms = max(e.Samples[last].Ms, ms)
		return
	}
	if e.Samples = append(e.Samples, LatencySample{unix, ms}); len(e.Samples) > maxLatencySamples {
		e.Samples = slices.Clone(e.Samples[1:])
	}
}

// names returns the names of all events, sorted. The caller must hold the lock.
func (l *LatencyEvents) names() []string { return slices.Sorted(maps.Keys(l.events)) }

// Of returns a copy of the named event; it is empty if there is none.
func (l *LatencyEvents) Of(name []byte) LatencyEvent {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.events[string(name)]; e != nil {
		return LatencyEvent{slices.Clone(e.Samples), e.Longest}
	}
	return LatencyEvent{}
}

// Report returns the text of LATENCY DOCTOR.
func (l *LatencyEvents) Report() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.events) == 0 && l.Threshold.Load() == 0:
		return doctorOff
	case len(l.events) == 0:
		return doctorWell
	}
	var out strings.Builder
	out.WriteString("Dave, I have observed latency spikes in this Redis instance. You don't mind talking about it, do you Dave?\n\n")
	for i, name := range l.names() {
		e := l.events[name]
		sum, deviation, n := int64(0), int64(0), int64(len(e.Samples))
		for _, s := range e.Samples {
			sum += s.Ms
		}
		for _, s := range e.Samples {
			deviation += max(s.Ms-sum/n, sum/n-s.Ms)
		}
		period := float64(max(e.Samples[n-1].Unix-e.Samples[0].Unix, 1)) / float64(n)
		fmt.Fprintf(&out, "%d. %s: %d latency spikes (average %dms, mean deviation %dms, period %.2f sec). Worst all time event %dms.\n",
			i+1, name, n, sum/n, deviation/n, period, e.Longest)
	}
	return out.String() + doctorAdvice
}

// These texts are Redis's, byte for byte.
const (
	doctorOff = "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use " +
		"\"CONFIG SET latency-monitor-threshold <milliseconds>.\" in order to enable it. If we weren't in a deep space mission I'd " +
		"suggest to take a look at https://redis.io/topics/latency-monitor.\n"
	doctorWell = "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest bit. I honestly " +
		"think you ought to sit down calmly, take a stress pill, and think things over.\n"
	doctorAdvice = "\nI have a few advices for you:\n\n- Check your Slow Log to understand what are the commands you are running which are " +
		"too slow to execute. Please check https://redis.io/commands/slowlog for more information.\n"
)

// All returns copies of all events, sorted by name.
func (l *LatencyEvents) All() (names []string, events []LatencyEvent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names = l.names()
	for _, name := range names {
		e := l.events[name]
		events = append(events, LatencyEvent{slices.Clone(e.Samples), e.Longest})
	}
	return names, events
}

// Reset removes the named events, or all if no name is given, and returns how many it removed.
func (l *LatencyEvents) Reset(names [][]byte) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.events)
	for _, name := range names {
		delete(l.events, string(name))
	}
	if len(names) == 0 {
		clear(l.events)
	}
	return before - len(l.events)
}

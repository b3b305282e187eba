package commands

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

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
		if l.events == nil {
			l.events = make(map[string]*event)
		}
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

// all is what is remembered of each event, by name.
func (l *spikes) all() (names []string, events []event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names = l.names()
	for _, name := range names {
		e := l.events[name]
		events = append(events, event{slices.Clone(e.samples), e.longest})
	}
	return names, events
}

// reset forgets events, or all if none is named, and returns how many they were.
func (l *spikes) reset(names [][]byte) int {
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

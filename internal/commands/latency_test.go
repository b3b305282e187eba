package commands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is remembered is bounded, and of a second only the longest.
func TestSpikesAreBounded(t *testing.T) {
	l := spikes{}
	l.add("command", 1, 1e9)
	require.Empty(t, l.events, "nobody has asked")
	l.threshold.Store(5)
	l.add("command", 1, 4_999_999)
	require.Empty(t, l.events)
	for second := range int64(500) {
		l.add("command", second, 5e6)
		l.add("command", second, 7e6)
		l.add("command", second, 6e6)
	}
	e := l.of([]byte("command"))
	require.Len(t, e.samples, maxSpikes)
	require.Equal(t, spike{499, 7}, e.samples[maxSpikes-1])
	require.Equal(t, spike{340, 7}, e.samples[0])
	require.Contains(t, l.report(), "1. command: 160 latency spikes (average 7ms, mean deviation 0ms, period 0.99 sec). Worst all time event 7ms.")
}

// A call of any size takes a bounded place in SLOWLOG and MONITOR, and what monitors do not read is bounded by what is pushed.
func TestWhatIsShownIsBounded(t *testing.T) {
	s := newStill(t)
	s.instance.logSlowerThan(0)
	watcher, other := s.dial(), s.dial()
	require.Equal(t, "+OK\r\n", watcher.say(t, "MONITOR"))
	words := []string{"EXISTS"}
	for i := range 5000 {
		words = append(words, fmt.Sprint(strings.Repeat("x", 2000), i))
	}
	require.NoError(t, other.Send(encode(words)))
	other.output()
	watcher.settle()
	line := watcher.output()
	require.Less(t, len(line), shownWords*(shownBytes+64))
	require.Contains(t, line, `(980 more bytes)`[5:])
	require.Contains(t, line, "more arguments)")
	kept := s.instance.slowlog.latest(1)[0]
	require.Len(t, kept.words, slowWords)
	require.LessOrEqual(t, len(kept.words[1]), slowBytes+32)

	for range 100 {
		other.say(t, "PING")
	}
	watcher.session.mail.mu.Lock()
	waiting := watcher.session.mail.bytes
	watcher.session.mail.mu.Unlock()
	require.Positive(t, waiting)
	watcher.session.Close()
	require.Zero(t, s.instance.concerns.Load()&monitored, "nobody looks any more")
}

package commands

import (
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

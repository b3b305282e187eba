package stats

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The number of samples is bounded, and of one second only the longest sample is kept.
func TestLatencySamplesAreBounded(t *testing.T) {
	l := LatencyEvents{}
	l.Add("command", 1, 1e9)
	require.Empty(t, l.events, "monitoring is off by default")
	l.Threshold.Store(5)
	l.Add("command", 1, 4_999_999)
	require.Empty(t, l.events)
	for second := range int64(500) {
		l.Add("command", second, 5e6)
		l.Add("command", second, 7e6)
		l.Add("command", second, 6e6)
	}
	e := l.Of([]byte("command"))
	require.Len(t, e.Samples, maxLatencySamples)
	require.Equal(t, LatencySample{499, 7}, e.Samples[maxLatencySamples-1])
	require.Equal(t, LatencySample{340, 7}, e.Samples[0])
	require.Contains(t, l.Report(),
		"1. command: 160 latency spikes (average 7ms, mean deviation 0ms, period 0.99 sec). Worst all time event 7ms.")
}

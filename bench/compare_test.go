//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/bench/report"
)

// cellserver and the script agree with all recorded replies; a limiter that answers wrongly does not.
func TestSmokeCompareAnswers(t *testing.T) {
	o := quick(t, "--root", "..")
	b := newTestBench(t, o)
	byKey, err := readRecorded(o.root)
	require.NoError(t, err)
	for _, r := range o.rivals() {
		row, err := r.replay(t.Context(), b, byKey)
		require.NoError(t, err, r.name)
		assert.Equal(t, 1052, row.Calls)
		assert.Greater(t, row.Decision, row.Calls*9/10, r.name)
		if r.name == report.Throttle {
			assert.Equal(t, report.Answers{Server: r.name, Calls: 1052, Decision: 1052, Remaining: 1052, Times: 1052}, row)
		}
	}
	wrong := o.rivals()[0]
	wrong.decide = func(d decision) []any {
		d.burst++
		return throttled("CL.THROTTLE")(d)
	}
	row, err := wrong.replay(t.Context(), b, byKey)
	require.NoError(t, err)
	assert.Less(t, row.Decision, row.Calls)
	assert.Zero(t, row.Remaining, "every limit is one too high")
}

func TestSmokeCompareCPU(t *testing.T) {
	o := quick(t)
	field := append([]contender{incr}, contendersOf(o.rivals())...)
	l := cpuLoad{pipeline: 4, connections: 3, keys: 100, limit: limitCompared}
	s, err := l.cpu(field)(t.Context(), newTestBench(t, o))
	require.NoError(t, err)
	require.Len(t, s.CPU, 4)
	assert.Equal(t, []string{report.Incr, report.Throttle, report.Lua, report.RedisRate},
		[]string{s.CPU[0].Server, s.CPU[1].Server, s.CPU[2].Server, s.CPU[3].Server})
}

func TestSmokeRestarts(t *testing.T) {
	o := quick(t)
	b := newTestBench(t, o)
	for _, r := range o.durableRivals() {
		kept, err := r.survives(t.Context(), b, t.TempDir(), (*process).stop)
		require.NoError(t, err, r.name)
		assert.Equal(t, r.name != report.Cellserver, kept, r.name)
		if r.name == report.Cellserver {
			kept, err = r.survives(t.Context(), b, t.TempDir(), (*process).kill)
			require.NoError(t, err)
			assert.False(t, kept)
		}
	}
}

// Replies are read in each limiter's order.
func TestAnswers(t *testing.T) {
	want := answer{limited: true, limit: 16, remaining: 1, retryAfter: 5, resetAfter: 30}
	d := decision{key: "a", burst: 15, count: 30, period: 60, quantity: 2}
	assert.Equal(t, want, asThrottle(d, []float64{1, 16, 1, 5, 30}))
	assert.Equal(t, want, asCrab(d, []float64{0, 16, 1, 30, 5}))
	assert.Equal(t, want, asRedisRate(d, numbers([]any{int64(0), int64(1), "5", "30"})))
	assert.Equal(t, -1.0, asCrab(d, []float64{1, 16, 1, 30, 0}).retryAfter)
	assert.False(t, asRedisRate(d, numbers([]any{int64(2), int64(1), "-1", "30"})).limited)
	assert.True(t, want.sameTimes(answer{retryAfter: 4.2, resetAfter: 29}))
	assert.False(t, want.sameTimes(answer{retryAfter: -1, resetAfter: 30}))
	assert.False(t, want.sameTimes(answer{retryAfter: 5, resetAfter: 28}))
	assert.Equal(t, []any{"THROTTLE", "a", 16, 30, 60, 2}, crabCall(d))
	assert.Equal(t, []any{"EVALSHA", "{sha}", 1, "rate:a", 16, 30, 60, 2}, scripted("rate:")(d))
	assert.Equal(t, []any{"EVALSHA", "{sha}", 1, "a", 15, 30, 60, 2}, scripted("")(d))
}

func TestParseRecorded(t *testing.T) {
	c, err := parseRecorded("k 15 30 60 2 = 1 16 1 5 30")
	require.NoError(t, err)
	assert.Equal(t, recordedCall{decision{"k", 15, 30, 60, 2}, answer{true, 16, 1, 5, 30}}, c)
	_, err = parseRecorded("k 15 30 60 = 1 16 1 5 30")
	assert.Error(t, err)
}

func TestScriptIsCaptured(t *testing.T) {
	assert.True(t, strings.Contains(scriptOfRedisRate(), "burst_offset"), "redis_rate has another script")
}

func TestOnlyRivalsThatThereAreTakePart(t *testing.T) {
	assert.Len(t, quick(t).rivals(), 3)
	o := quick(t, "--module", "redis_cell.so", "--throttlecrab", "throttlecrab-server")
	assert.Len(t, o.rivals(), 5)
	assert.Len(t, o.durableRivals(), 5)
}

package quota

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPeriods(t *testing.T) {
	for word, want := range map[string]time.Duration{
		"1ms": time.Millisecond, "1.5ms": 1500 * time.Microsecond, "250ms": 250 * time.Millisecond,
		"2.5s":   2500 * time.Millisecond,
		"0.001s": time.Millisecond, "1s": time.Second, "1000ms": time.Second, "5m": 5 * time.Minute, "0.5m": 30 * time.Second,
		"12h": 12 * time.Hour, "30d": 720 * time.Hour, "00.250s": 250 * time.Millisecond,
	} {
		p, ok := ParsePeriod([]byte(word))
		require.True(t, ok, word)
		n, ok := p.Nanoseconds(1e9)
		require.True(t, ok, word)
		require.Equal(t, want, time.Duration(n), word)
		require.Equal(t, want%time.Second == 0, p > 0, word)
		seconds, nanoseconds := p.Split()
		require.Equal(t, want, time.Duration(seconds)*time.Second+time.Duration(nanoseconds), word)
	}
	for _, word := range []string{
		"", "s", "ms", "1", "1S", "1 s", " 1s", "1s ", "-1s", "+1s", "1.s", ".5s", "1.2345s", "1..2s", "1.2.3s", "1e3s", "0s",
		"0.999ms", "1us", "1w", "99999999999999999999s", "9223372036854775807d", "18446744073709551s",
		"00000000000000000000000000000000s",
	} {
		_, ok := ParsePeriod([]byte(word))
		require.False(t, ok, word)
	}
}

func TestPeriodsInUnits(t *testing.T) {
	for word, want := range map[string][2]int64{ // in seconds, in milliseconds
		"1ms": {1, 1}, "1.001ms": {1, 2}, "999.5ms": {1, 1000}, "1s": {1, 1000}, "1000.001ms": {2, 1001},
		"1h": {3600, 3_600_000}, "106751d": {9_223_286_400, 9_223_286_400_000},
	} {
		p, ok := ParsePeriod([]byte(word))
		require.True(t, ok, word)
		require.Equal(t, want, [2]int64{p.In(time.Second), p.In(time.Millisecond)}, word)
	}
	for _, seconds := range []Period{math.MaxInt64, math.MaxInt64 / 1000} {
		require.Equal(t, int64(math.MaxInt64), seconds.In(time.Millisecond))
	}
	require.Equal(t, int64(0), Period(0).In(time.Second))
}

func TestLongPeriods(t *testing.T) {
	p, ok := ParsePeriod([]byte("11574.074d"))
	require.True(t, ok)
	_, ok = p.Nanoseconds(1e9)
	require.True(t, ok)
	for _, longer := range []Period{1e9 + 1, -1e15 - 1, 0} {
		_, ok := longer.Nanoseconds(1e9)
		require.False(t, ok, longer)
	}
	n, ok := Period(1e9).Nanoseconds(1e9)
	require.True(t, ok)
	require.Equal(t, int64(1e18), n)
}

package window

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
)

func TestNewLimit(t *testing.T) {
	l, err := NewLimit(5, 60)
	require.NoError(t, err)
	require.Equal(t, int64(5), l.Size())
	require.Equal(t, time.Minute, l.Period())
	for _, sound := range [][2]int64{{0, 1}, {math.MaxInt64, 1e9}} {
		_, err := NewLimit(sound[0], quota.Seconds(sound[1]))
		require.NoError(t, err, sound)
	}
	for _, c := range []struct {
		limit, period int64
		says          string
	}{
		{-1, 1, "limit must be between 0 and 9223372036854775807"},
		{-1, 0, "limit must be between 0 and 9223372036854775807"}, // the first wrong argument is named
		{0, 0, "period must be between 1 and 1000000000"},
		{0, 1e9 + 1, "period must be between 1 and 1000000000"},
		{0, math.MinInt64, "period must be between 1 and 1000000000"},
		{0, math.MaxInt64, "period must be between 1 and 1000000000"},
	} {
		l, err := NewLimit(c.limit, quota.Seconds(c.period))
		require.EqualError(t, err, c.says)
		require.Zero(t, l)
		var outside *quota.ArgumentError
		require.ErrorAs(t, err, &outside)
	}
}

func TestNewLogLimit(t *testing.T) {
	l, err := NewLogLimit(100, 60, 100)
	require.NoError(t, err)
	require.Equal(t, int64(100), l.Size())
	for _, c := range []struct {
		limit, period int64
		says          string
	}{
		{101, 60, "limit must be between 0 and 100 (max-log-limit); larger limits are for CL.SLIDING"},
		{math.MaxInt64, 0, "limit must be between 0 and 100 (max-log-limit); larger limits are for CL.SLIDING"},
		{-1, 60, "limit must be between 0 and 100 (max-log-limit); larger limits are for CL.SLIDING"},
		{100, 0, "period must be between 1 and 1000000000"},
	} {
		l, err := NewLogLimit(c.limit, quota.Seconds(c.period), 100)
		require.EqualError(t, err, c.says)
		require.Zero(t, l)
	}
	var tooLarge *LogLimitError
	_, err = NewLogLimit(101, 60, 100)
	require.ErrorAs(t, err, &tooLarge)
}

// At the last instant nothing can become free later.
func TestTimeEnds(t *testing.T) {
	l, err := NewLimit(1, maxPeriod)
	require.NoError(t, err)
	for _, now := range []int64{MaxInstant, math.MaxInt64} {
		d, fixed, err := l.StepFixed(now, Fixed{}, 1, quota.Take)
		require.NoError(t, err)
		require.Equal(t, Fixed{MaxInstant, 1, MaxInstant + l.period}, fixed)
		require.Equal(t, l.period, d.ResetAfter)
		d, weighed, err := l.StepSliding(now, Sliding{}, 1, quota.Take)
		require.NoError(t, err)
		require.Equal(t, Sliding{MaxInstant, 0, 1, MaxInstant + l.period, math.MaxInt64}, weighed)
		require.Equal(t, 2*l.period, d.ResetAfter)
		d, _, err = l.StepSliding(math.MaxInt64, weighed, 1, quota.Take)
		require.NoError(t, err)
		require.True(t, d.Limited)
	}
}

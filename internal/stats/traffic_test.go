package stats

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A rate is of the last sixteen samples, and what begins anew is no rate below 0.
func TestRate(t *testing.T) {
	var r rate
	now := int64(1e18)
	step := func(total int64) int64 {
		r.add(now, total)
		now += int64(100 * time.Millisecond)
		return r.perSecond()
	}
	require.Zero(t, step(1000), "what was before counts for nothing")
	require.Equal(t, int64(100/16*10), step(1100)/10*10)
	for i := range int64(16) {
		step(1100 + 10*(i+1))
	}
	require.Equal(t, int64(100), step(1270))
	require.Equal(t, int64(100*15/16), step(0))
	for range 16 {
		step(0)
	}
	require.Zero(t, step(0))
}

package stats

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A rate is the mean of the last 16 samples, and a counter that was reset does not make it
// negative.
func TestRate(t *testing.T) {
	var r rate
	now := int64(1e18)
	sample := func(total int64) int64 {
		r.add(now, total)
		now += int64(100 * time.Millisecond)
		return r.perSecond()
	}
	require.Zero(t, sample(1000), "the first sample only sets the start")
	require.Equal(t, int64(100/16*10), sample(1100)/10*10)
	for i := range int64(16) {
		sample(1100 + 10*(i+1))
	}
	require.Equal(t, int64(100), sample(1270))
	require.Equal(t, int64(100*15/16), sample(0))
	for range 16 {
		sample(0)
	}
	require.Zero(t, sample(0))
}

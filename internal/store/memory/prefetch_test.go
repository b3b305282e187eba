package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// A goroutine that reads a layout without the lock may be preempted for as long as it takes the
// index to be resized several times. What it then sees is outdated but valid memory. This test
// keeps layouts, as such a goroutine would, through resizes, sweeps and a flush.
func TestOldLayoutsAreReadable(t *testing.T) {
	clock := store.NewStillClock(1e18)
	m := New(Options{Clock: clock, SweepEvery: -1})
	v := m.View()
	keys := inOneShard(v, "key", 20_000)
	s := &m.createDatabase(0).shards[shardOf(v, keys[0])]
	var old []*layout
	look := func() {
		for _, n := range old {
			for i := range 500 {
				h := v.(*view).hash([]byte(keys[i]))
				require.NotNil(t, n.buckets.at(n.buckets.bucketOf(h.position)))
				n.prefetchRecords(&h)
			}
		}
	}
	for i, key := range keys {
		_, err := v.Throttle(background, []byte(key), sixteenAMinute, 1, quota.Take)
		require.NoError(t, err)
		if n := s.layout.Load(); n != nil && (len(old) == 0 || old[len(old)-1] != n) {
			old = append(old, n)
		}
		if i%1000 == 0 {
			look()
		}
	}
	require.Greater(t, len(old), 5)
	look()
	clock.Advance(time.Hour)
	for range 3 * slicesPerRound {
		m.Sweep()
	}
	look()
	for i := range 5000 {
		_, err := v.Throttle(background, fmt.Append(nil, "other", i), sixteenAMinute, 1, quota.Take)
		require.NoError(t, err)
	}
	require.NoError(t, v.Flush(background))
	look()
}

package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Whoever looks at a shard without its lock may be held up for as long as it takes the index to
// move on: what it then sees is out of date, never nothing. A layout is kept here through moves,
// sweeps and a flush, as such a caller has it.
func TestAnOldLayoutCanBeLookedAt(t *testing.T) {
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

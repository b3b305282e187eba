package store

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
)

// A shard fills whole cache lines: two cores that work on neighbours do not take a line from each other.
func TestShardsFillCacheLines(t *testing.T) {
	const line = 64
	over := unsafe.Sizeof(shard{}) % line
	require.Zero(t, over, "pad the shard by %d bytes", line-over)
}

// Keys that come and go leave no overflow buckets behind: the table is as it would be had only those that stay ever come.
func TestChurnLeavesNoOverflowBehind(t *testing.T) {
	m := NewMemory(Options{Clock: NewStillClock(1e18), SweepEvery: -1})
	v := m.View()
	const live = 50_000
	for i := range 20 * live {
		_, err := v.Throttle(background, fmt.Append(nil, "key:", i), sixteenAMinute, 1, quota.Take)
		require.NoError(t, err)
		if i >= live {
			v.Delete(background, [][]byte{fmt.Append(nil, "key:", i-live)})
		}
	}
	require.NoError(t, m.check())
	over, all := 0, 0
	for i := range m.database(0).shards {
		x := &m.database(0).shards[i].index
		over += x.overUsed
		all += x.current.count
	}
	require.Less(t, over, all/4, "%d overflow buckets for %d", over, all)
}

package memory

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
)

// The size of a shard is a multiple of the cache line, so that two cores working on neighbours do
// not share a line.
func TestShardsFillCacheLines(t *testing.T) {
	const line = 64
	over := unsafe.Sizeof(shard{}) % line
	require.Zero(t, over, "pad the shard by %d bytes", line-over)
}

// Keys that come and go leave no overflow buckets behind: check verifies that chains have only as
// many as their records need.
func TestChurnLeavesNoOverflowBehind(t *testing.T) {
	racetest.HasOneGoroutine(t)
	m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
	v := m.View()
	keys := inOneShard(v, "key", 560) // of 768 slots in its 64 buckets, so that several buckets overflow
	for _, key := range keys {
		_, err := v.Throttle(background, []byte(key), sixteenAMinute, 1, quota.Take)
		require.NoError(t, err)
	}
	x := &m.database(0).shards[shardOf(v, keys[0])].index
	require.NoError(t, m.check())
	require.Positive(t, x.overflowUsed)
	for i, key := range keys[:520] {
		v.Delete(background, [][]byte{[]byte(key)})
		require.NoError(t, m.check(), "after %d removed keys", i+1)
	}
	require.Zero(t, x.overflowUsed)
}

package memory

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/entry"
	"cellserver/internal/limit"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
)

// newLoad returns an empty store that is being loaded.
func newLoad(t *testing.T) (*Store, *Loader) {
	m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m, m.Load()
}

// A snapshot says how many keys follow. The index then has its final size from the beginning: no
// key is hashed again because the index grows.
func TestALoadGrowsNoIndex(t *testing.T) {
	racetest.HasOneGoroutine(t)
	t.Parallel()
	const keys, perChunk = 200_000, 100
	m, l := newLoad(t)
	chunk := entry.AppendSize(nil, 1, keys)
	for i := range keys {
		chunk = entry.AppendInteger(chunk, 1, fmt.Appendf(nil, "user:%d", i), store.Never, int64(i))
		if i%perChunk > 0 {
			continue
		}
		require.NoError(t, l.Apply(chunk))
		chunk = chunk[:0]
		for n := range shards {
			require.False(t, l.databases[1].shards[n].index.moving(), "after %d keys", i)
		}
	}
	require.NoError(t, l.Apply(entry.AppendDatabases(chunk, []uint64{1})))
	require.NoError(t, l.Done())
	require.NoError(t, m.check())
	require.Equal(t, keys, m.database(0).keys())
}

// A wrong number of keys costs no more than a few blocks for each shard, and is forgotten.
func TestAWrongNumberOfKeysCostsLittle(t *testing.T) {
	t.Parallel()
	m, l := newLoad(t)
	chunk := entry.AppendSize(nil, 1, math.MaxInt64)
	for i := range 10_000 {
		chunk = entry.AppendInteger(chunk, 1, fmt.Appendf(nil, "user:%d", i), store.Never, int64(i))
	}
	require.NoError(t, l.Apply(entry.AppendDatabases(chunk, []uint64{1})))
	require.NoError(t, l.Done())
	require.NoError(t, m.check())
	for n := range shards {
		x := &m.database(0).shards[n].index
		require.Len(t, x.current.blocks, maxLeap)
		require.Zero(t, x.expected)
	}
}

// Entries are applied shard by shard, and yet the last entry of a key counts: within a batch,
// across batches, and if databases take turns.
func TestTheLastEntryOfAKeyCounts(t *testing.T) {
	t.Parallel()
	m, l := newLoad(t)
	const keys, entries = 3 * batchEntries / 4, 3 * batchEntries
	var chunk []byte
	for i := range entries {
		key := fmt.Appendf(nil, "user:%d", i%keys)
		chunk = entry.AppendInteger(chunk, 1, key, store.Never, int64(i))
		if i%1000 == 0 {
			chunk = entry.AppendInteger(chunk, 2, key, store.Never, int64(-i))
		}
	}
	chunk = entry.AppendGone(chunk, 1, []byte("user:7"))
	require.NoError(t, l.Apply(entry.AppendDatabases(chunk, []uint64{1, 2})))
	require.NoError(t, l.Done())
	require.NoError(t, m.check())
	v := m.newView()
	for i := range keys {
		value, e, err := v.Read(context.Background(), fmt.Appendf(nil, "user:%d", i), nil)
		require.NoError(t, err)
		if i == 7 {
			require.Equal(t, limit.None, e.Kind)
			continue
		}
		require.Equal(t, fmt.Sprint(entries-keys+i), string(value))
	}
	v.Select(1)
	value, _, err := v.Read(context.Background(), []byte("user:3000"), nil)
	require.NoError(t, err)
	require.Equal(t, "-3000", string(value))
}

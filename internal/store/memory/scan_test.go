package memory

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
)

// The contract's scan visits 256 shards, and few are being resized when it does. Here all keys
// are in one shard, so that its index goes through many sizes, up and down, during one scan.
func TestScanOfOneShardThatGrowsAndShrinks(t *testing.T) {
	const staying, passing, step = 300, 6000, 500
	m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
	v := m.View()
	limit, err := gcra.NewLimit(0, 1, 1000)
	require.NoError(t, err)
	stay, pass := inOneShard(v, "stay", staying), inOneShard(v, "pass", passing)
	put := func(keys []string) {
		for _, key := range keys {
			_, err := v.Throttle(background, []byte(key), limit, 1, quota.Take)
			require.NoError(t, err)
		}
	}
	put(stay)
	there, step1, moved := 0, step, 0 // passing keys that exist
	shown := map[string]int{}
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		cursor, err = v.Scan(background, cursor, 30, func(key []byte, _ store.Entry) {
			if string(key[:4]) == "stay" {
				shown[string(key)]++
			}
		})
		require.NoError(t, err)
		if there+step1 < 0 || there+step1 > passing {
			step1 = -step1
		}
		if step1 > 0 {
			put(pass[there : there+step1])
		} else {
			for _, key := range pass[there+step1 : there] {
				_, err := v.Delete(background, [][]byte{[]byte(key)})
				require.NoError(t, err)
			}
		}
		there += step1
		if _, moving := m.indexBytes(0); moving > 0 {
			moved++
		}
	}
	require.NoError(t, m.check())
	require.Len(t, shown, staying)
	for key, times := range shown {
		require.Equal(t, 1, times, "%s", key)
	}
	require.Greater(t, moved, 5, "the scan must run during several resizes")
}

// During a resize a bucket may stand for only a part of its range. A scan in each such state visits
// every key once, and a sweep completes the resize if there are no more writes.
func TestScanDuringAResize(t *testing.T) {
	m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
	v, looked := m.View(), 0
	keys := inOneShard(v, "key", 3000)
	for i, key := range keys {
		_, err := v.Throttle(background, []byte(key), nanosecond, 1e9, quota.Force)
		require.NoError(t, err)
		_, moving := m.indexBytes(0)
		if moving == 0 || i%23 != 0 {
			continue
		}
		shown := map[string]int{}
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			cursor, _ = v.Scan(background, cursor, 1, func(key []byte, _ store.Entry) { shown[string(key)]++ })
		}
		require.Len(t, shown, i+1, "every key must be visited")
		for key, times := range shown {
			require.Equal(t, 1, times, "%s", key)
		}
		looked++
	}
	require.Greater(t, looked, 20)
}

func TestSweepCompletesAResize(t *testing.T) {
	m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
	v, moving := m.View(), 0
	for _, key := range inOneShard(v, "key", 1000) {
		v.Throttle(background, []byte(key), nanosecond, 1e9, quota.Force)
		if _, moving = m.indexBytes(0); moving > 0 {
			break
		}
	}
	require.Equal(t, 1, moving)
	for range 100 {
		require.Zero(t, m.Sweep())
	}
	_, moving = m.indexBytes(0)
	require.Zero(t, moving)
	require.NoError(t, m.check())
}

// If there are few keys, each is drawn with the same probability, wherever it is.
func TestRandomOfFew(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for trial := range 50 {
		v := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1}).View()
		drawn := map[string]int{}
		for _, key := range []string{"foo", "bar", "baz"} {
			require.NoError(t, v.Write(background, []byte(key), store.Value{IsInteger: true}, store.Never))
		}
		for range 300 {
			key, ok, err := v.Random(background, nil)
			require.NoError(t, err)
			require.True(t, ok)
			drawn[string(key)]++
		}
		for key, times := range drawn {
			require.InDelta(t, 100, times, 70, "trial %d: %s", trial, key) // 8 standard deviations
		}
		require.Len(t, drawn, 3)
	}
}

// A few keys, or none, are found by one call with SCAN's default count, although they are
// distributed over all shards.
func TestScanOfFewKeysIsOneCall(t *testing.T) {
	m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
	v := m.View()
	for keys := range 11 {
		seen := 0
		cursor, err := v.Scan(background, 0, 10, func([]byte, store.Entry) { seen++ })
		require.NoError(t, err)
		require.Equal(t, keys, seen)
		if keys < 10 {
			require.Zero(t, cursor, "%d keys", keys)
		}
		require.NoError(t, v.Write(background, strconv.AppendInt(nil, int64(keys), 10), store.Value{IsInteger: true},
			store.Never))
	}
	for keys := range 11 {
		_, err := v.Delete(background, [][]byte{strconv.AppendInt(nil, int64(keys), 10)})
		require.NoError(t, err)
	}
	cursor, err := v.Scan(background, 0, 10, func([]byte, store.Entry) { t.Fail() })
	require.NoError(t, err)
	require.Zero(t, cursor, "an empty database")
}

package memory

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Recording a use changes nothing else in the record, and the number of seconds wraps around
// without harm.
func TestIdleOfARecord(t *testing.T) {
	for _, mark := range []byte{0, 1} {
		for _, now := range []int64{0, 1 << usedShift, 1e18, math.MaxInt64 - 1<<40} {
			r := record{atKind: byte(limit.Bytes), atKind + 1: mark, atLength: 3, 20: 0}
			r.touch(now)
			require.Equal(t, limit.Bytes, r.kind())
			require.Equal(t, mark, r[atKind+1]&1)
			require.Equal(t, byte(3), r[atLength])
			require.Zero(t, r.idle(now))
			require.Equal(t, 5*time.Duration(1<<usedShift), r.idle(now+5<<usedShift))
			require.Equal(t, time.Duration(1<<usedBits-1)<<usedShift, r.idle(now+(1<<usedBits-1)<<usedShift))
			require.Zero(t, r.idle(now+1<<usedBits<<usedShift), "after 104 days the number wraps around")
		}
	}
}

// An expired key is counted once, whatever finds it: the sweep, a call that uses the key again, or
// a Delete.
func TestExpiredIsCounted(t *testing.T) {
	clock := store.NewStillClock(1e18)
	m := New(Options{Clock: clock, SweepEvery: -1})
	v := m.View()
	expired := func() int64 { return m.Usage()[0].Expired }
	second := store.Value{Bytes: []byte("x")}
	for _, key := range []string{"swept", "taken", "set", "deleted", "added"} {
		require.NoError(t, v.Write(background, []byte(key), second, v.Now()+1e9))
	}
	_, err := v.Throttle(background, []byte("throttle"), sixteenAMinute, 1, quota.Take)
	require.NoError(t, err)
	clock.Advance(time.Minute)
	v.Begin()
	require.Zero(t, expired())
	_, err = v.Throttle(background, []byte("taken"), sixteenAMinute, 1, quota.Take)
	require.NoError(t, err)
	_, err = v.Throttle(background, []byte("throttle"), sixteenAMinute, 1, quota.Take)
	require.NoError(t, err)
	require.NoError(t, v.Write(background, []byte("set"), second, store.Never))
	_, err = v.Add(background, []byte("added"), 1)
	require.NoError(t, err)
	_, err = v.Delete(background, [][]byte{[]byte("deleted")})
	require.NoError(t, err)
	require.Equal(t, int64(5), expired())
	for range slicesPerRound + 1 {
		m.Sweep()
	}
	require.Equal(t, int64(6), expired())
	require.NoError(t, v.Flush(background))
	require.Equal(t, int64(6), expired(), "flushed keys have not expired")
}

// OffHeapBytes counts the blocks that are in use, and only those.
func TestOffHeapBytes(t *testing.T) {
	m := New(Options{Clock: store.NewStillClock(1e18), SweepEvery: -1})
	v := m.View()
	require.Zero(t, m.OffHeapBytes())
	outside := func() int64 { return m.OffHeapBytes() + m.pool.heap }
	for _, key := range inOneShard(v, "key", 1000) {
		require.NoError(t, v.Write(background, []byte(key), store.Value{Bytes: make([]byte, 100)}, store.Never))
	}
	require.InDelta(t, 1000*130, outside(), 40_000)
	require.NoError(t, v.Flush(background))
	m.Sweep()
	require.Zero(t, outside())
}

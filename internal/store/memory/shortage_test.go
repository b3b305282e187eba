package memory

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/racetest"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// crammed is a store with at most two pages per shard, and a limit with which they were filled. All
// keys are of one size.
type crammed struct {
	*testing.T
	clock  *store.StillClock
	memory *Store
	view   store.View
	rule   limit.Rule
	keys   []string // keys that exist
}

func newCrammed(t *testing.T) *crammed {
	clock := store.NewStillClock(1_800_000_000_000_000_000)
	m := New(Options{Clock: clock, SweepEvery: -1, MaxPages: 2})
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	l, err := gcra.NewLimit(4, 5, 60)
	require.NoError(t, err)
	c := &crammed{T: t, clock: clock, memory: m, view: m.View(), rule: limit.Rule{Kind: limit.Throttle, Throttle: l}}
	for i := 0; i < 256*3*pageBytes/32; i++ {
		key := fmt.Sprintf("key %08d", i)
		switch err := c.take(key, 1, quota.Take); err {
		case nil:
			c.keys = append(c.keys, key)
		default:
			require.ErrorIs(t, err, store.ErrFull)
		}
	}
	for i := range m.database(0).shards {
		require.False(t, m.database(0).shards[i].pages.canAdd(1))
	}
	return c
}

func (c *crammed) take(key string, quantity int64, mode quota.Mode) error {
	_, err := c.view.Take(background, []byte(key), &c.rule, quantity, mode)
	return err
}

func (c *crammed) limitRequests(keys ...string) (requests []store.LimitRequest) {
	for _, key := range keys {
		requests = append(requests, store.LimitRequest{Key: []byte(key), Rule: c.rule, Quantity: 1})
	}
	return requests
}

// If a shard has no page left, TakeAll works on the keys that exist, as single calls do, and
// reports that there is no memory for the others.
func TestTakeAllInFullShards(t *testing.T) {
	c := newCrammed(t)
	_, allowed, err := c.view.TakeAll(background, c.limitRequests(c.keys[0], c.keys[1], c.keys[len(c.keys)-1]), quota.Take)
	require.NoError(t, err)
	require.True(t, allowed)
	require.ErrorIs(t, c.take("new key 000000000", 1, quota.Take), store.ErrFull)
	d, allowed, err := c.view.TakeAll(background, c.limitRequests(c.keys[0], "new key 000000000", c.keys[1]), quota.Take)
	require.ErrorIs(t, err, store.ErrFull)
	require.False(t, allowed)
	require.Len(t, d, 3)
	for i, limited := range []bool{false, true, false} {
		require.Equal(t, limited, d[i].Limited, i)
	}
	require.Equal(t, int64(3), d[0].Remaining, "one taken when it was created, and one here")
}

// If a shard has no page left, expired keys keep their slots, whatever calls access them, and
// whatever other keys are written meanwhile.
func TestExpiredKeysKeepTheirSlots(t *testing.T) {
	racetest.HasOneGoroutine(t)
	for _, all := range []bool{false, true} {
		c := newCrammed(t)
		c.clock.Advance(time.Hour)
		c.view.Begin()
		for _, key := range c.keys {
			require.NoError(t, c.take(key, 1, quota.Peek))
			e, err := c.view.Lookup(background, []byte(key))
			require.NoError(t, err)
			require.Equal(t, limit.None, e.Kind)
			_, _, err = c.view.TakeAll(background, c.limitRequests(key), quota.Peek)
			require.NoError(t, err)
		}
		require.ErrorIs(t, c.take("new key 000000000", 1, quota.Take), store.ErrFull)
		for _, key := range c.keys {
			var err error
			if all {
				_, _, err = c.view.TakeAll(background, c.limitRequests(key), quota.Take)
			} else {
				err = c.take(key, 1, quota.Take)
			}
			require.NoError(t, err)
		}
		require.Equal(t, len(c.keys), c.memory.Usage()[0].Keys)
	}
}

// An expired key is in the same shard as a key that the same call removes. The call must look it up again: its
// slot was kept while memory was short, and the removal ends the shortage.
func TestTakeAllFindsKeysOfAShardAgain(t *testing.T) {
	clock := store.NewStillClock(1_800_000_000_000_000_000)
	m := New(Options{Clock: clock, SweepEvery: -1, MaxPages: pagesPerStep + 2})
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	v, long, brief := m.View(), plainRule(limit.Throttle, 9, 1_000_000), plainRule(limit.Throttle, 9, 1)
	keys := inOneShard(v, "key", 1000)
	s := &m.createDatabase(0).shards[shardOf(v, keys[0])]
	for i, key := range keys {
		_, err := v.Take(background, []byte(key), []*limit.Rule{brief, long}[min(i, 1)], 1, quota.Take)
		if require.NoError(t, err); s.lowOnMemory() {
			keys = keys[:i+1] // the last is alone in its page
			break
		}
	}
	clock.Advance(time.Hour)
	v.Begin()
	_, allowed, err := v.TakeAll(background, []store.LimitRequest{
		{Key: []byte(keys[len(keys)-1]), Rule: *long, Quantity: -1}, {Key: []byte(keys[0]), Rule: *brief, Quantity: 1},
	}, quota.Take)
	require.NoError(t, err)
	require.True(t, allowed)
	require.False(t, s.lowOnMemory())
	require.Equal(t, len(keys)-1, m.Usage()[0].Keys)
	require.NoError(t, m.check())
}

// A slot that is too small for the next content of its key is freed.
func TestExpiredSlotTooSmall(t *testing.T) {
	c := newCrammed(t)
	c.clock.Advance(time.Hour)
	c.view.Begin()
	c.memory.Sweep()
	for range 50 {
		c.memory.Sweep()
	}
	require.NoError(t, c.take("key", 1, quota.Take))
	c.clock.Advance(time.Hour)
	c.view.Begin()
	require.NoError(t, c.view.Write(background, []byte("key"), store.Value{Bytes: make([]byte, 500)}, store.Never))
	require.Equal(t, 1, c.memory.Usage()[0].Keys)
	require.Equal(t, 1, c.memory.Usage()[0].NoExpiry)
}

// The entries of a log with a long key are in a slab: without growth, the record of an expired key
// cannot hold them, however large it is. Then no limiter takes anything.
func TestAllOrNothingWhileMemoryIsShort(t *testing.T) {
	clock := store.NewStillClock(1_800_000_000_000_000_000)
	m := New(Options{Clock: clock, SweepEvery: -1})
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	v, ctx, long := m.View(), t.Context(), []byte(strings.Repeat("k", 1000))
	require.NoError(t, v.Write(ctx, long, store.Value{Bytes: make([]byte, 3000)}, clock.Now()+1))
	fixed, log := limit.Rule{Kind: limit.Fixed}, limit.Rule{Kind: limit.SlidingLog}
	var err error
	fixed.Window, err = window.NewLimit(10, 100)
	require.NoError(t, err)
	log.Log, err = window.NewLogLimit(10, 100, 1000)
	require.NoError(t, err)
	_, err = v.Take(ctx, []byte("a"), &fixed, 1, quota.Take)
	require.NoError(t, err)
	clock.Advance(time.Second)
	v.Begin()
	requests := []store.LimitRequest{{Key: []byte("a"), Rule: fixed, Quantity: 1}, {Key: long, Rule: log, Quantity: 1}}
	decisions, allowed, err := v.WithoutGrowth().TakeAll(ctx, requests, quota.Take)
	require.ErrorIs(t, err, store.ErrFull)
	require.False(t, allowed)
	limited := []bool{decisions[0].Limited, decisions[1].Limited}
	require.Equal(t, []bool{false, true}, limited, "only the log must need memory")
	d, err := v.Take(ctx, []byte("a"), &fixed, 0, quota.Peek)
	require.NoError(t, err)
	require.Equal(t, int64(9), d.Remaining)
}

// If two keys of a settlement are in one shard, which has one page number left, no key is charged: a client that got
// an error settles again. What needs no memory is corrected without a page number.
func TestSettlementsWithoutPageNumbers(t *testing.T) {
	r, rule := newHoldRig(t, Options{Databases: 1, MaxPages: 2}), heldRules[1]
	keyOf := func(bytes int) string { return inOneShard(r.view, strings.Repeat("k", bytes), 1)[0] }
	short, medium, long := keyOf(10), keyOf(100), keyOf(200)
	request := func(key string) store.LimitRequest {
		return store.LimitRequest{Key: []byte(key), Rule: rule, Quantity: 3}
	}
	require.EqualValues(t, 5, r.hold(medium, "id", rule, 5, time.Hour)) // takes a page; each other key needs one, too
	r.view.Begin()
	_, err := r.view.Settle(background, &store.Settlement{Key: []byte(short), ID: []byte("unknown"), Quantity: 3,
		Force: true, Remember: time.Minute, Requests: []store.LimitRequest{request(short), request(long)}})
	require.ErrorIs(t, err, store.ErrFull)
	require.Equal(t, []int64{20, 20}, []int64{r.remaining(short, rule), r.remaining(long, rule)})

	require.EqualValues(t, 1, r.take(short, rule, 1, quota.Take))
	require.False(t, r.store.database(0).shards[0].pages.canAdd(1))
	d, err := r.settle(medium, "id", rule, 2)
	require.NoError(t, err)
	require.EqualValues(t, -3, d.Taken)
	require.EqualValues(t, 1, r.hold(medium, "more", rule, 1, time.Hour))
	d, err = r.settle(medium, "more", rule, 4)
	require.NoError(t, err)
	require.EqualValues(t, 3, d.Taken)
}

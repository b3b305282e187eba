package storetest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var noGrowthCases = []testCase{
	{"tight", "while memory is short a limiter decides about every key that is there, and answers whatever takes nothing; only what " +
		"adds a key is ErrFull, and changes nothing", tightLimiters},
	{"tight and growing", "while memory is short a key that would have to grow is ErrFull, and stays as it is",
		tightGrowing},
	{"tight and expired", "while memory is short a key that has expired keeps its place until it is swept, whatever is asked of it: " +
		"the next call that takes something uses it again", tightExpired},
	{"tight for all", "while memory is short TakeAll is ErrFull if one of its keys needs some, says which, and takes nothing", tightForAll},
}

// tight is the same caller while memory is short.
func (c *caller) tight() *caller { return &caller{c.T, c.view.WithoutGrowth()} }

// full is a call that there is no room for.
func (c *caller) full(rule store.Rule, key string, quantity int64, mode quota.Mode) {
	c.Helper()
	_, err := c.view.Take(ctx, []byte(key), &rule, quantity, mode)
	require.ErrorIs(c, err, store.ErrFull, "%s: quantity %d, mode %d", key, quantity, mode)
}

func tightLimiters(r *rig) {
	tight := r.tight()
	for _, kind := range limiters {
		five, key, unused := rule(kind, 5, 60), fmt.Sprint(kind), fmt.Sprint(kind, " unused")
		r.takeBy(five, key, 2, quota.Take)
		h := r.listen()
		require.Equal(r, int64(2), tight.takeBy(five, key, 1, quota.Take).Remaining)
		require.Equal(r, int64(2), tight.takeBy(five, key, 0, quota.Take).Remaining)
		require.True(r, tight.takeBy(five, key, 3, quota.Take).Limited)
		require.Equal(r, int64(0), tight.takeBy(five, key, 3, quota.UpTo).Remaining)
		require.True(r, tight.takeBy(five, key, 1, quota.Force).Limited)
		require.Equal(r, int64(1), tight.takeBy(five, key, -2, quota.Take).Remaining)
		require.Len(r, h.events(), 4)

		for _, mode := range []quota.Mode{quota.Take, quota.UpTo, quota.Force} {
			tight.full(five, unused, 1, mode)
		}
		for _, quantity := range []int64{0, -1, math.MinInt64, 6} {
			require.Equal(r, int64(5), tight.takeBy(five, unused, quantity, quota.Take).Remaining)
		}
		require.Equal(r, int64(4), tight.takeBy(five, unused, 1, quota.Peek).Remaining)
		require.Empty(r, h.events())
		require.Empty(r, r.traces(kind, unused))

		tight.takeBy(five, key, math.MinInt64, quota.Take)
		tight.full(five, key, 1, quota.Take)
		require.Equal(r, int64(4), r.takeBy(five, key, 1, quota.Take).Remaining, "of a view that is not tight it is taken")
	}
	_, err := tight.view.Throttle(ctx, []byte("unused"), limit(4, 1, 1), 1, quota.Take)
	require.ErrorIs(r, err, store.ErrFull)
	_, err = tight.view.Acquire(ctx, []byte("leases"), request(5, 60, "me", 1), maxHolders)
	require.ErrorIs(r, err, store.ErrFull)
	r.acquire("leases", request(5, 60, "me", 1))
	require.False(r, tight.acquire("leases", request(5, 60, "me", 2)).Limited, "a holder that is there asks again")
	require.Equal(r, int64(3), tight.acquire("leases", request(5, 60, "you", 0)).Remaining)
}

// tightGrowing makes a log and leases longer until there is no more room for them.
func tightGrowing(r *rig) {
	tight, log := r.tight(), rule(store.SlidingLog, maxLog, 60)
	take := func() error {
		_, err := tight.view.Take(ctx, []byte("log"), &log, 1, quota.Take)
		return err
	}
	r.growing("log", func(int) error { r.takeBy(log, "log", 1, quota.Take); return nil },
		func(int) error { return take() })
	require.ErrorIs(r, take(), store.ErrFull)
	require.Equal(r, int64(maxLog), tight.takeBy(log, "log", math.MinInt64, quota.Take).Remaining)

	acquire := func(v store.View) func(i int) error {
		return func(i int) error {
			_, err := v.Acquire(ctx, []byte("leases"), request(maxHolders, 60, fmt.Sprint("holder", i), 1), maxHolders)
			return err
		}
	}
	r.growing("leases", acquire(r.view), acquire(tight.view))
	for i := range 100 { // a holder that asks again keeps its lease, though another was refused before it
		_ = acquire(tight.view)(maxLog + i)
		require.NoError(r, acquire(tight.view)(1))
		require.True(r, slices.ContainsFunc(tight.holders("leases"),
			func(l lease.Lease) bool { return l.Holder == "holder1" }))
	}
	require.Equal(r, int64(1), tight.release("leases", "holder0"))
}

// growing takes steps on a key: some that may take memory, to get to every size, after each as many
// as fit without.
func (r *rig) growing(key string, grow, fit func(i int) error) {
	for i := 0; i < maxLog/2; {
		require.NoError(r, grow(i))
		i++
		for fitted := 0; ; fitted++ {
			r.clock.Advance(time.Millisecond)
			r.view.Begin()
			before := r.state(key)
			h := r.listen()
			if err := fit(i); err != nil {
				require.ErrorIs(r, err, store.ErrFull)
				require.Equal(r, before, r.state(key))
				require.Empty(r, h.events())
				break
			}
			i++
			require.Less(r, fitted, maxLog/10, "%s grows without memory", key)
		}
	}
}

// tightExpired has every key expire, asks about it in each way, and takes again. A store that
// sweeps by itself may have come by in between: then that is tried again.
func tightExpired(r *rig) {
	for i, kind := range append(slices.Clone(limiters), store.Lease) {
		for _, all := range []bool{false, true} {
			key, taken := fmt.Sprint(i, all), false
			for range 100 {
				if taken = r.takeExpired(kind, key, all); taken {
					break
				}
			}
			require.True(r, taken, "%s, by TakeAll: %t", kind, all)
		}
	}
}

// takeExpired says whether a key that has expired was there to be taken from; and checks that only
// then anything was changed.
func (r *rig) takeExpired(kind store.Kind, key string, all bool) bool {
	five, me := rule(kind, 5, 60), request(5, 60, "me", 1)
	if kind == store.Lease {
		r.acquire(key, me)
	} else {
		r.takeBy(five, key, 1, quota.Take)
	}
	r.clock.Advance(10 * time.Minute)
	r.view.Begin()
	tight := r.tight()
	var err error
	h := r.listen()
	if kind == store.Lease {
		require.False(r, tight.acquire(key, request(5, 60, "you", 0)).Limited)
		require.True(r, tight.acquire(key, request(5, 60, "you", 6)).Limited)
		_, err = tight.view.Acquire(ctx, []byte(key), me, maxHolders)
	} else {
		requests := []store.LimitRequest{{Key: []byte(key), Rule: five, Quantity: 1}}
		require.Equal(r, int64(4), tight.takeBy(five, key, 1, quota.Peek).Remaining)
		require.Equal(r, int64(5), tight.takeBy(five, key, 0, quota.Take).Remaining)
		require.True(r, tight.takeBy(five, key, 6, quota.Take).Limited)
		_, allowed := tight.takeAll(true, requests...)
		require.True(r, allowed)
		if all {
			_, _, err = tight.view.TakeAll(ctx, requests, false)
		} else {
			_, err = tight.view.Take(ctx, []byte(key), &five, 1, quota.Take)
		}
	}
	if err != nil {
		require.ErrorIs(r, err, store.ErrFull)
		return false
	}
	require.Equal(r, []notification{{0, key, store.Expired}, {0, key, store.Changed}}, h.events())
	require.Equal(r, 1, r.remove(key))
	return true
}

func tightForAll(r *rig) {
	tight := r.tight()
	for n, needs := range map[int]int{1: 0, 2: 1, 3: 0, 9: 4} {
		requests := manyRequests(n, fmt.Sprint(n, " "))
		for i, t := range requests {
			if i != needs {
				r.takeBy(t.Rule, string(t.Key), 1, quota.Take)
			}
		}
		before, want, h := r.stateOf(requests), r.expectedUntaken(requests...), r.listen()
		d, allowed, err := tight.view.TakeAll(ctx, requests, false)
		require.ErrorIs(r, err, store.ErrFull)
		require.False(r, allowed)
		for i := range requests {
			require.Equal(r, i == needs, d[i].Limited, "%d of %d", i, n)
			if i != needs {
				require.Equal(r, want[i], d[i], "%d of %d", i, n)
			}
		}
		_, allowed = tight.takeAll(true, requests...)
		require.True(r, allowed, "PEEK is answered")
		require.Equal(r, before, r.stateOf(requests))
		require.Empty(r, h.events())

		t := &requests[needs]
		quantity := t.Quantity
		t.Quantity = 1000
		_, allowed = tight.takeAll(false, requests...)
		require.False(r, allowed, "what is limited needs nothing")
		t.Quantity = quantity
		r.takeBy(t.Rule, string(t.Key), 1, quota.Take)
		_, allowed = tight.takeAll(false, requests...)
		require.True(r, allowed, "all of them are there")
	}
}

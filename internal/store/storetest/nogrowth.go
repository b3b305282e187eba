package storetest

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var noGrowthCases = []testCase{
	{"no growth", "without growth a limiter works on every key that exists, and makes decisions that take nothing; " +
		"only what adds a key returns ErrFull, and changes nothing", noGrowthLimiters},
	{"no growth of a key", "without growth a call on a key that would have to grow returns ErrFull and changes nothing",
		noGrowthGrowing},
	{"no growth and expiry", "without growth an expired key keeps its memory until it is swept, whatever calls access it: " +
		"the next call that takes something uses that again", noGrowthOnExpired},
	{"no growth for all", "without growth TakeAll returns ErrFull if any of its keys needs memory, says which, and takes nothing", noGrowthForAll},
}

// withoutGrowth returns a caller with the view without growth.
func (c *caller) withoutGrowth() *caller { return &caller{c.T, c.view.WithoutGrowth()} }

// requireFull makes a call that must return ErrFull.
func (c *caller) requireFull(rule limit.Rule, key string, quantity int64, mode quota.Mode) {
	c.Helper()
	_, err := c.view.Take(ctx, []byte(key), &rule, quantity, mode)
	require.ErrorIs(c, err, store.ErrFull, "%s: quantity %d, mode %d", key, quantity, mode)
}

func noGrowthLimiters(r *rig) {
	noGrowth := r.withoutGrowth()
	for _, kind := range limiters {
		five, key, unused := rule(kind, 5, 60), fmt.Sprint(kind), fmt.Sprint(kind, " unused")
		r.takeBy(five, key, 2, quota.Take)
		h := r.listen()
		require.Equal(r, int64(2), noGrowth.takeBy(five, key, 1, quota.Take).Remaining)
		require.Equal(r, int64(2), noGrowth.takeBy(five, key, 0, quota.Take).Remaining)
		require.True(r, noGrowth.takeBy(five, key, 3, quota.Take).Limited)
		require.Equal(r, int64(0), noGrowth.takeBy(five, key, 3, quota.UpTo).Remaining)
		require.True(r, noGrowth.takeBy(five, key, 1, quota.Force).Limited)
		require.Equal(r, int64(1), noGrowth.takeBy(five, key, -2, quota.Take).Remaining)
		require.Len(r, h.events(), 4)

		for _, mode := range []quota.Mode{quota.Take, quota.UpTo, quota.Force} {
			noGrowth.requireFull(five, unused, 1, mode)
		}
		for _, quantity := range []int64{0, -1, math.MinInt64, 6} {
			require.Equal(r, int64(5), noGrowth.takeBy(five, unused, quantity, quota.Take).Remaining)
		}
		require.Equal(r, int64(4), noGrowth.takeBy(five, unused, 1, quota.Peek).Remaining)
		require.Empty(r, h.events())
		require.Empty(r, r.traces(kind, unused))

		noGrowth.takeBy(five, key, math.MinInt64, quota.Take)
		noGrowth.requireFull(five, key, 1, quota.Take)
		require.Equal(r, int64(4), r.takeBy(five, key, 1, quota.Take).Remaining, "an ordinary view adds the key")
	}
	_, err := noGrowth.view.Throttle(ctx, []byte("unused"), throttleLimit(4, 1, 1), 1, quota.Take)
	require.ErrorIs(r, err, store.ErrFull)
	_, err = noGrowth.view.Acquire(ctx, []byte("leases"), request(5, 60, "me", 1), maxHolders)
	require.ErrorIs(r, err, store.ErrFull)
	r.acquire("leases", request(5, 60, "me", 1))
	require.False(r, noGrowth.acquire("leases", request(5, 60, "me", 2)).Limited, "a holder acquires again")
	require.Equal(r, int64(3), noGrowth.acquire("leases", request(5, 60, "you", 0)).Remaining)
}

// noGrowthGrowing lets a log and leases grow until they need memory.
func noGrowthGrowing(r *rig) {
	noGrowth, log := r.withoutGrowth(), rule(limit.SlidingLog, maxLog, 60)
	take := func() error {
		_, err := noGrowth.view.Take(ctx, []byte("log"), &log, 1, quota.Take)
		return err
	}
	r.growing("log", func(int) error { r.takeBy(log, "log", 1, quota.Take); return nil },
		func(int) error { return take() })
	require.ErrorIs(r, take(), store.ErrFull)
	require.Equal(r, int64(maxLog), noGrowth.takeBy(log, "log", math.MinInt64, quota.Take).Remaining)

	acquire := func(v store.View) func(i int) error {
		return func(i int) error {
			_, err := v.Acquire(ctx, []byte("leases"), request(maxHolders, 60, fmt.Sprint("holder", i), 1), maxHolders)
			return err
		}
	}
	r.growing("leases", acquire(r.view), acquire(noGrowth.view))
	for i := range 100 { // a holder keeps its lease, though another holder was refused before
		_ = acquire(noGrowth.view)(maxLog + i)
		require.NoError(r, acquire(noGrowth.view)(1))
		require.True(r, slices.ContainsFunc(noGrowth.holders("leases"),
			func(l lease.Lease) bool { return l.Holder == "holder1" }))
	}
	require.Equal(r, int64(1), noGrowth.release("leases", "holder0"))
}

// growing lets the state of a key grow: it calls grow, which may allocate, and after each call fit,
// which may not, until fit returns ErrFull. So all sizes occur.
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
			require.Less(r, fitted, maxLog/10, "%s grows without end", key)
		}
	}
}

// noGrowthOnExpired lets keys expire, accesses them in all ways, and takes again. A store that
// sweeps on its own may remove a key in between; then the attempt is repeated.
func noGrowthOnExpired(r *rig) {
	for i, kind := range append(slices.Clone(limiters), limit.Lease) {
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

// takeExpired reports whether a key that has expired could be taken from, and checks that nothing
// changed otherwise.
func (r *rig) takeExpired(kind limit.Kind, key string, all bool) bool {
	five, me := rule(kind, 5, 60), request(5, 60, "me", 1)
	if kind == limit.Lease {
		r.acquire(key, me)
	} else {
		r.takeBy(five, key, 1, quota.Take)
	}
	r.clock.Advance(10 * time.Minute)
	r.view.Begin()
	noGrowth := r.withoutGrowth()
	var err error
	h := r.listen()
	if kind == limit.Lease {
		require.False(r, noGrowth.acquire(key, request(5, 60, "you", 0)).Limited)
		require.True(r, noGrowth.acquire(key, request(5, 60, "you", 6)).Limited)
		_, err = noGrowth.view.Acquire(ctx, []byte(key), me, maxHolders)
	} else {
		requests := []store.LimitRequest{{Key: []byte(key), Rule: five, Quantity: 1}}
		require.Equal(r, int64(4), noGrowth.takeBy(five, key, 1, quota.Peek).Remaining)
		require.Equal(r, int64(5), noGrowth.takeBy(five, key, 0, quota.Take).Remaining)
		require.True(r, noGrowth.takeBy(five, key, 6, quota.Take).Limited)
		_, allowed := noGrowth.takeAll(quota.Peek, requests...)
		require.True(r, allowed)
		if all {
			_, _, err = noGrowth.view.TakeAll(ctx, requests, quota.Take)
		} else {
			_, err = noGrowth.view.Take(ctx, []byte(key), &five, 1, quota.Take)
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

func noGrowthForAll(r *rig) {
	noGrowth := r.withoutGrowth()
	for n, needs := range map[int]int{1: 0, 2: 1, 3: 0, 9: 4} {
		requests := manyRequests(n, fmt.Sprint(n, " "))
		for i, t := range requests {
			if i != needs {
				r.takeBy(t.Rule, string(t.Key), 1, quota.Take)
			}
		}
		before, want, h := r.stateOf(requests), r.expectedUntaken(requests...), r.listen()
		d, allowed, err := noGrowth.view.TakeAll(ctx, requests, quota.Take)
		require.ErrorIs(r, err, store.ErrFull)
		require.False(r, allowed)
		for i := range requests {
			require.Equal(r, i == needs, d[i].Limited, "%d of %d", i, n)
			if i != needs {
				require.Equal(r, want[i], d[i], "%d of %d", i, n)
			}
		}
		_, allowed = noGrowth.takeAll(quota.Peek, requests...)
		require.True(r, allowed, "a peek needs no memory")
		require.Equal(r, before, r.stateOf(requests))
		require.Empty(r, h.events())

		t := &requests[needs]
		quantity := t.Quantity
		t.Quantity = 1000
		_, allowed = noGrowth.takeAll(quota.Take, requests...)
		require.False(r, allowed, "a limited call needs no memory")
		t.Quantity = quantity
		r.takeBy(t.Rule, string(t.Key), 1, quota.Take)
		_, allowed = noGrowth.takeAll(quota.Take, requests...)
		require.True(r, allowed, "all keys exist")
	}
}

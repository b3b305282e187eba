package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	gosync "sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var allCases = []testCase{
	{"all", "TakeAll takes from every key, and returns the decision of each limiter", all},
	{"all or nothing", "if one limiter refuses, TakeAll takes nothing, and each decision says whether it would have been refused alone", allOrNothing},
	{"all untaken", "if one limiter refuses, the decision for every key says what remains and when it resets as it is",
		allUntaken},
	{"all peek", "with peek TakeAll returns the decisions that taking would get, and takes nothing", allPeek},
	{"all but one of another kind", "if one key is of another kind, TakeAll returns ErrWrongKind and takes nothing",
		allButOneOfAnotherKind},
	{"all of any quantity", "TakeAll refunds negative quantities, and asks about debt for quantities of 0, if all are allowed", allOfAnyQuantity},
	{"all at once", "TakeAll is atomic, whatever the order of its keys: no other caller sees half of it, and there is no deadlock", allAtOnce},
	{"all at one instant", "TakeAll decides about all of its keys at one instant", allAtOneInstant},
}

func limitRequest(r limit.Rule, key string, quantity int64) store.LimitRequest {
	return store.LimitRequest{Key: []byte(key), Rule: r, Quantity: quantity}
}

func (c *caller) takeAll(mode quota.Mode, requests ...store.LimitRequest) ([]quota.Decision, bool) {
	c.Helper()
	d, allowed, err := c.view.TakeAll(ctx, requests, mode)
	require.NoError(c, err)
	require.Len(c, d, len(requests))
	return slices.Clone(d), allowed // the view reuses them
}

// peekEach returns the decision that each request would get alone.
func (c *caller) peekEach(requests ...store.LimitRequest) (results []quota.Decision) {
	c.Helper()
	for _, t := range requests {
		results = append(results, c.takeBy(t.Rule, string(t.Key), t.Quantity, quota.Peek))
	}
	return results
}

// manyRequests returns n requests with limiters of all kinds: enough that a store with shards has
// some in the same one.
func manyRequests(n int, prefix string) (requests []store.LimitRequest) {
	for i := range n {
		by := rule(limiters[i%len(limiters)], int64(10+i), 60)
		requests = append(requests, limitRequest(by, fmt.Sprint(prefix, i), int64(1+i%5)))
	}
	return requests
}

// expectedUntaken returns the decision expected for each request if nothing is taken.
func (c *caller) expectedUntaken(requests ...store.LimitRequest) (results []quota.Decision) {
	c.Helper()
	for _, t := range requests {
		d := c.takeBy(t.Rule, string(t.Key), t.Quantity, quota.Peek)
		peeked := c.takeBy(t.Rule, string(t.Key), 0, quota.Peek)
		d.Remaining, d.ResetAfter, d.Taken = peeked.Remaining, peeked.ResetAfter, 0
		results = append(results, d)
	}
	return results
}

func (c *caller) stateOf(requests []store.LimitRequest) any {
	c.Helper()
	var keys []string
	for _, t := range requests {
		keys = append(keys, string(t.Key))
	}
	return c.state(keys...)
}

func all(r *rig) {
	d, allowed := r.takeAll(quota.Take)
	require.True(r, allowed, "an empty TakeAll is allowed")
	require.Empty(r, d)
	h := r.listen()
	for _, n := range []int{1, 2, 5, 64} {
		requests := manyRequests(n, fmt.Sprint(n, " "))
		for range 2 { // the first round creates the keys, the second finds them
			want := r.peekEach(requests...)
			d, allowed := r.takeAll(quota.Take, requests...)
			require.True(r, allowed)
			require.Equal(r, want, d)
			for i, t := range requests {
				require.Equal(r, d[i].Remaining, r.takeBy(t.Rule, string(t.Key), 0, quota.Take).Remaining)
			}
			r.requireChangedOnce(h, n)
			r.clock.Advance(time.Second)
			r.view.Begin()
		}
	}
}

// requireChangedOnce checks that listeners were notified of one change of each of n keys. The keys may
// have expired before.
func (r *rig) requireChangedOnce(h *recording, n int) {
	if _, ok := r.store.(store.Notifier); !ok {
		return
	}
	heard := map[notification]int{}
	for _, n := range h.events() {
		if n.event != store.Expired {
			heard[n]++
		}
	}
	require.Len(r, heard, n)
	for n, times := range heard {
		require.Equal(r, store.Changed, n.event)
		require.Equal(r, 1, times)
	}
}

func allOrNothing(r *rig) {
	for n, refuses := range map[int]int{1: 0, 2: 1, 3: 0, 5: 2, 64: 40} {
		for _, quantity := range []int64{1, 20} { // a quantity allowed later, and one never allowed
			requests := manyRequests(n, fmt.Sprint(n, quantity, " "))
			r.takeAll(quota.Take, requests...)
			t := &requests[refuses]
			t.Rule, t.Quantity = rule(t.Rule.Kind, 9, 60), quantity
			r.takeBy(t.Rule, string(t.Key), 30, quota.Force)
			before, want, h := r.stateOf(requests), r.expectedUntaken(requests...), r.listen()
			for _, mode := range []quota.Mode{quota.Take, quota.Peek} {
				d, allowed := r.takeAll(mode, requests...)
				require.False(r, allowed)
				require.Equal(r, want, d)
				require.True(r, d[refuses].Limited)
				require.Equal(r, before, r.stateOf(requests), "of %d keys", n)
				require.Empty(r, h.events())
			}
		}
	}
}

func allUntaken(r *rig) {
	for _, kind := range limiters {
		five := rule(kind, 5, 60)
		used, unused, back, full := fmt.Sprint(kind, " used"), fmt.Sprint(kind, " unused"), fmt.Sprint(kind, " back"),
			fmt.Sprint(kind, " full")
		r.takeBy(five, used, 2, quota.Take)
		r.takeBy(five, back, 3, quota.Take)
		r.takeBy(five, full, 5, quota.Take)
		r.clock.Advance(time.Second)
		r.view.Begin()
		reset := r.takeBy(five, used, 0, quota.Take).ResetAfter
		for _, mode := range []quota.Mode{quota.Take, quota.Peek} {
			d, allowed := r.takeAll(mode, limitRequest(five, used, 1), limitRequest(five, unused, 1),
				limitRequest(five, back, -3), limitRequest(five, full, 1))
			require.False(r, allowed)
			require.Equal(r, quota.Decision{Limit: 5, Remaining: 3, RetryAfter: quota.Never, ResetAfter: reset}, d[0])
			require.Equal(r, quota.Decision{Limit: 5, Remaining: 5, RetryAfter: quota.Never}, d[1])
			require.Equal(r, int64(2), d[2].Remaining)
			require.True(r, d[3].Limited)
		}
	}
}

func allPeek(r *rig) {
	requests := manyRequests(9, "key")
	h := r.listen()
	peeked, allowed := r.takeAll(quota.Peek, requests...)
	require.True(r, allowed)
	require.Zero(r, r.size())
	require.Empty(r, h.events())
	taken, _ := r.takeAll(quota.Take, requests...)
	require.Equal(r, peeked, taken)
	before := r.stateOf(requests)
	h.events()
	peeked, _ = r.takeAll(quota.Peek, requests...)
	require.Equal(r, before, r.stateOf(requests))
	require.Empty(r, h.events())
	taken, _ = r.takeAll(quota.Take, requests...)
	require.Equal(r, peeked, taken)
}

func allButOneOfAnotherKind(r *rig) {
	for i, kind := range kinds {
		for at := range 4 {
			requests := manyRequests(4, fmt.Sprint(i, at, " "))
			if requests[at].Rule.Kind == kind {
				continue
			}
			for j, t := range requests {
				if j != at {
					r.takeBy(t.Rule, string(t.Key), 1, quota.Take)
				}
			}
			r.use(kind, string(requests[at].Key))
			requests[(at+1)%4].Quantity = 1000 // a limited request must not hide the error of another
			before, h := r.stateOf(requests), r.listen()
			for _, refuses := range []bool{true, false} {
				for _, mode := range []quota.Mode{quota.Peek, quota.Take} {
					_, allowed, err := r.view.TakeAll(ctx, requests, mode)
					require.ErrorIs(r, err, store.ErrWrongKind, "a %s at %d", kind, at)
					require.False(r, allowed)
					require.Equal(r, before, r.stateOf(requests), "a %s at %d, one limited: %t", kind, at, refuses)
					require.Empty(r, h.events())
				}
				requests[(at+1)%4].Quantity = 1
			}
		}
	}
}

func allOfAnyQuantity(r *rig) {
	for _, kind := range limiters {
		five, one := rule(kind, 5, 60), rule(kind, 1, 60)
		used, empties, asks, limited := fmt.Sprint(kind, " used"), fmt.Sprint(kind, " empties"), fmt.Sprint(kind, " asks"),
			fmt.Sprint(kind, " limited")
		r.takeBy(five, used, 3, quota.Take)
		r.takeBy(five, empties, 3, quota.Take)
		r.takeBy(five, asks, 5, quota.Take)
		r.takeBy(one, limited, 1, quota.Take)
		requests := []store.LimitRequest{
			limitRequest(five, used, -2), limitRequest(five, empties, math.MinInt64),
			limitRequest(five, asks, 0), limitRequest(one, limited, 1),
		}
		before, want := r.stateOf(requests), r.expectedUntaken(requests...)
		d, allowed := r.takeAll(quota.Take, requests...)
		require.False(r, allowed)
		require.Equal(r, want, d)
		require.Equal(r, before, r.stateOf(requests), "%s: a refund is made only if all others are allowed", kind)

		requests[3].Quantity = 0
		_, allowed = r.takeAll(quota.Take, requests...)
		require.True(r, allowed)
		require.Equal(r, int64(4), r.takeBy(five, used, 0, quota.Take).Remaining)
		require.Equal(r, store.Entry{}, r.lookup(empties))
		require.Zero(r, r.takeBy(five, asks, 0, quota.Take).Remaining)

		r.takeBy(five, asks, 1, quota.Force)
		_, allowed = r.takeAll(quota.Take, requests...)
		require.False(r, allowed, "%s: 0 is limited in debt", kind)
		require.Equal(r, int64(4), r.takeBy(five, used, 0, quota.Take).Remaining)
	}
}

// allAtOnce has several callers take from three keys out of four at a time, in any order, and refund
// the same. At any instant the sum of all that is taken is a multiple of three, unless a TakeAll is
// only half done. A reader checks that by peeking at all keys at once. Writers and reader run until
// both have made enough calls, so that neither can finish before the other has started.
func allAtOnce(r *rig) {
	const callers, rounds = 6, 150
	by := func(i int) limit.Rule { return rule(limiters[1+i%3], maxLog, 1_000_000) }
	var peeks []store.LimitRequest
	for i := range 4 {
		peeks = append(peeks, limitRequest(by(i), fmt.Sprint("key", i), 0))
	}
	used := func(d []quota.Decision) (sum int64) {
		for _, d := range d {
			sum += d.Limit - d.Remaining
		}
		return sum
	}
	var done sync.WaitGroup
	var reads, writing gosync.Int64
	writing.Store(callers)
	for i := range callers {
		v, random := r.store.View(), rand.New(rand.NewPCG(5, uint64(i)))
		done.Go(func() {
			defer writing.Add(-1)
			for n := 0; n < rounds || reads.Load() < rounds; n++ {
				takeAndRefund(v, random, peeks)
			}
		})
	}
	partial := map[int64]int{}
	reader := r.another()
	done.Go(func() {
		for ; writing.Load() > 0; reads.Add(1) {
			d, _, _ := reader.view.TakeAll(ctx, peeks, quota.Peek)
			if n := used(d); n%3 != 0 {
				partial[n]++
			}
			runtime.Gosched()
		}
	})
	done.Wait()
	require.Empty(r, partial, "sums that were seen of calls that were half done, and how often")
	d, _ := r.takeAll(quota.Peek, peeks...)
	require.Zero(r, used(d))
}

// takeAndRefund takes one from each of three keys, chosen and ordered at random, and refunds it.
func takeAndRefund(v store.View, random *rand.Rand, keys []store.LimitRequest) {
	requests := make([]store.LimitRequest, 3)
	for n, key := range random.Perm(len(keys))[:len(requests)] {
		requests[n] = limitRequest(keys[key].Rule, string(keys[key].Key), 1)
	}
	v.TakeAll(ctx, requests, quota.Take)
	runtime.Gosched()
	for n := range requests {
		requests[n].Quantity = -1
	}
	random.Shuffle(len(requests), func(a, b int) { requests[a], requests[b] = requests[b], requests[a] })
	v.TakeAll(ctx, requests, quota.Take)
}

// allAtOneInstant is oneInstant for TakeAll: after a caller has seen that the later of two windows
// has ended, the earlier has too.
func allAtOneInstant(r *rig) {
	short, long := rule(limit.Fixed, 1, 1), rule(limit.Fixed, 1, 2)
	for i := range 50 {
		earlier, later := fmt.Sprint("earlier", i), fmt.Sprint("later", i)
		r.takeBy(short, earlier, 1, quota.Take)
		r.takeBy(long, later, 1, quota.Take)
	}
	r.clock.Advance(3 * time.Second)
	late := r.another()
	for i := range 50 {
		earlier, later := fmt.Sprint("earlier", i), fmt.Sprint("later", i)
		require.Zero(r, late.count(later))
		want := []quota.Decision{ // made at that instant
			{Limit: 1, RetryAfter: quota.Never, ResetAfter: int64(time.Second), Taken: 1},
			{Limit: 1, RetryAfter: quota.Never, ResetAfter: int64(2 * time.Second), Taken: 1},
		}
		d, allowed := r.takeAll(quota.Take, limitRequest(short, earlier, 1), limitRequest(long, later, 1))
		require.True(r, allowed)
		require.Equal(r, want, d)
		require.Equal(r, r.lookup(later).Expires, r.lookup(earlier).Expires+int64(time.Second))
	}
}

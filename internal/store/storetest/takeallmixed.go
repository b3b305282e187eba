package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var mixedCases = []testCase{
	{"all forced", "a forced quantity never limits a TakeAll: it is taken even beyond its limit if all others are allowed, " +
		"and not at all if one is not", allForced},
	{"all forced too much", "if a forced quantity of a TakeAll is too large, the error is ErrQuantity, and nothing is taken",
		allForcedTooMuch},
	{"all with leases", "TakeAll grants a lease as Acquire does if all others are allowed, and otherwise leaves it as it is",
		allWithLeases},
	{"all with leases that end", "a lease that TakeAll would grant only because its holder holds as much is limited until it is granted again, " +
		"if it ends before the other requests are allowed", allWithLeasesThatEnd},
	{"all with too many holders", "if a key has too many holders for a lease of a TakeAll, the error is ErrHolders, and nothing is taken",
		allWithTooManyHolders},
	{"no growth for leases of all", "without growth TakeAll grants a lease that needs no memory, and otherwise returns ErrFull and takes nothing",
		noGrowthForLeasesOfAll},
	{"no growth for forced of all", "without growth TakeAll returns ErrFull if a forced quantity needs memory, says so, and takes nothing",
		noGrowthForForcedOfAll},
}

func forced(r limit.Rule, key string, quantity int64) store.LimitRequest {
	t := limitRequest(r, key, quantity)
	t.Mode = quota.Force
	return t
}

func leaseRequest(key string, r lease.Request, most int) store.LimitRequest {
	return store.LimitRequest{Key: []byte(key), Rule: limit.Rule{Kind: limit.Lease},
		Lease: &store.LeaseRequest{Request: r, MaxHolders: most}}
}

// rotations calls with with the requests in an order that puts each of them in each place.
func rotations(requests []store.LimitRequest, with func(at int, requests []store.LimitRequest)) {
	for at := range requests {
		with(at, append(slices.Clone(requests[len(requests)-at:]), requests[:len(requests)-at]...))
	}
}

func allForced(r *rig) {
	for i, kind := range limiters {
		for at := range 3 {
			r.forceOne(kind, fmt.Sprint(i, at, " "), at)
		}
	}
}

// forceOne makes calls with three requests, and forces the one at a position.
func (r *rig) forceOne(kind limit.Kind, prefix string, at int) {
	five, ten, key := rule(kind, 5, 60), rule(limit.Fixed, 10, 60), prefix+"forced"
	requests := []store.LimitRequest{limitRequest(ten, prefix+"a", 1),
		limitRequest(rule(limit.SlidingLog, 10, 60), prefix+"b", 1)}
	requests = slices.Insert(requests, at, forced(five, key, 8))
	for _, name := range []string{key, prefix + "twin"} {
		r.takeBy(five, name, 3, quota.Take)
	}
	want := r.takeBy(five, prefix+"twin", 8, quota.Force)
	require.True(r, want.Limited)
	before, reset := r.stateOf(requests), r.takeBy(five, key, 0, quota.Peek).ResetAfter

	peeked, allowed := r.takeAll(quota.Peek, requests...)
	require.True(r, allowed)
	require.Equal(r, want, peeked[at])
	require.Equal(r, before, r.stateOf(requests))
	other, h := &requests[(at+1)%3], r.listen()
	other.Quantity = 11
	for _, mode := range []quota.Mode{quota.Peek, quota.Take} {
		d, allowed := r.takeAll(mode, requests...)
		require.False(r, allowed)
		require.Equal(r, quota.Decision{Limit: 5, Remaining: 2, RetryAfter: quota.Never, ResetAfter: reset}, d[at])
		require.Equal(r, before, r.stateOf(requests))
		require.Empty(r, h.events())
	}
	other.Quantity = 1
	d, allowed := r.takeAll(quota.Take, requests...)
	require.True(r, allowed)
	require.Equal(r, peeked, d)
	r.requireChangedOnce(h, 3)
	require.True(r, r.takeBy(five, key, 0, quota.Take).Limited, "%s: a debt", kind)
	require.Equal(r, int64(9), r.takeBy(ten, prefix+"a", 0, quota.Take).Remaining)
}

func allForcedTooMuch(r *rig) {
	for i, kind := range limiters {
		five, ten := rule(kind, 5, 60), rule(limit.Fixed, 10, 60)
		requests := []store.LimitRequest{forced(five, fmt.Sprint(i, " forced"), math.MaxInt64),
			limitRequest(ten, fmt.Sprint(i, " a"), 1), limitRequest(ten, fmt.Sprint(i, " b"), 1)}
		r.takeBy(five, string(requests[0].Key), 1, quota.Take)
		before, h := r.stateOf(requests), r.listen()
		for _, quantity := range []int64{1, 11} { // allowed, and refused
			requests[1].Quantity = quantity
			rotations(requests, func(at int, rotated []store.LimitRequest) {
				for _, mode := range []quota.Mode{quota.Peek, quota.Take} {
					_, allowed, err := r.view.TakeAll(ctx, requests, mode)
					require.ErrorIs(r, err, quota.ErrQuantity, "%s at %d", kind, at)
					require.False(r, allowed)
					require.Equal(r, before, r.stateOf(requests), "%s at %d", kind, at)
				}
			})
		}
		require.Empty(r, h.events())
	}
}

// allWithLeases makes random requests for leases, together with a limiter that allows or refuses, and
// compares with what Acquire says.
func allWithLeases(r *rig) {
	random, ten := rand.New(rand.NewPCG(7, 8)), rule(limit.Fixed, 10, 60)
	model := &lease.Leases{}
	for i := range 1500 {
		if random.IntN(3) == 0 {
			r.clock.Advance(time.Duration(random.Int64N(4) * 5e8))
			r.view.Begin()
		}
		now := r.clock.Now()
		ask := request(random.Int64N(7), 1+random.Int64N(3), fmt.Sprint("h", random.IntN(5)), random.Int64N(4))
		mode, refuses := quota.Take, random.IntN(3) == 0
		if n := random.IntN(6); n < 3 {
			mode = []quota.Mode{quota.Peek, quota.Peek, quota.Ask}[n]
		}
		requests := []store.LimitRequest{leaseRequest("key", ask, 4), limitRequest(ten, "other", 0)}
		if refuses {
			requests[1].Quantity = 11
		}
		at := random.IntN(2)
		if at == 1 {
			slices.Reverse(requests)
		}
		d, changed, err := model.Clone().Acquire(now, ask, 4)
		allowed := err == nil && !d.Limited && !refuses
		if refuses && err == nil && !d.Limited {
			d = untakenLease(model, now, ask)
		}
		if allowed && mode == quota.Ask {
			d, _, _ = model.Clone().Acquire(now, ask.WithQuantity(0), 4)
		}
		if allowed && changed && mode == quota.Take {
			_, _, _ = model.Acquire(now, ask, 4)
		}
		want := fmt.Sprintf("%+v %t %v", d, allowed, err)
		said, granted, err := r.view.TakeAll(ctx, requests, mode)
		got := fmt.Sprintf("%+v %t %v", quota.Decision{}, granted, err)
		if err == nil {
			got = fmt.Sprintf("%+v %t %v", said[at], granted, err)
		}
		want += fmt.Sprint(slices.Collect(model.Holders(now)), withLeases(model).at(now).entry())
		got += fmt.Sprint(r.holders("key"), r.lookup("key"))
		if want != got { // faster than require
			require.Equal(r, want, got, "call %d", i)
		}
	}
}

// untakenLease returns the decision for a lease that would be granted, if another request is limited.
func untakenLease(leases *lease.Leases, now int64, r lease.Request) quota.Decision {
	d := quota.Decision{Limit: r.Limit(), Remaining: r.Limit(), RetryAfter: quota.Never}
	for l := range leases.Holders(now) {
		d.Remaining, d.ResetAfter = max(d.Remaining-l.Quantity, 0), l.End-now
	}
	return d
}

// allWithLeasesThatEnd lowers a limit below what is held: the holder may keep it for 10 s, and another holds as
// much for 90 s.
func allWithLeasesThatEnd(r *rig) {
	const second = int64(time.Second)
	r.acquire("key", request(6, 10, "a", 3))
	r.acquire("key", request(6, 90, "b", 3))
	r.takeBy(rule(limit.Fixed, 1, 5), "soon", 1, quota.Take)
	r.takeBy(rule(limit.Fixed, 1, 60), "late", 1, quota.Take)
	for _, c := range []struct {
		other          string
		limit, allowed int64 // allowed is the time after which all are
	}{{"soon", 4, 5}, {"late", 4, 90}, {"late", 6, 60}, {"late", 2, quota.Never}} {
		requests := []store.LimitRequest{leaseRequest("key", request(c.limit, 60, "a", 3), 9),
			limitRequest(rule(limit.Fixed, 1, 60), c.other, 1)}
		rotations(requests, func(at int, rotated []store.LimitRequest) {
			for _, mode := range []quota.Mode{quota.Peek, quota.Take} {
				d, allowed := r.takeAll(mode, rotated...)
				require.False(r, allowed)
				longest, _ := quota.LongestRetry(d)
				if longest != quota.Never {
					longest /= second
				}
				require.Equal(r, c.allowed, longest, "%s, limit %d", c.other, c.limit)
			}
		})
	}
}

func allWithTooManyHolders(r *rig) {
	ten := rule(limit.Fixed, 10, 60)
	r.acquire("key", request(9, 60, "a", 1))
	r.acquire("key", request(9, 60, "b", 1))
	requests := []store.LimitRequest{leaseRequest("key", request(9, 60, "c", 1), 2),
		limitRequest(ten, "x", 1), limitRequest(ten, "y", 1)}
	before, h := r.stateOf(requests), r.listen()
	for _, quantity := range []int64{1, 11} {
		requests[1].Quantity = quantity
		rotations(requests, func(at int, rotated []store.LimitRequest) {
			for _, mode := range []quota.Mode{quota.Peek, quota.Take} {
				_, allowed, err := r.view.TakeAll(ctx, rotated, mode)
				require.ErrorIs(r, err, lease.ErrHolders, "at %d", at)
				require.False(r, allowed)
				require.Equal(r, before, r.stateOf(requests), "at %d", at)
			}
		})
	}
	require.Empty(r, h.events())
	requests[0], requests[1].Quantity = leaseRequest("key", request(9, 60, "b", 3), 2), 1
	_, allowed := r.takeAll(quota.Take, requests...)
	require.True(r, allowed, "b is a holder already")
	require.Equal(r, int64(3), r.release("key", "b"))
}

func noGrowthForLeasesOfAll(r *rig) {
	noGrowth, ten := r.withoutGrowth(), rule(limit.Fixed, 10, 60)
	r.takeBy(ten, "x", 1, quota.Take)
	all := func(v store.View, holder, key string, quantity int64) ([]quota.Decision, error) {
		requests := []store.LimitRequest{limitRequest(ten, "x", 0),
			leaseRequest(key, request(maxHolders, 60, holder, quantity), maxHolders), limitRequest(ten, "x'", 0)}
		d, _, err := v.TakeAll(ctx, requests, quota.Take)
		return d, err
	}
	d, err := all(noGrowth.view, "me", "new", 1)
	require.ErrorIs(r, err, store.ErrFull)
	require.Equal(r, []bool{false, true, false}, []bool{d[0].Limited, d[1].Limited, d[2].Limited})
	require.Empty(r, r.traces(limit.Lease, "new"))
	d, err = all(noGrowth.view, "me", "new", maxHolders+1)
	require.NoError(r, err, "a limited call needs no memory")
	require.True(r, d[1].Limited)
	acquire := func(v store.View) func(i int) error {
		return func(i int) error {
			_, err := all(v, fmt.Sprint("holder", i), "leases", 1)
			return err
		}
	}
	r.growing("leases", acquire(r.view), acquire(noGrowth.view))
	for i := range 100 { // a holder keeps its lease, though another holder was refused before
		_ = acquire(noGrowth.view)(maxLog + i)
		require.NoError(r, acquire(noGrowth.view)(1))
	}
	require.Equal(r, int64(1), noGrowth.release("leases", "holder0"))
}

func noGrowthForForcedOfAll(r *rig) {
	noGrowth := r.withoutGrowth()
	for i, kind := range limiters {
		five, ten := rule(kind, 5, 60), rule(limit.Fixed, 10, 60)
		there, key := fmt.Sprint(i, " there"), fmt.Sprint(i, " key")
		r.takeBy(ten, there, 1, quota.Take)
		requests := []store.LimitRequest{forced(five, key, 8), limitRequest(ten, there, 1)}
		rotations(requests, func(at int, rotated []store.LimitRequest) {
			before, h := r.stateOf(requests), r.listen()
			d, allowed, err := noGrowth.view.TakeAll(ctx, rotated, quota.Take)
			require.ErrorIs(r, err, store.ErrFull)
			require.False(r, allowed)
			require.True(r, d[at].Limited)
			require.False(r, d[1-at].Limited)
			require.Equal(r, before, r.stateOf(requests))
			require.Empty(r, h.events())
		})
		r.takeBy(five, key, 1, quota.Take)
		d, allowed := noGrowth.takeAll(quota.Take, requests...)
		require.True(r, allowed)
		require.True(r, d[0].Limited, "%s: a debt of an existing key", kind)
	}
}

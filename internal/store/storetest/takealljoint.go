package storetest

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var jointCases = []testCase{
	{"all of one", "TakeAll of one request decides as Take, and with what the request leaves as quota.Leave", allOfOne},
	{"all in one step", "TakeAll decides what binding requests leave, take up to, or ask about, and then each group in " +
		"shadow, as several calls would, in one step", allInOneStep},
	{"no growth for shadows", "without growth, a group in shadow that needs memory takes nothing, and does not fail a TakeAll",
		noGrowthForShadows},
}

// someQuantity returns a quantity, and what a request for it leaves.
func someQuantity(random *rand.Rand) (quantity, leave int64) {
	if quantity = random.Int64N(16) - 4; random.IntN(20) == 0 {
		quantity = math.MaxInt64 - random.Int64N(2)
	}
	switch random.IntN(20) {
	case 0:
		leave = math.MaxInt64 - random.Int64N(3)
	case 1, 2, 3, 4, 5, 6, 7, 8, 9:
		leave = random.Int64N(10)
	}
	return quantity, leave
}

// allOfOne is anyLimiter for calls of TakeAll.
func allOfOne(r *rig) {
	random := rand.New(rand.NewPCG(1, 2))
	keys := map[string]keyState{}
	for i := range 4000 {
		if random.IntN(3) == 0 {
			r.clock.Advance(time.Duration(random.Int64N(1e9) + 1))
			r.view.Begin()
		}
		now, kind := r.clock.Now(), limiters[random.IntN(len(limiters))]
		t := limitRequest(rule(kind, random.Int64N(9), 1+random.Int64N(3)), fmt.Sprint(kind, random.IntN(3)), 0)
		t.Quantity, t.Leave = someQuantity(random)
		mode := []quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force}[random.IntN(4)]
		said := mode
		if mode == quota.Force {
			said, t.Mode = quota.Take, quota.Force
		}
		want, next, changed, wantErr := keys[string(t.Key)].at(now).takeLeaving(now, t.Leave, t.Rule, t.Quantity, mode)
		if t.Rule.Blocks(t.Quantity, mode) {
			want = quota.Blocked()
		}
		got, allowed, err := r.view.TakeAll(ctx, []store.LimitRequest{t}, said)
		require.Equal(r, wantErr, err, "call %d: %+v, mode %d", i, t, mode)
		if err != nil {
			continue
		}
		if changed {
			keys[string(t.Key)] = next
		}
		if want != got[0] || allowed != (!want.Limited || mode == quota.Force) { // faster than require
			require.Equal(r, want, got[0], "call %d: %+v, mode %d", i, t, mode)
			require.Equal(r, !want.Limited || mode == quota.Force, allowed, "call %d: %+v, mode %d", i, t, mode)
		}
		if want, got := keys[string(t.Key)].at(now).entry(), r.lookup(string(t.Key)); want != got {
			require.Equal(r, want, got, "after call %d: %+v, mode %d", i, t, mode)
		}
	}
}

// allInOneStep makes random calls, and compares them with a model that makes several steps.
func allInOneStep(r *rig) {
	random := rand.New(rand.NewPCG(3, 4))
	m := &stepwise{keys: map[string]keyState{}}
	for i := range 4000 {
		if random.IntN(3) == 0 {
			r.clock.Advance(time.Duration(random.Int64N(1e9) + 1))
			r.view.Begin()
		}
		m.now = r.clock.Now()
		mode := []quota.Mode{quota.Take, quota.Peek, quota.Ask, quota.UpTo}[random.IntN(4)]
		requests := someRequests(random, mode, r.external)
		want, wantAllowed, wantErr := m.decide(requests, mode)
		got, allowed, err := r.view.TakeAll(ctx, requests, mode)
		require.Equal(r, wantErr, err, "call %d: %+v, mode %d", i, requests, mode)
		if err == nil && (!slices.Equal(want, got) || wantAllowed != allowed) { // faster than require
			require.Equal(r, want, got, "call %d: %+v, mode %d", i, requests, mode)
			require.Equal(r, wantAllowed, allowed, "call %d: %+v, mode %d", i, requests, mode)
		}
		for _, t := range requests {
			if want, got := m.keys[string(t.Key)].at(m.now).entry(), r.lookup(string(t.Key)); want != got {
				require.Equal(r, want, got, "after call %d: %+v, mode %d", i, requests, mode)
			}
		}
	}
}

// someRequests returns up to three binding requests and up to two groups in shadow. A few of their keys hold
// another kind.
func someRequests(random *rand.Rand, mode quota.Mode, external bool) (requests []store.LimitRequest) {
	shared, _ := someQuantity(random)
	places := random.Perm(2 * len(limiters))
	for shadow := range 3 {
		for range random.IntN(min(4-shadow, len(places))) {
			place := places[0]
			places = places[1:]
			kind := limiters[place%len(limiters)]
			key := fmt.Sprint(kind, place)
			// The key of a throttle whose end has passed may stay in an external store for a moment, as a value.
			other := limiters[random.IntN(len(limiters))]
			if random.IntN(30) == 0 && (!external || kind != limit.Throttle && other != limit.Throttle) {
				kind = other
			}
			t := limitRequest(rule(kind, random.Int64N(9), 1+random.Int64N(3)), key, shared)
			t.Shadow = shadow
			if t.Quantity, t.Leave = someQuantity(random); mode == quota.UpTo {
				t.Quantity = shared
			} else if shadow == 0 && random.IntN(4) == 0 {
				t.Mode = quota.Force
			}
			requests = append(requests, t)
		}
	}
	return requests
}

// stepwise is a model of TakeAll that makes several steps of requests that leave nothing, bind, and are taken
// or peeked at.
type stepwise struct {
	now  int64
	keys map[string]keyState
}

// ask returns the decision that a request would get alone, and the state after it.
func (m *stepwise) ask(t store.LimitRequest) (d quota.Decision, next keyState, err error) {
	is := m.keys[string(t.Key)].at(m.now)
	switch {
	case t.Rule.Blocks(t.Quantity, t.Mode):
		return quota.Blocked(), is, nil
	case is.kind != limit.None && is.kind != t.Rule.Kind:
		return d, is, store.ErrWrongKind
	}
	d, next, changed, err := is.take(m.now, t.Rule, t.Quantity, t.Mode)
	if !changed {
		next = is
	}
	return d, next, err
}

// of returns the same requests for a quantity, not forced.
func of(requests []store.LimitRequest, quantity int64) []store.LimitRequest {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].Quantity, requests[i].Mode = quantity, quota.Take
	}
	return requests
}

// take makes one step.
func (m *stepwise) take(requests []store.LimitRequest, peek bool) (said []quota.Decision, allowed bool, err error) {
	allowed, after := true, maps.Clone(m.keys)
	for _, t := range requests {
		d, next, err := m.ask(t)
		if err != nil {
			return nil, false, err
		}
		said, after[string(t.Key)] = append(said, d), next
		allowed = allowed && (!d.Limited || t.Mode == quota.Force)
	}
	for i, t := range of(requests, 0) {
		if d := &said[i]; !allowed && (!d.Limited || requests[i].Mode == quota.Force) {
			is, _, err := m.ask(t)
			if err != nil {
				return nil, false, err
			}
			*d = quota.Decision{Limit: d.Limit, Remaining: is.Remaining, RetryAfter: quota.Never, ResetAfter: is.ResetAfter}
		}
	}
	if allowed && !peek {
		m.keys = after
	}
	return said, allowed, nil
}

// leave first asks with the quantities to leave added.
func (m *stepwise) leave(requests []store.LimitRequest, peek bool) (said []quota.Decision, allowed bool, err error) {
	asked := slices.Clone(requests)
	for i, t := range requests {
		switch {
		case t.Quantity < 0 || t.Mode == quota.Force || t.Leave == 0:
		case t.Leave > math.MaxInt64-t.Quantity:
			asked[i].Quantity = math.MaxInt64 // more than any limit of these has
		default:
			asked[i].Quantity += t.Leave
		}
	}
	if said, allowed, err = m.take(asked, true); !allowed || err != nil {
		return said, false, err
	}
	return m.take(requests, peek)
}

// binding decides the binding requests.
func (m *stepwise) binding(requests []store.LimitRequest, mode quota.Mode) (
	said []quota.Decision, allowed bool, err error,
) {
	if mode == quota.UpTo && len(requests) > 0 && requests[0].Quantity > 0 {
		if slices.ContainsFunc(requests, func(t store.LimitRequest) bool { return t.Rule.Blocks(1, quota.Take) }) {
			return m.leave(of(requests, 1), true)
		}
		if said, _, err = m.take(of(requests, 0), true); err != nil {
			return nil, false, err
		}
		most := requests[0].Quantity
		for i, t := range requests {
			most = min(most, said[i].Remaining-t.Leave)
		}
		if most < 1 {
			return m.leave(of(requests, 1), true)
		}
		return m.take(of(requests, most), false)
	}
	said, allowed, err = m.leave(requests, mode == quota.Peek || mode == quota.Ask)
	if err == nil && allowed && mode == quota.Ask {
		said = m.present(requests)
	}
	return said, allowed, err
}

// present returns decisions about nothing.
func (m *stepwise) present(requests []store.LimitRequest) (said []quota.Decision) {
	for i, t := range of(requests, 0) {
		d, _, _ := m.ask(t)
		if requests[i].Mode == quota.Force {
			d.Limited, d.RetryAfter = false, quota.Never
		}
		said = append(said, d)
	}
	return said
}

// decide decides all requests.
func (m *stepwise) decide(requests []store.LimitRequest, mode quota.Mode) (
	said []quota.Decision, allowed bool, err error,
) {
	binds := slices.IndexFunc(requests, func(t store.LimitRequest) bool { return t.Shadow > 0 })
	if binds < 0 {
		binds = len(requests)
	}
	if said, allowed, err = m.binding(requests[:binds], mode); err != nil {
		return nil, false, err
	}
	takes := allowed && (mode == quota.Take || mode == quota.UpTo)
	for shadow := 1; shadow <= 2; shadow++ {
		group := slices.DeleteFunc(slices.Clone(requests), func(t store.LimitRequest) bool { return t.Shadow != shadow })
		if mode == quota.UpTo && takes && binds > 0 && said[0].Taken > 0 {
			group = of(group, said[0].Taken)
		}
		d, fits, err := m.leave(group, !takes)
		if err == nil && fits && !takes && mode != quota.Peek {
			d = m.present(group)
		}
		for _, t := range group {
			if err != nil { // then d is empty
				d = append(d, quota.Decision{Limit: t.Size(), RetryAfter: quota.Never})
			}
		}
		said = append(said, d...)
	}
	return said, allowed, nil
}

func noGrowthForShadows(r *rig) {
	noGrowth, five := r.withoutGrowth(), rule(limit.Fixed, 5, 60)
	r.takeBy(five, "binds", 1, quota.Take)
	r.takeBy(five, "there", 1, quota.Take)
	requests := []store.LimitRequest{limitRequest(five, "binds", 1), limitRequest(five, "there", 1),
		limitRequest(five, "new", 1)}
	requests[1].Shadow, requests[2].Shadow = 1, 1
	none := quota.Decision{Limit: 5, RetryAfter: quota.Never}
	d, allowed := noGrowth.takeAll(quota.Take, requests...)
	require.True(r, allowed)
	require.Equal(r, []quota.Decision{none, none}, d[1:])
	require.Equal(r, int64(1), d[0].Taken)
	require.Equal(r, int64(4), r.takeBy(five, "there", 0, quota.Take).Remaining)
	require.Zero(r, r.lookup("new"))

	requests[0].Key = []byte("another")
	d, allowed, err := noGrowth.view.TakeAll(ctx, requests, quota.Take)
	require.ErrorIs(r, err, store.ErrFull)
	require.False(r, allowed)
	require.True(r, d[0].Limited)
	require.Equal(r, []int64{4, 5}, []int64{d[1].Remaining, d[2].Remaining})
	requests[0].Key, requests[2].Shadow = []byte("binds"), 2
	d, _ = noGrowth.takeAll(quota.Take, requests...)
	taken := quota.Decision{Limit: 5, Remaining: 3, RetryAfter: quota.Never, ResetAfter: d[1].ResetAfter, Taken: 1}
	require.Equal(r, []quota.Decision{taken, none}, d[1:])
}

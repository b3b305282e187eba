package remote_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/store/remote/remotetest"
	"cellserver/internal/window"
)

const (
	aheadSize  = 30_000
	aheadLease = 100 * time.Millisecond
)

// leasingRig is a rig whose store may take tokens ahead, and counts the steps on the backend.
type leasingRig struct {
	*rig
	steps int
}

func newLeasingRig(t *testing.T, lease time.Duration, mistakes bool) *leasingRig {
	clock := store.NewStillClock(start)
	backend := remotetest.New(clock, 2)
	backend.Mistakes = mistakes
	s := onTable(t, backend, remote.Options{Lease: lease, LeasedKeys: 10, KeyNow: backend.KeyNow,
		KeyTrip: func(string) int64 { return 0 }, WallClock: clock.Now})
	r := &leasingRig{rig: &rig{t, clock, backend, s, s.View()}}
	backend.Watch = func(*combine.Step, []combine.Change) { r.steps++ }
	return r
}

// aheadRules returns the limits from which tokens can be taken ahead: 30,000 in a minute, and therefore
// 50 in a lease.
func aheadRules(t *testing.T) []limit.Rule {
	throttle, err := gcra.NewLimit(aheadSize-1, aheadSize, 60)
	require.NoError(t, err)
	windows, err := window.NewLimit(aheadSize, 60)
	require.NoError(t, err)
	return []limit.Rule{{Kind: limit.Throttle, Throttle: throttle}, {Kind: limit.Fixed, Window: windows},
		{Kind: limit.Quota, Window: windows, Cycle: calendar.Every(time.Minute)}}
}

// A process that takes tokens ahead makes few steps, and admits exactly as much as the limit admits: the rest of its
// last block is given back, or comes back with the bucket.
func TestBlocksAreSpentAndGivenBack(t *testing.T) {
	for _, rule := range aheadRules(t) {
		for _, mistakes := range []bool{false, true} {
			t.Run(rule.Kind.String(), func(t *testing.T) {
				r := newLeasingRig(t, aheadLease, mistakes)
				admitted := int64(0)
				take := func(quantity int64) bool {
					d, err := r.view.Take(ctx, []byte("k"), &rule, quantity, quota.Take)
					require.NoError(t, err)
					if !d.Limited {
						admitted += quantity
					}
					return !d.Limited
				}
				for range 500 {
					require.True(t, take(1))
					r.clock.Advance(time.Millisecond)
				}
				require.Less(t, r.steps, 500/2, "calls are decided from blocks, once the demand of a lease is known")
				for range 20 { // the demand falls, and in the end each call is a step
					r.clock.Advance(2 * aheadLease)
					require.True(t, take(1))
				}
				for _, quantity := range []int64{1000, 1} {
					for take(quantity) {
					}
					r.clock.Advance(aheadLease) // the refusal is not repeated any more
				}
				if rule.Kind != limit.Throttle {
					require.Equal(t, int64(aheadSize), admitted)
					return
				}
				back := (r.clock.Now() - start) / int64(2*time.Millisecond) // at most: a full bucket gets nothing back
				require.LessOrEqual(t, admitted, aheadSize+back)
				require.GreaterOrEqual(t, admitted, int64(aheadSize))
			})
		}
	}
}

// takeInStep makes a call of a policy: in one step with the standing of its subject.
func (r *leasingRig) takeInStep(request store.LimitRequest) (d quota.Decision, banned bool) {
	if d, ok := r.view.(store.Spender).Spend(&request); ok {
		return d, false
	}
	keys := [][]byte{[]byte("standing"), request.Key}
	require.NoError(r, r.view.(store.Stepper).Step(ctx, keys, func(v store.View) error {
		s, err := v.Standing(ctx, keys[0])
		if banned = false; err == nil {
			_, banned = s.Banned(v.Now())
		}
		if err != nil || banned {
			return err
		}
		decisions, _, err := v.TakeAll(ctx, []store.LimitRequest{request}, quota.Take)
		d = decisions[0]
		return err
	}))
	return d, banned
}

func (r *leasingRig) ban() {
	refusals, err := window.NewLimit(0, quota.Seconds(60))
	require.NoError(r, err)
	rule := standing.Rule{Refusals: refusals, For: int64(time.Hour), Factor: 1, Max: int64(time.Hour)}
	require.NoError(r, r.view.EditStanding(ctx, []byte("standing"), func(now int64, s standing.State) standing.State {
		next, _ := s.Refused(now, rule)
		return next
	}))
}

// A request may also take tokens ahead in a step that looks at another key. During the lease, this look counts.
func TestBlocksOfSteps(t *testing.T) {
	for _, rule := range aheadRules(t) {
		for _, mistakes := range []bool{false, true} {
			t.Run(rule.Kind.String(), func(t *testing.T) {
				r := newLeasingRig(t, 0, mistakes)
				request := store.LimitRequest{Key: []byte("k"), Rule: rule, Quantity: 1, Ahead: int64(aheadLease)}
				for range 500 {
					d, banned := r.takeInStep(request)
					require.False(t, d.Limited || banned)
					r.clock.Advance(time.Millisecond)
				}
				require.Less(t, r.steps, 500/2)
				r.ban()
				began, bannedAt := r.clock.Now(), int64(0)
				for bannedAt == 0 {
					if _, banned := r.takeInStep(request); banned {
						bannedAt = r.clock.Now()
					}
					r.clock.Advance(time.Millisecond)
				}
				require.LessOrEqual(t, bannedAt-began, int64(aheadLease), "a ban acts after a lease at most")
			})
		}
	}
}

// The next calls are refused without the store, for a moment, and then it is asked again.
func TestRefusalsAreRepeated(t *testing.T) {
	for _, rule := range aheadRules(t) {
		r := newLeasingRig(t, 0, false)
		request := store.LimitRequest{Key: []byte("k"), Rule: rule, Quantity: aheadSize, Ahead: int64(aheadLease)}
		d, _ := r.takeInStep(request)
		require.False(t, d.Limited)
		request.Quantity = 1
		d, _ = r.takeInStep(request)
		require.True(t, d.Limited)
		before := r.steps
		for range 50 {
			d, _ = r.takeInStep(request)
			require.True(t, d.Limited)
			require.Positive(t, d.RetryAfter)
			r.clock.Advance(time.Millisecond)
		}
		require.Equal(t, before, r.steps)
		r.takeInStep(request)
		require.Equal(t, before+1, r.steps)
	}
}

// withBlock returns a rig that holds a block, and the request that it is for.
func withBlock(t *testing.T) (*leasingRig, store.LimitRequest) {
	r := newLeasingRig(t, 0, false)
	usual := store.LimitRequest{Key: []byte("k"), Rule: aheadRules(t)[0], Quantity: 1, Ahead: int64(aheadLease)}
	for range 200 {
		r.takeInStep(usual)
		r.clock.Advance(time.Millisecond)
	}
	for before := r.steps; r.steps == before; {
		r.takeInStep(usual) // the last one takes a block
	}
	_, ok := r.view.(store.Spender).Spend(&usual)
	require.True(t, ok)
	return r, usual
}

// Blocks decide neither other requests nor a call whose step has failed.
func TestBlocksAreForTheirOwnCalls(t *testing.T) {
	r, usual := withBlock(t)
	spender := r.view.(store.Spender)
	smaller, err := gcra.NewLimit(limit.LeastAhead-2, 1, 60)
	require.NoError(t, err)
	for what, change := range map[string]func(*store.LimitRequest){
		"without a lease": func(q *store.LimitRequest) { q.Ahead = 0 },
		"never":           func(q *store.LimitRequest) { q.Ahead = limit.NotAhead },
		"forced":          func(q *store.LimitRequest) { q.Mode = quota.Force },
		"a refund":        func(q *store.LimitRequest) { q.Quantity = -1 },
		"nothing":         func(q *store.LimitRequest) { q.Quantity = 0 },
		"LEAVE":           func(q *store.LimitRequest) { q.Leave = 1 },
		"a hold":          func(q *store.LimitRequest) { q.Held = true },
		"in shadow":       func(q *store.LimitRequest) { q.Shadow = 1 },
		"a small one":     func(q *store.LimitRequest) { q.Rule.Throttle = smaller },
		"another key":     func(q *store.LimitRequest) { q.Key = []byte("other") },
	} {
		q := usual
		change(&q)
		_, ok := spender.Spend(&q)
		require.False(t, ok, what)
	}
	require.NoError(t, r.view.Atomically(ctx, []store.KeyRef{{Key: usual.Key}}, false, func() error {
		_, ok := spender.Spend(&usual)
		require.False(t, ok, "in a transaction")
		return nil
	}))
	_, ok := spender.Spend(&usual)
	require.True(t, ok)

	r.clock.Advance(aheadLease)
	failed := errors.New("the step fails")
	err = r.view.(store.Stepper).Step(ctx, [][]byte{usual.Key}, func(v store.View) error {
		_, _, err := v.TakeAll(ctx, []store.LimitRequest{usual}, quota.Take)
		require.NoError(t, err)
		return failed
	})
	require.ErrorIs(t, err, failed)
	_, ok = spender.Spend(&usual)
	require.False(t, ok, "what a failed step would have taken")
}

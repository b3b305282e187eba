package limiter

import (
	"context"
	"math"
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/lease"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// acquire is take for CL.ACQUIRE.
func (w *wait) acquire(c *command.Call, key []byte, r *store.LeaseRequest) (quota.Decision, error) {
	ask := func(r lease.Request) (d quota.Decision, err error) {
		request := store.LimitRequest{Key: key, Rule: store.Rule{Kind: store.Lease},
			Lease: &store.LeaseRequest{Request: r, MaxHolders: math.MaxInt}}
		decisions, _, err := c.View.TakeAll(c.Context, []store.LimitRequest{request}, true)
		if err == nil {
			d = decisions[0]
		}
		return d, err
	}
	if w.behind {
		held, err := ask(r.Request.WithLimit(0)) // granted only if the holder holds as much already
		if err != nil {
			return held, err
		}
		w.behind = held.Limited
	}
	if !w.asks() {
		return c.View.Acquire(c.Context, key, r.Request, r.MaxHolders)
	}
	d, err := ask(r.Request)
	if err == nil && w.last && !d.Limited {
		d, err = ask(r.Request.WithQuantity(0))
		refuse(&d)
	}
	return d, err
}

// canLimit reports whether a limiter of CL.ALL can limit the call. A forced quantity cannot, though its
// decision may say that it is beyond the limit.
func canLimit(t *store.LimitRequest) bool {
	return t.Lease != nil || t.Quantity > 0 && t.Mode != quota.Force
}

// arriveAll is arrive for the keys of CL.ALL.
func (w *wait) arriveAll(c *command.Call, takes []store.LimitRequest) {
	for i := range takes {
		if canLimit(&takes[i]) {
			w.arrive(c, takes[i].Key)
		}
	}
}

// takeAll is take for CL.ALL. With PEEK, the call does not wait.
func (w *wait) takeAll(ctx context.Context, v store.View, takes []store.LimitRequest, o *allOptions) (
	decisions []quota.Decision, allowed bool, err error,
) {
	decisions, allowed, err = o.step(ctx, v, takes, o.peek || w.asks())
	if err != nil || !w.last || !allowed {
		return decisions, allowed, err
	}
	decisions, err = presentState(ctx, v, takes)
	if first := slices.IndexFunc(takes, func(t store.LimitRequest) bool { return canLimit(&t) }); err == nil {
		refuse(&decisions[max(first, 0)])
	}
	return decisions, false, err
}

// presentState returns decisions about nothing on the same keys, as the reply of a call that others
// precede shows them.
func presentState(ctx context.Context, v store.View, takes []store.LimitRequest) ([]quota.Decision, error) {
	decisions, _, err := v.TakeAll(ctx, withoutQuantities(takes), true)
	for i := range decisions {
		if takes[i].Mode == quota.Force {
			decisions[i].Limited, decisions[i].RetryAfter = false, quota.Never
		}
	}
	return decisions, err
}

// withoutQuantities returns requests that ask for nothing on the same keys.
func withoutQuantities(takes []store.LimitRequest) []store.LimitRequest {
	asked := slices.Clone(takes)
	for i := range asked {
		if t := &asked[i]; t.Lease != nil {
			t.Lease = &store.LeaseRequest{Request: t.Lease.WithQuantity(0), MaxHolders: t.Lease.MaxHolders}
		} else {
			t.Quantity = 0
		}
	}
	return asked
}

// longest returns what limits a CL.ALL longest, or if nothing does, the first key for which calls wait.
func (w *wait) longest(c *command.Call, takes []store.LimitRequest, decisions []quota.Decision) (
	key []byte, d quota.Decision,
) {
	for i, one := range decisions {
		switch {
		case !one.Limited || takes[i].Mode == quota.Force:
		case one.RetryAfter == quota.Never:
			return takes[i].Key, one
		case !d.Limited || one.RetryAfter > d.RetryAfter:
			key, d = takes[i].Key, one
		}
	}
	for i := 0; key == nil && w.behind && i < len(takes); i++ {
		if canLimit(&takes[i]) && c.Session.IsAwaited(takes[i].Key) {
			key = takes[i].Key
		}
	}
	if key == nil {
		key = takes[0].Key // those for which it had to wait have been admitted meanwhile
	}
	return key, d
}

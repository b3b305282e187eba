package limiter

import (
	"context"
	"errors"
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// allOnce is an attempt of a CL.ALL with an ID, which belongs to its first key.
type allOnce struct {
	store.Once
	wait    wait
	allowed bool // by the decision
}

// onceAll returns an attempt of a call as one that is made once.
func onceAll(ctx context.Context, takes []store.LimitRequest, o allOptions, token store.Token, w wait) *allOnce {
	a := &allOnce{wait: w}
	a.Token, a.Keys = token, o.keys(takes)
	takesAny := slices.ContainsFunc(takes, func(t store.LimitRequest) bool { return t.Lease != nil || t.Quantity != 0 })
	a.Decide = func(v store.View) (decisions []quota.Decision, taken bool, err error) {
		decisions, a.allowed, err = w.takeAll(ctx, v, takes, &o)
		return decisions, err == nil && a.allowed && !o.peek && !w.asks() && takesAny, err
	}
	a.Takes = func(v store.View) (bool, error) {
		if o.peek || w.asks() || !takesAny {
			return false, nil
		}
		_, allowed, err := o.step(ctx, v, takes, true)
		return allowed, err
	}
	return a
}

// decide makes the call with a view.
func (a *allOnce) decide(c *command.Call, v store.View) (_ []quota.Decision, allowed, repeated bool, _ error) {
	decisions, repeated, err := v.Once(c.Context, &a.Once)
	return decisions, err == nil && (repeated || a.allowed), repeated, err
}

// decideAllOnce is decideAll for a call with an ID. It has arrived.
func (l *Family) decideAllOnce(c *command.Call, takes []store.LimitRequest, o allOptions, w wait) error {
	idAt, waitAt := o.places()
	token, err := l.tokenOf(c, c.Words[idAt], waitAt)
	if err != nil {
		return err
	}
	a := onceAll(c.Context, takes, o, token, w)
	w.id = command.CallID{Key: a.Keys[0], Name: token.ID, Words: token.Words}
	if taken, err := w.takeOver(c); taken || err != nil {
		return err
	}
	decisions, allowed, repeated, err := a.decide(c, c.View)
	assumed := err != nil
	switch {
	case errors.Is(err, store.ErrFull):
		decisions, err = l.limitAllIfFull(c, err, takes)
	case err != nil:
		decisions, allowed, err = l.Fallback.decideAllOnce(c, err, takes, &o, a)
	case !repeated && w.left > 0 && (!allowed || w.behind):
		if key, d := w.longest(c, takes, decisions); w.continues(&d) {
			return c.Wait(w.delay(key, &d))
		}
	}
	if err != nil {
		return err
	}
	l.countRepeat(c, repeated)
	return l.replyAll(c, takes, &o, command.LimitOutcome{Decisions: decisions, Allowed: allowed, Repeated: repeated,
		Assumed: assumed})
}

// limitAllIfFull is limitIfFull for CL.ALL with an ID: the first key is limited, and the others are as they
// are.
func (l *Family) limitAllIfFull(c *command.Call, err error, takes []store.LimitRequest) ([]quota.Decision, error) {
	if !l.limitsFull(err) {
		return nil, err
	}
	decisions, err := presentState(c.Context, c.View, takes)
	if err == nil {
		decisions[0] = limitedForMemory(takes[0].Size())
	}
	return decisions, err
}

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
func onceAll(ctx context.Context, takes []store.LimitRequest, peek bool, token store.Token, w wait) *allOnce {
	a := &allOnce{wait: w}
	a.Token = token
	for i := range takes {
		a.Keys = append(a.Keys, takes[i].Key)
	}
	takesAny := slices.ContainsFunc(takes, func(t store.LimitRequest) bool { return t.Lease != nil || t.Quantity != 0 })
	a.Decide = func(v store.View) (decisions []quota.Decision, taken bool, err error) {
		decisions, a.allowed, err = w.takeAll(ctx, v, takes, peek)
		return decisions, err == nil && a.allowed && !peek && !w.asks() && takesAny, err
	}
	a.Takes = func(v store.View) (bool, error) {
		if peek || w.asks() || !takesAny {
			return false, nil
		}
		_, allowed, err := v.TakeAll(ctx, takes, true)
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
	waitAt := 0
	if o.waitAt > 0 {
		waitAt = o.first + o.waitAt - 1
	}
	token, err := l.tokenOf(c, c.Words[o.first+o.idAt-1], waitAt)
	if err != nil {
		return err
	}
	w.id = command.CallID{Key: takes[0].Key, Name: token.ID, Words: token.Words}
	if taken, err := w.takeOver(c); taken || err != nil {
		return err
	}
	a := onceAll(c.Context, takes, o.peek, token, w)
	decisions, allowed, repeated, err := a.decide(c, c.View)
	switch {
	case errors.Is(err, store.ErrFull):
		decisions, err = l.limitAllIfFull(c, err, takes)
	case err != nil:
		decisions, allowed, err = l.Fallback.decideAllOnce(c, err, takes, o.peek, a)
	case !repeated && w.left > 0 && (!allowed || w.behind):
		if key, d := w.longest(c, takes, decisions); w.continues(&d) {
			return c.Wait(w.delay(key, &d))
		}
	}
	if err != nil {
		return err
	}
	for i := range takes {
		if !repeated {
			l.countKey(c, takes[i].Key, decisions[i].Limited)
		}
	}
	l.countRepeat(c, repeated)
	writeAllDecisions(c, decisions, allowed, o.ms)
	return nil
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

package decide

import (
	"context"
	"errors"
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// attempt is one run of a call. A call without WAIT has one attempt. The last attempt of a call with WAIT takes
// nothing: it only asks what the decision would be. So does the first one, if other calls already wait for one of its
// keys.
type attempt struct {
	*Decider
	call *command.Call
	of   *Call
	wait
	once     *store.Once // of a call with an ID
	judges   bool        // the parts are judged in the same step as the decision
	failed   error       // the error of the store when the standings were read
	silent   bool        // refusals are not counted for bans
	counted  bool        // the refusals have been counted, in the step
	made     *store.Once // once, if it has made a hold
	repeated bool        // the call repeats an earlier one with the same ID, and gets its decisions
}

// spend decides a call on a policy by tokens that the store has taken ahead, if there are any. It reads no standing,
// because the step that took the tokens found none. A refusal does not count for a ban.
func (a *attempt) spend() (decisions []quota.Decision, ok bool) {
	k := a.of
	s, spends := a.call.View.(store.Spender)
	if !spends || len(k.Parts) != 1 || len(k.Requests) != 1 || k.Mode != quota.Take || k.Options != (Options{}) {
		return nil, false
	}
	d, ok := s.Spend(&k.Requests[0])
	return []quota.Decision{d}, ok
}

// make makes the decision with a view: as one step, if it is more than one operation and the view can do that.
func (a *attempt) make(ctx context.Context, v store.View) (decisions []quota.Decision, allowed bool, err error) {
	decisions, allowed, err = a.makeOnce(ctx, v)
	if refused := (*store.RefusedError)(nil); a.counted && errors.As(err, &refused) {
		// The store refuses to write, because its memory is full, or it has no replicas. The call is refused all the
		// same, but the refusal is not counted.
		a.silent, a.counted = true, false
		decisions, allowed, err = a.makeOnce(ctx, v)
	}
	return decisions, allowed, err
}

func (a *attempt) makeOnce(ctx context.Context, v store.View) (decisions []quota.Decision, allowed bool, err error) {
	switch {
	case a.once != nil:
		a.once.Decide = func(v store.View) (_ []quota.Decision, taken bool, err error) {
			if decisions, allowed, err = a.step(ctx, v); len(decisions) == 0 && a.holds(allowed) {
				decisions = emptyHold
			}
			return decisions, err == nil && (allowed && a.takes() || a.holds(allowed)), err
		}
		a.once.Takes = func(v store.View) (bool, error) {
			if a.holds(len(a.of.asked) == 0) {
				return true, nil // an empty hold takes memory too
			}
			if !a.takes() {
				return false, nil
			}
			_, allowed, err := a.ask(ctx, v, quota.Peek)
			return allowed, err
		}
		if decisions, a.repeated, err = v.Once(ctx, a.once); !a.repeated && len(a.of.asked) == 0 {
			decisions = nil
		}
		if err == nil && !a.repeated && a.holds(allowed) {
			a.made = a.once
		}
		return decisions, err == nil && (a.repeated || allowed), err
	case a.judges:
		err = v.(store.Stepper).Step(ctx, a.of.keys(), func(v store.View) (err error) {
			decisions, allowed, err = a.step(ctx, v)
			return err
		})
		return decisions, allowed, err
	default:
		return a.step(ctx, v)
	}
}

// step makes the decision with a view. The store may run it several times, and only the last run counts.
func (a *attempt) step(ctx context.Context, v store.View) (decisions []quota.Decision, allowed bool, err error) {
	if err := a.failed; err != nil { // the caller then decides without the store
		a.failed = nil
		return nil, false, err
	}
	if a.counted = false; a.judges {
		if err := a.judge(ctx, v); err != nil {
			return nil, false, err
		}
	}
	if decisions, allowed, err = a.take(ctx, v); err == nil && a.left == 0 {
		a.counted = a.countRefusals(ctx, v, decisions, allowed)
	}
	return decisions, allowed, err
}

// take asks the limits. It takes nothing while earlier calls wait, when the time of the call is over, or if a policy
// refuses the call.
func (a *attempt) take(ctx context.Context, v store.View) (decisions []quota.Decision, allowed bool, err error) {
	k := a.of
	switch {
	case len(k.asked) == 0:
		return nil, !k.refused, nil
	case !k.refused && !a.asks():
		return v.TakeAll(ctx, k.asked, k.Mode)
	case !k.refused && !a.last:
		return a.ask(ctx, v, quota.Peek)
	}
	decisions, allowed, err = a.ask(ctx, v, quota.Ask)
	if err == nil && allowed && !k.refused { // there are enough tokens, but earlier calls wait for them
		d := &decisions[a.limitedBy()]
		d.Limited, d.RetryAfter = true, 1
	}
	return decisions, false, err
}

// ask asks the limits without taking anything. A call with UPTO asks for one unit.
func (a *attempt) ask(ctx context.Context, v store.View, mode quota.Mode) (
	decisions []quota.Decision, allowed bool, err error,
) {
	asked := a.of.asked
	if a.of.Mode == quota.UpTo {
		asked = slices.Clone(asked)
		for i := range asked {
			asked[i].Quantity = min(asked[i].Quantity, 1)
		}
	}
	decisions, allowed, err = v.TakeAll(ctx, asked, mode)
	for i := range decisions {
		decisions[i].Taken = 0
	}
	return decisions, allowed, err
}

// takes reports whether the attempt takes or gives back anything if the call is allowed.
func (a *attempt) takes() bool {
	if a.of.Mode == quota.Peek || a.of.refused || a.asks() {
		return false
	}
	for i := range a.of.asked {
		if r := &a.of.asked[i]; r.Lease != nil || r.Quantity != 0 {
			return true
		}
	}
	return false
}

// enter finds out whether the call has to queue, and reads its ID. taken reports whether a waiting call had the same
// ID: then this call has taken its place, and waits.
func (a *attempt) enter() (taken bool, err error) {
	if err := a.arrive(); err != nil {
		return false, err
	}
	if a.of.IDAt == 0 && a.of.HoldAt == 0 {
		return false, nil
	}
	if a.once, err = a.newOnce(); err != nil {
		return false, err
	}
	a.id = command.CallID{Key: a.once.Keys[0], Name: a.nameOfID(), Words: a.once.Token.Words}
	c := a.call
	if c.InTransaction || c.Attempt != command.FirstAttempt || c.Session == nil || !c.Session.IDsWait() {
		return false, nil
	}
	taken, err = c.Session.TakeOver(a.id, a.left)
	c.Blocks = taken
	return taken, err
}

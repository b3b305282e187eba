package decide

import (
	"bytes"
	"context"
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

// Explanation is what a call would be answered now, and what the answer depends on. A call whose Outcome is an
// Explanation is decided in mode Peek: it takes nothing, writes nothing, is not counted, and gets no reply. Everything
// that is shown of its limits is read in the same step, except for their holds.
type Explanation struct {
	MostHolds int // how many open holds are read of each key

	Call      *Call
	Mode      quota.Mode // of the call, which itself peeks
	Options   Options    // of the call
	Decisions []quota.Decision
	Allowed   bool
	Repeats   bool // the call repeats an earlier one with the same ID or HOLD, and gets its decision
	At        int64
	Limits    []LimitState     // of each request
	Standings []standing.State // of each part
	// Fails is the error of a store that does not answer. Answer is then what --store-fails says.
	Fails  error
	Answer string
}

// LimitState is what a limit of an explained call holds, whether or not the call asks it.
type LimitState struct {
	Asked    bool           // the call asks the limit
	Decision quota.Decision // of the call, if it does
	Present  quota.Decision // about a quantity of 0
	// Next and Half are the times, in ns, until one more unit, and until half of what is used, is back; 0 if nothing is
	// used.
	Next, Half int64
	Holds      []store.Hold
}

// Used returns how much of the limit is used.
func (l *LimitState) Used() int64 { return max(l.Present.Limit-l.Present.Remaining, 0) }

const errExplainsSettle command.Refusal = "ERR a call with SETTLE is not decided, so it cannot be explained"

// explain makes a call that is only explained.
func (d *Decider) explain(c *command.Call, k *Call, e *Explanation) error {
	e.Call, e.Mode, e.Options = k, k.Mode, k.Options
	k.Options, k.Mode = Options{IDAt: k.IDAt, HoldAt: k.HoldAt, HoldTime: k.HoldTime}, quota.Peek
	for i := range k.Parts {
		k.Parts[i].Request.Mode = quota.Peek
	}
	asked := keep(k.Requests)
	k.Requests = keep(asked)
	k.Reply = func(decisions []quota.Decision, allowed bool) error {
		e.Decisions, e.Allowed = slices.Clone(decisions), allowed
		return nil
	}
	err := c.View.Atomically(c.Context, k.places(c), false, func() error {
		copy(k.Requests, asked)
		return d.explainIn(c, k, e)
	})
	if err == nil {
		err = e.readHolds(c, k)
	}
	if err != nil && d.Fallback.Log != nil && isFailure(err) && c.Context.Err() == nil {
		e.Fails, e.Answer = err, Answers[d.Fallback.policy.Load()]
		return nil
	}
	return err
}

// keep returns a copy of the requests of a call, because the row may clear them before the reply.
func keep(requests []store.LimitRequest) []store.LimitRequest {
	requests = slices.Clone(requests)
	for i := range requests {
		if lease := requests[i].Lease; lease != nil {
			copied := *lease
			requests[i].Lease = &copied
		}
	}
	return requests
}

// places returns the keys of an explained call.
func (k *Call) places(c *command.Call) (places []store.KeyRef) {
	k.asked = k.Requests
	for i, key := range k.keys() {
		place := store.KeyRef{Database: c.View.Selected(), Key: key}
		if i == 0 && k.IDAt > 0 {
			place.Token = c.Words[k.IDAt]
		}
		places = append(places, place)
	}
	return places
}

// explainIn makes the explanation in a step, which the store may run several times.
func (d *Decider) explainIn(c *command.Call, k *Call, e *Explanation) (err error) {
	if err := e.readLimits(c, k); err != nil {
		return err
	}
	e.chooseQuantity(k)
	a := &attempt{Decider: d, call: c, of: k, silent: true}
	k.asked = k.Requests
	if err := a.judgeFirst(); err != nil {
		return err
	}
	if (k.IDAt > 0 || k.HoldAt > 0) && !k.refused {
		if a.once, err = a.newOnce(); err != nil {
			return err
		}
	}
	decisions, allowed, err := a.make(c.Context, c.View)
	if err != nil {
		return err
	}
	e.Repeats, e.At = a.repeated, c.View.Now()
	e.match(k, decisions)
	k.settle(decisions)
	return k.Reply(decisions, allowed)
}

// match sets the decisions of the limits that the call has asked.
func (e *Explanation) match(k *Call, decisions []quota.Decision) {
	asked := 0
	for i := range k.Requests {
		if asked < len(k.asked) && bytes.Equal(k.Requests[i].Key, k.asked[asked].Key) && k.Fits(decisions) {
			e.Limits[i].Asked, e.Limits[i].Decision = true, decisions[asked]
			asked++
		}
	}
}

// PartOf returns the index of the part that a request belongs to; -1 if it belongs to none.
func (k *Call) PartOf(request int) int {
	return slices.IndexFunc(k.Parts, func(p Part) bool {
		return p.From <= request && request < p.From+p.requests()
	})
}

// readLimits reads what the limits and the standings of a call hold.
func (e *Explanation) readLimits(c *command.Call, k *Call) (err error) {
	e.Limits, e.Standings = make([]LimitState, len(k.Requests)), make([]standing.State, len(k.Parts))
	for i := range k.Parts {
		if e.Standings[i], err = c.View.Standing(c.Context, k.Parts[i].Standing); err != nil {
			return err
		}
		k.useStanding(&k.Parts[i], c.View.Now(), &e.Standings[i])
	}
	for i := range k.Requests {
		if err = e.Limits[i].read(c.Context, c.View, k.Requests[i]); err != nil {
			return err
		}
	}
	return nil
}

// read reads what a limit holds. It asks the limit when larger quantities would be allowed, which is right for every
// kind.
func (l *LimitState) read(ctx context.Context, v store.View, r store.LimitRequest) (err error) {
	if l.Present, err = peek(ctx, v, r, 0); err != nil {
		return err
	}
	used := l.Used()
	if used == 0 || r.Lease != nil {
		return nil
	}
	for _, back := range []struct {
		quantity int64
		after    *int64
	}{{1, &l.Next}, {used - used/2, &l.Half}} {
		d, err := peek(ctx, v, r, l.Present.Remaining+back.quantity)
		if err != nil {
			return err
		}
		if *back.after = l.Present.ResetAfter; d.RetryAfter != quota.Never {
			*back.after = d.RetryAfter
		}
	}
	return nil
}

// readHolds reads the open holds of the limits, one key after another: a key may have a thousand of them.
func (e *Explanation) readHolds(c *command.Call, k *Call) (err error) {
	keeper, ok := c.View.(store.HoldKeeper)
	for i := range e.Limits {
		if !ok || e.MostHolds == 0 || k.Requests[i].Lease != nil {
			continue
		}
		if e.Limits[i].Holds, err = keeper.Holds(c.Context, k.Requests[i].Key, e.MostHolds); err != nil {
			return err
		}
		c.Yield()
	}
	return nil
}

// peek asks the limit of a request about another quantity.
func peek(ctx context.Context, v store.View, r store.LimitRequest, quantity int64) (d quota.Decision, err error) {
	r.Quantity, r.Mode, r.Leave, r.Shadow, r.Held = quantity, quota.Take, 0, 0, false
	if r.Lease != nil {
		lease := *r.Lease
		lease.Request = lease.Request.WithQuantity(quantity)
		r.Lease = &lease
	}
	decisions, _, err := v.TakeAll(ctx, []store.LimitRequest{r}, quota.Peek)
	if err != nil {
		return d, err
	}
	return decisions[0], nil
}

// chooseQuantity sets the quantity of a call with UPTO to what it would get now, at least 1.
func (e *Explanation) chooseQuantity(k *Call) {
	if e.Mode != quota.UpTo {
		return
	}
	for i := range k.Requests {
		if r := &k.Requests[i]; r.Shadow == 0 {
			fits := max(e.Limits[i].Present.Remaining-r.Leave, 1)
			for j := range k.Requests {
				k.Requests[j].Quantity = min(k.Requests[j].Quantity, fits)
			}
		}
	}
}

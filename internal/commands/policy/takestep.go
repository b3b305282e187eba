package policy

import (
	"context"
	"math"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// leaveArg is the option LEAVE, with a number, or with a part of each limit in percent. The argument of a
// part of p% is -1 - p.
var leaveArg = command.Int("n|p%").By(parseLeave).After("LEAVE").Extra()

func parseLeave(word []byte) (int64, error) {
	part := len(word) > 0 && word[len(word)-1] == '%'
	if part {
		word = word[:len(word)-1]
	}
	switch n, ok := command.ParseInteger(word, true); {
	case !ok:
		return 0, command.ErrNotAnInteger
	case n < 0:
		return 0, &quota.ArgumentError{Name: "n", Lo: 0, Hi: command.MaxInt}
	case !part:
		return n, nil
	case n > 100:
		return 0, &quota.ArgumentError{Name: "p", Lo: 0, Hi: 100}
	default:
		return -1 - n, nil
	}
}

// leaveOf returns what a call leaves of a limit of a size.
func leaveOf(leave, size int64) int64 {
	if leave >= 0 {
		return leave
	}
	percent := -1 - leave
	return size/100*percent + (size%100*percent+99)/100
}

// readOptions reads the options that few calls have. It returns an error if they do not go together.
func (t *taking) readOptions() error {
	c, mode := t.call, t.request.Mode
	t.leave = c.Option("LEAVE")
	switch {
	case mode == quota.Force && c.HasOption("LEAVE"):
		return command.ErrSyntaxAt([]byte("LEAVE"))
	case (mode == quota.Force || mode == quota.Peek) && c.HasOption("WAIT"):
		return command.ErrSyntaxAt([]byte("WAIT"))
	}
	return nil
}

// step makes the decision of a call with a view. With peek, it says what the decision would be, in mode
// UpTo about one unit. It returns the decision of each limit, and whether all of them allow the call.
func (t *taking) step(ctx context.Context, v store.View, requests []store.LimitRequest, peek bool) (
	decisions []quota.Decision, allowed bool, err error,
) {
	mode, quantity := t.request.Mode, t.request.Quantity
	if mode == quota.UpTo && peek {
		quantity = min(quantity, 1)
	}
	leaves := t.leave != 0 && quantity >= 0
	if !leaves && (peek || quantity <= 0 || mode != quota.UpTo) {
		return v.TakeAll(ctx, withQuantity(requests, quantity), peek)
	}
	return t.steps(ctx, v, requests, quantity, peek)
}

// steps is step for a call that needs several steps of the store. It has a copy of the call, which is on
// the heap; other calls allocate nothing.
func (t taking) steps(ctx context.Context, v store.View, requests []store.LimitRequest, quantity int64, peek bool) (
	decisions []quota.Decision, allowed bool, err error,
) {
	defer withQuantity(requests, t.request.Quantity)
	keys := make([]store.KeyRef, len(requests))
	for i := range requests {
		keys[i] = store.KeyRef{Database: v.Selected(), Key: requests[i].Key}
	}
	err = v.Atomically(ctx, keys, false, func() (err error) {
		if t.request.Mode == quota.UpTo && quantity > 0 && !peek {
			decisions, allowed, err = t.takeUpTo(ctx, v, requests, quantity)
		} else {
			decisions, allowed, err = t.takeLeaving(ctx, v, requests, quantity, peek)
		}
		return err
	})
	return decisions, allowed, err
}

// withQuantity sets the quantity of requests.
func withQuantity(requests []store.LimitRequest, quantity int64) []store.LimitRequest {
	for i := range requests {
		requests[i].Quantity = quantity
	}
	return requests
}

// takeLeaving takes a quantity if each limit also has what the call leaves: see quota.Leave.
func (t *taking) takeLeaving(ctx context.Context, v store.View, requests []store.LimitRequest, quantity int64,
	peek bool) (decisions []quota.Decision, allowed bool, err error) {
	if decisions, allowed, err = t.askLeaving(ctx, v, requests, quantity); !allowed || err != nil {
		return decisions, false, err
	}
	return v.TakeAll(ctx, withQuantity(requests, quantity), peek)
}

// askLeaving asks for a quantity and what the call leaves.
func (t *taking) askLeaving(ctx context.Context, v store.View, requests []store.LimitRequest, quantity int64) (
	decisions []quota.Decision, allowed bool, err error,
) {
	for i := range requests {
		leave := leaveOf(t.leave, requests[i].Size())
		if leave > math.MaxInt64-quantity { // more than any limit
			decisions, _, err = v.TakeAll(ctx, withQuantity(requests, 0), true)
			if err == nil {
				decisions[i].Limited, decisions[i].RetryAfter = true, quota.Never
			}
			return decisions, false, err
		}
		requests[i].Quantity = quantity + leave
	}
	return v.TakeAll(ctx, requests, true)
}

// takeUpTo takes the least of what the limits have, above what the call leaves.
func (t *taking) takeUpTo(ctx context.Context, v store.View, requests []store.LimitRequest, quantity int64) (
	decisions []quota.Decision, allowed bool, err error,
) {
	if decisions, _, err = v.TakeAll(ctx, withQuantity(requests, 0), true); err != nil {
		return decisions, false, err
	}
	for i := range requests {
		quantity = min(quantity, decisions[i].Remaining-leaveOf(t.leave, requests[i].Size()))
	}
	if quantity < 1 {
		return t.askLeaving(ctx, v, requests, 1)
	}
	return v.TakeAll(ctx, withQuantity(requests, quantity), false)
}

// fewRequests is the least number of requests of which a call keeps the memory; CL.ALL expects as many.
const fewRequests = 8

// requests returns a request to each limit. They are in memory of the call, and so are their keys.
func (t *taking) requests() []store.LimitRequest {
	c, limits := t.call, t.treatment.Limits
	if cap(c.Requests) < len(limits) {
		c.Requests = make([]store.LimitRequest, max(len(limits), fewRequests))
	}
	requests := c.Requests[:len(limits)]
	var ends [policies.MaxLimits]int
	// The head is made once, because it may have the hash of a long subject.
	names := policies.AppendKeyHead(c.Value[:0], t.f.prefix, t.policy, t.subject)
	head := len(names)
	for i := range limits {
		if i > 0 {
			names = append(names, names[:head]...)
		}
		names = append(names, limits[i].Label()...)
		ends[i] = len(names)
	}
	c.Value = names
	from := 0
	for i := range limits {
		requests[i] = store.LimitRequest{
			Key: names[from:ends[i]:ends[i]], Rule: ruleOf(&limits[i]), Quantity: t.request.Quantity,
		}
		if t.request.Mode == quota.Force && t.request.Quantity > 0 {
			requests[i].Mode = quota.Force
		}
		from = ends[i]
	}
	return requests
}

// ruleOf returns the rule of a limit.
func ruleOf(l *policies.Limit) store.Rule {
	switch l.Kind {
	case policies.Throttle:
		return store.Rule{Kind: store.Throttle, Throttle: l.Throttle}
	case policies.Fixed:
		return store.Rule{Kind: store.Fixed, Window: l.Window}
	case policies.Sliding:
		return store.Rule{Kind: store.Sliding, Window: l.Window}
	case policies.SlidingLog:
		return store.Rule{Kind: store.SlidingLog, Log: l.Log}
	default:
		return store.Rule{Kind: store.Quota, Window: l.Window, Cycle: l.Cycle}
	}
}

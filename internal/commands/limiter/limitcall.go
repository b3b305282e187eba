package limiter

import (
	"context"
	"errors"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Calls on limits of other families are decided as CL.ALL is, with a step and a reply of their own.

// Decide implements command.Limiters.
func (l *Family) Decide(c *command.Call, call *command.LimitCall) error {
	return l.decideAll(c, call.Requests, optionsOf(call))
}

func optionsOf(call *command.LimitCall) allOptions {
	return allOptions{peek: call.Peek, wait: call.Wait, call: call}
}

// DecideOnError implements command.Limiters.
func (l *Family) DecideOnError(c *command.Call, err error, decisions []quota.Decision, call *command.LimitCall) error {
	o := optionsOf(call)
	if errors.Is(err, store.ErrFull) && decisions == nil && len(call.Requests) == 1 {
		decisions = []quota.Decision{{Limited: true}}
	}
	decisions, allowed, err := l.decideAllOnError(c, err, decisions, call.Requests, &o)
	if err != nil {
		return err
	}
	return l.replyAll(c, call.Requests, &o, command.LimitOutcome{Decisions: decisions, Allowed: allowed, Assumed: true})
}

// Offload implements command.Limiters.
func (l *Family) Offload(c *command.Call, key []byte, wait int64) error {
	if w := waitFor(c, wait); w.left > 0 {
		return c.Wait(command.Delay{Key: key, Left: w.left})
	}
	c.Session.Offload()
	return nil
}

// CountKey implements command.Limiters.
func (l *Family) CountKey(c *command.Call, key []byte, limited bool) { l.countKey(c, key, limited) }

// step makes the decision of a call with a view.
func (o *allOptions) step(ctx context.Context, v store.View, takes []store.LimitRequest, peek bool) (
	decisions []quota.Decision, allowed bool, err error,
) {
	if o.call != nil {
		return o.call.Step(ctx, v, peek)
	}
	return v.TakeAll(ctx, takes, peek)
}

// hasID reports whether the call has an ID.
func (o *allOptions) hasID() bool { return o.idAt > 0 || o.call != nil && o.call.IDAt > 0 }

// places returns the indexes, in the words of the call, of its ID and of the word after WAIT; 0 if it has
// no WAIT.
func (o *allOptions) places() (idAt, waitAt int) {
	if o.call != nil {
		return o.call.IDAt, o.call.WaitAt
	}
	if o.waitAt > 0 {
		waitAt = o.first + o.waitAt - 1
	}
	return o.first + o.idAt - 1, waitAt
}

// keys returns the keys of a call with an ID, which belongs to the first.
func (o *allOptions) keys(takes []store.LimitRequest) (keys [][]byte) {
	if o.call != nil {
		keys = append(keys, o.call.Key)
	}
	for i := range takes {
		keys = append(keys, takes[i].Key)
	}
	return keys
}

// replyAll counts the decisions of a call, and writes its reply.
func (l *Family) replyAll(c *command.Call, takes []store.LimitRequest, o *allOptions, of command.LimitOutcome) error {
	for i := range takes {
		if !of.Repeated {
			l.countKey(c, takes[i].Key, of.Decisions[i].Limited)
		}
	}
	if o.call != nil {
		return o.call.Reply(of)
	}
	writeAllDecisions(c, of.Decisions, of.Allowed, o.ms)
	return nil
}

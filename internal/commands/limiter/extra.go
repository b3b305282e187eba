package limiter

import (
	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Few calls have the options in this file. The rows of limiters test Call.Extra in place of each of
// them, and calls that have one are decided here.

// leaveArg is the option LEAVE.
var leaveArg = command.Int("n").Min(0).After("LEAVE").Extra()

// request is a call of a limiter with such options. Its rule is the call's.
type request struct {
	key      []byte
	quantity int64
	mode     quota.Mode
	ms       bool
	token    *store.Once // of a call with an ID, when it could not be made
}

// decideExtra makes the decision of a call with such options, and writes the reply.
func (l *Family) decideExtra(c *command.Call, r request) error {
	if c.HasOption(leaveArg.Tokens...) && r.mode == quota.Force {
		return command.ErrSyntaxAt([]byte("LEAVE"))
	}
	if c.HasOption(command.WaitArg.Tokens...) && (r.mode == quota.Force || r.mode == quota.Peek) {
		return command.ErrSyntaxAt([]byte("WAIT"))
	}
	c.Rule.Leave = c.Option("LEAVE")
	defer func() { c.Rule.Leave = 0 }() // the next call may have no such option
	w := waitFor(c, c.Option("WAIT"))
	if r.quantity > 0 {
		w.arrive(c, r.key)
	}
	d, repeated, err := l.take(c, &r, &w)
	switch {
	case err != nil:
		return l.decideExtraOnError(c, err, &r)
	case w.taken:
		return nil
	case !repeated && w.continues(&d):
		return c.Wait(w.delay(r.key, &d))
	case !repeated:
		l.countKey(c, r.key, d.Limited)
	}
	if d.Limited {
		c.Limited++
	}
	writeDecision(c, &d, r.mode, r.ms)
	return nil
}

// decideExtraOnError is decideOnError. A call with an ID that --store-fails decides locally is remembered
// in the memory of this process only.
func (l *Family) decideExtraOnError(c *command.Call, err error, r *request) error {
	if r.token == nil {
		return l.decideOnError(c, err, r.key, r.quantity, r.mode, r.ms)
	}
	t := store.LimitRequest{Key: r.key, Rule: c.Rule, Quantity: r.quantity}
	d, err := l.Fallback.decideOnce(c, err, t, r.mode, r.token)
	if err != nil {
		return l.limitIfFull(c, err, r.key, c.Rule.Size(), r.mode, r.ms)
	}
	l.countDecision(c, r.key, d.Limited)
	writeDecision(c, &d, r.mode, r.ms)
	return nil
}

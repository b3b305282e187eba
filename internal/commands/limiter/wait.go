package limiter

import (
	"context"
	"time"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// A call with WAIT is decided in attempts: see command.Attempt. Only the attempts in which it may be
// admitted take. The others ask what the decision would be: the last, and the first if calls wait for
// the key already, behind which it has to wait.

// wait says how a call is decided in one attempt. The zero value is for a call that does not wait.
type wait struct {
	left   int64 // ns
	behind bool  // others wait for the key, and the call has to wait behind them
	last   bool  // the time of the call is over
	taken  bool  // the call has taken the place of one that waits
	id     command.CallID
}

// waitFor returns the wait of a call for some milliseconds. EXEC makes calls that do not wait, because
// it has locked their keys.
func waitFor(c *command.Call, ms int64) (w wait) {
	if ms == 0 || c.InTransaction {
		return w
	}
	switch c.Attempt {
	case command.FirstAttempt:
		w.left = ms * int64(time.Millisecond)
	case command.NextAttempt:
		w.left = c.Left
	case command.LastAttempt:
		w.last = true
	}
	return w
}

// arrive notes that a call takes of a key. When it arrives, it has to wait behind others that wait.
func (w *wait) arrive(c *command.Call, key []byte) {
	if w.left > 0 && c.Attempt == command.FirstAttempt && c.Session != nil && c.Session.IsAwaited(key) {
		w.behind = true
	}
}

// takeOver takes the place of a call that waits with the same ID, if there is one.
func (w *wait) takeOver(c *command.Call) (taken bool, err error) {
	if c.InTransaction || c.Attempt != command.FirstAttempt || c.Session == nil || !c.Session.IDsWait() {
		return false, nil
	}
	w.taken, err = c.Session.TakeOver(w.id, w.left)
	c.Blocks = w.taken
	return w.taken, err
}

// asks reports whether this attempt only asks what the decision would be.
func (w *wait) asks() bool { return w.behind || w.last }

// take makes the decision of an attempt with a view. A call with UPTO waits for the first unit.
func (w *wait) take(ctx context.Context, v store.View, r *request, rule *store.Rule) (quota.Decision, error) {
	if !w.asks() {
		return v.Take(ctx, r.key, rule, r.quantity, r.mode)
	}
	quantity := r.quantity
	if r.mode == quota.UpTo {
		quantity = min(quantity, 1)
	}
	d, err := v.Take(ctx, r.key, rule, quantity, quota.Peek)
	if err == nil && w.last && !d.Limited {
		d, err = v.Take(ctx, r.key, rule, 0, quota.Peek)
		refuse(&d)
	}
	d.Taken = 0
	return d, err
}

// refuse makes a decision about a quantity of 0 that of a call for which there is enough, but which others
// precede.
func refuse(d *quota.Decision) {
	if !d.Limited {
		d.Limited, d.RetryAfter = true, 1
	}
}

// continues reports whether the call waits on, given the decision of an attempt.
func (w *wait) continues(d *quota.Decision) bool {
	switch {
	case w.last:
		return false
	case !d.Limited:
		return w.behind
	}
	return d.RetryAfter != quota.Never && d.RetryAfter <= w.left
}

// delay returns how long the call waits for a key.
func (w *wait) delay(key []byte, d *quota.Decision) command.Delay {
	return command.Delay{Key: key, RetryAfter: max(d.RetryAfter, 0), Left: w.left, ID: w.id}
}

// quantityTakes is the KeyRules.Takes of rows that have a quantityArg.
func quantityTakes(c *command.Call) bool {
	for i := range c.Row.Args {
		if c.Row.Args[i].Name == quantityArg.Name {
			return c.Bound[i].N >= 0
		}
	}
	return false
}

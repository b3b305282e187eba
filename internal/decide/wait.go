package decide

import (
	"time"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// wait says how a call with WAIT is decided in one attempt: see command.Attempt. The zero value is for a call that
// does not wait.
type wait struct {
	left   int64  // ns
	behind bool   // other calls wait for a key of the call, and the call has to wait behind them
	last   bool   // the time of the call is over
	line   string // in the last attempt: the key for which the call waited
	id     command.CallID
}

// waitOf returns the wait of a call. EXEC makes calls that do not wait, because it has locked their keys.
func waitOf(c *command.Call, k *Call) (w wait) {
	if k.Wait == 0 || k.Mode == quota.Peek || c.InTransaction {
		return w
	}
	switch c.Attempt {
	case command.FirstAttempt:
		w.left = k.Wait * int64(time.Millisecond)
	case command.NextAttempt:
		w.left = c.Left
	case command.LastAttempt:
		w.last, w.line = true, c.Line
	}
	return w
}

// asks reports whether this attempt only asks what the decision would be.
func (w *wait) asks() bool { return w.behind || w.last }

// arrive finds out whether a call that arrives has to wait behind others. If the call is for a lease that its holder
// already has, it need not wait.
func (a *attempt) arrive() error {
	c := a.call
	if a.left == 0 || c.Attempt != command.FirstAttempt || c.Session == nil {
		return nil
	}
	for i := range a.of.asked {
		r := &a.of.asked[i]
		if !canLimit(r) || !c.Session.IsAwaited(r.Key) {
			continue
		}
		held, err := a.isHeld(r)
		if err != nil {
			return err
		}
		a.behind = a.behind || !held
	}
	return nil
}

// isHeld reports whether a request is for a lease that its holder already has.
func (a *attempt) isHeld(r *store.LimitRequest) (bool, error) {
	if r.Lease == nil {
		return false, nil
	}
	held := *r // with a limit of 0, a lease is granted only to its holder
	held.Lease = &store.LeaseRequest{Request: r.Lease.WithLimit(0), MaxHolders: r.Lease.MaxHolders}
	_, granted, err := a.call.View.TakeAll(a.call.Context, []store.LimitRequest{held}, quota.Peek)
	return granted, err
}

// canLimit reports whether a request can limit the call. A forced quantity cannot, even if it is beyond the limit, and
// neither can a policy in shadow mode.
func canLimit(r *store.LimitRequest) bool {
	if r.Lease != nil {
		return r.Lease.Quantity() > 0
	}
	return r.Quantity > 0 && r.Mode != quota.Force && r.Shadow == 0
}

// limitedBy returns the index of the request that limits a call whose time is over while earlier calls wait: the
// request on the key for which the call has waited. If no request has that key, because the call waited to be made
// outside the event loop, it is the first request that can limit the call.
func (a *attempt) limitedBy() int {
	first := 0
	for i := len(a.of.asked) - 1; i >= 0; i-- {
		switch r := &a.of.asked[i]; {
		case !canLimit(r):
		case string(r.Key) == a.line:
			return i
		default:
			first = i
		}
	}
	return first
}

// continues reports whether the call goes on waiting, given the decision that limits it longest.
func (w *wait) continues(d *quota.Decision) bool {
	switch {
	case w.last:
		return false
	case !d.Limited:
		return w.behind
	}
	return d.RetryAfter != quota.Never && d.RetryAfter <= w.left
}

// longest returns the key that limits a call longest, and the decision about it. If no key limits the call, it returns
// the first key for which other calls wait.
func (a *attempt) longest(decisions []quota.Decision) (key []byte, d quota.Decision) {
	asked := a.of.asked
	for i, one := range decisions {
		switch {
		case !one.Limited || asked[i].Mode == quota.Force || asked[i].Shadow != 0:
		case one.RetryAfter == quota.Never:
			return asked[i].Key, one
		case !d.Limited || one.RetryAfter > d.RetryAfter:
			key, d = asked[i].Key, one
		}
	}
	for i := 0; key == nil && a.behind && i < len(asked); i++ {
		if canLimit(&asked[i]) && a.call.Session.IsAwaited(asked[i].Key) {
			key = asked[i].Key
		}
	}
	if key == nil {
		key = asked[0].Key // the calls before it have been admitted meanwhile
	}
	return key, d
}

const (
	// keepBytes is the memory that the queue may need for each key of a call, in addition to the key.
	keepBytes = 192
	// offloadedKeyBytes estimates the length of a key of a call whose limits are not yet known.
	offloadedKeyBytes = 512
)

// delay returns how long a call waits for a key. If the call has several requests, the delay lists what it needs of
// each key that may limit it.
func (a *attempt) delay(key []byte, d *quota.Decision, decisions []quota.Decision) command.Delay {
	delay := command.Delay{Key: key, RetryAfter: max(d.RetryAfter, 0), Left: a.left, ID: a.id}
	if len(decisions) == 1 {
		return delay
	}
	for i := range a.of.asked {
		r := &a.of.asked[i]
		if !canLimit(r) {
			continue
		}
		delay.Memory += keepBytes + len(r.Key)
		need := command.Need{Key: r.Key, Cost: r.AverageTime()}
		if decisions[i].Limited {
			need.RetryAfter = max(decisions[i].RetryAfter, 1)
		}
		delay.Needs = append(delay.Needs, need)
	}
	return delay
}

// Offload has a call made outside the event loop. If the call may wait (wait, in milliseconds, is not 0), it first
// joins the queue for the key, and is decided when its turn comes.
func (d *Decider) Offload(c *command.Call, key []byte, wait int64) error {
	if w := waitOf(c, &Call{Options: Options{Wait: wait}}); w.left > 0 {
		return c.Wait(command.Delay{Key: key, Left: w.left, Memory: MaxRequests * (keepBytes + offloadedKeyBytes)})
	}
	c.Session.Offload()
	return nil
}

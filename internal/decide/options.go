package decide

import (
	"cellserver/internal/command"
	"cellserver/internal/quota"
)

// Options are the options WAIT, ID, HOLD and SETTLE of a call.
type Options struct {
	Wait int64 // how long the call may wait, in milliseconds
	// WaitAt, IDAt, HoldAt and SettleAt are the indexes of the words after these options; 0 if one was not given.
	WaitAt, IDAt, HoldAt, SettleAt int
	HoldTime                       quota.Period // after which the hold lapses
}

// CallArgs are the options of a call as a whole. Every command that decides has them, and HTTP has a parameter for
// each.
var CallArgs = append([]command.Arg{command.WaitArg, command.IDArg}, HoldArgs...)

// Args returns the less frequent options of limiters and policies. leave is the option LEAVE, which differs: for a
// policy, it may also be a percentage of each limit.
func Args(leave command.Arg) []command.Arg {
	return append([]command.Arg{leave}, CallArgs...)
}

// ModeArg is the argument for the mode of a call: see Modes.
var ModeArg = command.OneOf("mode", "PEEK", "UPTO", "FORCE")

// OptionsOf returns the options of a bound call. It refuses options that contradict the mode: a forced quantity leaves
// nothing to other calls, and neither FORCE nor PEEK waits. given reports whether the quantity is one of the words of
// the call.
func OptionsOf(c *command.Call, mode quota.Mode, quantity int64, given bool) (o Options, err error) {
	leaves := false
	for option := range c.ExtraOptions() {
		switch option.Token {
		case "LEAVE":
			leaves = true
		case "WAIT":
			o.Wait, o.WaitAt = option.N, option.At
		case command.IDOption:
			o.IDAt = option.At
		case "HOLD":
			o.HoldTime, o.HoldAt = quota.Period(option.N), option.At
		case "SETTLE":
			o.SettleAt = option.At
		}
	}
	switch {
	case mode == quota.Force && leaves:
		return o, command.ErrSyntaxAt([]byte("LEAVE"))
	case (mode == quota.Force || mode == quota.Peek) && o.WaitAt > 0:
		return o, command.ErrSyntaxAt([]byte("WAIT"))
	case o.HoldAt > 0 || o.SettleAt > 0:
		return o, o.checkHolds(c, mode, quantity, given, leaves)
	}
	return o, nil
}

// Modes maps the choice of ModeArg to a mode. The first is for a call without the argument.
var Modes = [...]quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force}

// WriteDecision writes the reply of a limiter. Times are rounded up to their unit, so that retry_after of a limited
// call is never 0, and a client that waits that long is admitted. WriteDecision takes the decision's address, because
// copying six words that were just written takes longer than its divisions.
func WriteDecision(c *command.Call, d *quota.Decision, mode quota.Mode, ms bool) {
	limited := int64(0)
	if d.Limited {
		limited = 1
	}
	retry, reset := command.WholeUnits(d.RetryAfter, ms), command.WholeUnits(d.ResetAfter, ms)
	if mode == quota.UpTo {
		c.Out.Ints(limited, d.Limit, d.Remaining, retry, reset, d.Taken)
		return
	}
	c.Out.Ints(limited, d.Limit, d.Remaining, retry, reset)
}

// CountKey counts a decision about a key for CL.TOP. Most decisions of busy servers are not sampled, and cost only this
// check.
func (d *Decider) CountKey(c *command.Call, key []byte, limited bool) (sampled bool) {
	if c.Sampling.Skip() {
		return false
	}
	d.sample(c, key, limited)
	return true
}

func (d *Decider) sample(c *command.Call, key []byte, limited bool) {
	if c.InTransaction {
		d.sampleLater(c, key, limited)
		return
	}
	d.Top.Count(&c.Sampling, c.Now(), c.View.Selected(), key, limited, uint64(c.View.Caller()))
}

// sampleLater is not a part of sample, because its closure would make every sampled call allocate.
func (d *Decider) sampleLater(c *command.Call, key []byte, limited bool) {
	now, database, caller := c.Now(), c.View.Selected(), uint64(c.View.Caller())
	c.AfterCommit(func() { d.Top.Count(&c.Sampling, now, database, key, limited, caller) })
}

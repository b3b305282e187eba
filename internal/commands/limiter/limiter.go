// Package limiter is the commands that decide: CL.THROTTLE and GCRA, the windows, leases, CL.ALL,
// and what shows their keys.
package limiter

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"cellserver/internal/command"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/topk"
)

// Family are the commands that decide, and what they share: bounds, and which keys are asked about
// most.
type Family struct {
	MaxLogLimit   int         // the largest limit of CL.SLIDINGLOG
	MaxHolders    int         // of one key's leases
	LimitWhenFull atomic.Bool // a call that finds no memory is limited, rather than an error
	Top           topk.Counter
}

// Commands lists the family in reading order.
func (l *Family) Commands() []*command.Command {
	return []*command.Command{
		l.throttle(), l.fixed(), l.sliding(), l.slidingLog(), l.acquire(), l.renew(), l.release(), l.holders(), l.all(),
		l.gcra(),
		l.inspect(), l.topKeys(),
	}
}

// What the limiters share: the words after the limit, and the five integers.

var (
	quantityArg = command.Int("quantity").Or(1)
	modeArg     = command.OneOf("mode", "PEEK", "UPTO", "FORCE")
	msArg       = command.Flag("MS")
)

// modes are modeArg's tokens, after none.
var modes = [...]quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force}

// modeIsPeek is of the rows that have a modeArg.
func modeIsPeek(c *command.Call) bool {
	mode := slices.IndexFunc(c.Row.Args, func(a command.Arg) bool { return a.Name == modeArg.Name })
	return modes[c.Bound[mode].N] == quota.Peek
}

// writeDecision writes the reply of every limiter. A time is rounded up to its unit, so that a limited
// call never says 0 and whoever waits that long is admitted. It reads the decision where it lies:
// to copy six words that were written a moment ago takes longer than the division.
func writeDecision(c *command.Call, d *quota.Decision, mode quota.Mode, ms bool) {
	limited := int64(0)
	if d.Limited {
		limited = 1
		c.Limited++
	}
	retry, reset := command.WholeUnits(d.RetryAfter, ms), command.WholeUnits(d.ResetAfter, ms)
	if mode == quota.UpTo {
		c.Out.Ints(limited, d.Limit, d.Remaining, retry, reset, d.Taken)
		return
	}
	c.Out.Ints(limited, d.Limit, d.Remaining, retry, reset)
}

// limitIfFull answers a call that a limiter could not decide. If that is for want of memory, and
// --oom-decision says so, it is limited, so that clients which let errors pass do not let it pass.
func (l *Family) limitIfFull(c *command.Call, err error, key []byte, limit int64, mode quota.Mode, ms bool) error {
	if !l.limitsFull(err) {
		return err
	}
	d := limitedForMemory(limit)
	l.countDecision(c, key, true)
	writeDecision(c, &d, mode, ms)
	return nil
}

// limitsFull says whether an error means that there is no memory for a key, and is to be told as a
// decision.
func (l *Family) limitsFull(err error) bool {
	return errors.Is(err, store.ErrFull) && l.LimitWhenFull.Load()
}

// limitedForMemory is what is said of a key that there is no memory for. The next look at what is used may
// find some.
func limitedForMemory(limit int64) quota.Decision {
	return quota.Decision{Limited: true, Limit: limit, RetryAfter: int64(time.Second)}
}

const limiterReply = "The [five integers](#the-reply-of-a-limiter); with UPTO a sixth: what was taken or, if negative, refunded."

package commands

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/topk"
)

// Limiters are the commands that decide, and what they share: bounds, and which keys are asked about most.
type Limiters struct {
	MaxLogLimit   int         // the largest limit of CL.SLIDINGLOG
	MaxHolders    int         // of one key's leases
	LimitWhenFull atomic.Bool // a call that finds no memory is limited, rather than an error
	Top           topk.Counter
}

// Commands lists the family in reading order.
func (l *Limiters) Commands() []*Command {
	return []*Command{
		l.throttle(), l.fixed(), l.sliding(), l.slidingLog(), l.acquire(), l.renew(), l.release(), l.holders(), l.all(), l.gcra(),
		l.inspect(), l.topKeys(),
	}
}

// What the limiters share: the words after the limit, and the five integers.

var (
	quantityArg = Int("quantity").Or(1)
	modeArg     = OneOf("mode", "PEEK", "UPTO", "FORCE")
	msArg       = Flag("MS")
)

// modes are modeArg's tokens, after none.
var modes = [...]quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force}

// modeIsPeek is of the rows that have a modeArg.
func modeIsPeek(c *Call) bool {
	mode := slices.IndexFunc(c.row.Args, func(a Arg) bool { return a.Name == modeArg.Name })
	return modes[c.bound[mode].n] == quota.Peek
}

// decision writes the reply of every limiter. A time is rounded up to its unit, so that a limited call never says 0 and
// whoever waits that long is admitted. It reads the decision where it lies: to copy six words that were written a moment ago
// takes longer than the division.
func (c *Call) decision(d *quota.Decision, mode quota.Mode, ms bool) {
	limited := int64(0)
	if d.Limited {
		limited = 1
		c.limits++
	}
	retry, reset := wholeUnits(d.RetryAfter, ms), wholeUnits(d.ResetAfter, ms)
	if mode == quota.UpTo {
		c.Out.Ints(limited, d.Limit, d.Remaining, retry, reset, d.Taken)
		return
	}
	c.Out.Ints(limited, d.Limit, d.Remaining, retry, reset)
}

// undecided answers a call that a limiter could not decide. If that is for want of memory, and --oom-decision says so, it is
// limited, so that clients which let errors pass do not let it pass.
func (l *Limiters) undecided(c *Call, err error, key []byte, limit int64, mode quota.Mode, ms bool) error {
	if !l.limitsFull(err) {
		return err
	}
	d := noRoom(limit)
	l.seen(c, key, true)
	c.decision(&d, mode, ms)
	return nil
}

// limitsFull says whether an error means that there is no memory for a key, and is to be told as a decision.
func (l *Limiters) limitsFull(err error) bool {
	return errors.Is(err, store.ErrFull) && l.LimitWhenFull.Load()
}

// noRoom is what is said of a key that there is no memory for. The next look at what is used may find some.
func noRoom(limit int64) quota.Decision {
	return quota.Decision{Limited: true, Limit: limit, RetryAfter: int64(time.Second)}
}

const limiterReply = "The [five integers](#the-reply-of-a-limiter); with UPTO a sixth: what was taken, or below 0 what came back."

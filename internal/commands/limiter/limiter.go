// Package limiter implements the commands of the rate limiters: CL.THROTTLE and GCRA, windows,
// leases and CL.ALL, and the commands that show their keys (CL.INSPECT, CL.TOP).
package limiter

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"cellserver/internal/command"
	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/topk"
)

// Family is the state that the limiters' commands share: bounds, and counters of the most frequent
// keys.
type Family struct {
	maxLogLimit   int          // the largest limit of CL.SLIDINGLOG
	maxHolders    int          // maximum number of holders per key
	idSeconds     int          // for which the ID of a call is remembered
	repeats       atomic.Int64 // calls that got the decision of an earlier one with the same ID
	limitWhenFull atomic.Bool  // if memory is full, a call for a new key is limited, not refused (--oom-decision)
	Top           topk.Counter // for CL.TOP
	// Fallback answers decisions while the store fails. Its Log is nil if the store cannot fail.
	Fallback Fallback
	Tokens   store.TokenCounter // for INFO; nil if the store does not count IDs
	Policies command.Policies   // for members of CL.ALL that are policies
}

// Commands returns the rows of the family, in reading order.
func (l *Family) Commands() []*command.Command {
	rows := []*command.Command{
		l.throttle(), l.fixed(), l.sliding(), l.slidingLog(), l.quota(), l.acquire(), l.renew(), l.release(), l.holders(),
		l.all(), l.gcra(), l.inspect(), l.topKeys(),
	}
	return l.Watch(rows)
}

// Watch makes rows that decide, of this family or another, notice that the store makes decisions again.
func (l *Family) Watch(rows []*command.Command) []*command.Command {
	for _, row := range rows {
		if row.Traits&command.Decides != 0 && l.Fallback.Log != nil {
			row.Run = l.Fallback.watch(row.Run)
		}
	}
	return rows
}

// The arguments that follow the limit in several commands.
var (
	quantityArg = command.Int("quantity").Or(1)
	modeArg     = command.OneOf("mode", "PEEK", "UPTO", "FORCE")
	msArg       = command.Flag("MS")
)

// modes maps the choice of modeArg to a mode; the first is for a call without the option.
var modes = [...]quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force}

// modeIsPeek is the KeyRules.Peeks of rows that have a modeArg.
func modeIsPeek(c *command.Call) bool {
	mode := slices.IndexFunc(c.Row.Args, func(a command.Arg) bool { return a.Name == modeArg.Name })
	return modes[c.Bound[mode].N] == quota.Peek
}

// writeDecision writes the reply of a limiter. Times are rounded up to their unit, so that
// retry_after of a limited call is never 0, and a client that waits that long is admitted. The
// decision is passed by its address, because copying six words that were just written takes longer
// than the divisions.
func writeDecision(c *command.Call, d *quota.Decision, mode quota.Mode, ms bool) {
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

// decideOnError handles an error of the store. If the store fails, --store-fails decides. If memory is
// full, --oom-decision does: see limitIfFull. Any other error is returned.
func (l *Family) decideOnError(c *command.Call, err error, key []byte, quantity int64, mode quota.Mode, ms bool) error {
	d, err := l.Fallback.decide(c, err, store.LimitRequest{Key: key, Rule: c.Rule, Quantity: quantity}, mode)
	if err != nil {
		return l.limitIfFull(c, err, key, c.Rule.Size(), mode, ms)
	}
	l.countDecision(c, key, d.Limited)
	writeDecision(c, &d, mode, ms)
	return nil
}

// throttleOnError is decideOnError for a limit of GCRA.
func (l *Family) throttleOnError(c *command.Call, err error, key []byte, limit gcra.Limit, quantity int64,
	mode quota.Mode, ms bool) error {
	c.Rule = store.Rule{Kind: store.Throttle, Throttle: limit}
	return l.decideOnError(c, err, key, quantity, mode, ms)
}

// limitIfFull handles an error of the store. If memory is full and --oom-decision is limit, the
// reply is a limited decision, so that clients that admit calls on errors do not admit this one.
// Any other error is returned.
func (l *Family) limitIfFull(c *command.Call, err error, key []byte, limit int64, mode quota.Mode, ms bool) error {
	if !l.limitsFull(err) {
		return err
	}
	d := limitedForMemory(limit)
	l.countDecision(c, key, true)
	writeDecision(c, &d, mode, ms)
	return nil
}

// limitsFull reports whether an error means that there is no memory for a key, and --oom-decision
// is limit.
func (l *Family) limitsFull(err error) bool {
	return errors.Is(err, store.ErrFull) && l.limitWhenFull.Load()
}

// limitedForMemory is the decision about a key for which there is no memory. The client may try again
// after a second: the next measurement of memory may find some free.
func limitedForMemory(limit int64) quota.Decision {
	return quota.Decision{Limited: true, Limit: limit, RetryAfter: int64(time.Second)}
}

const limiterReply = "The [five integers](#the-reply-of-a-limiter); with UPTO a sixth: what was taken or, if negative, refunded."

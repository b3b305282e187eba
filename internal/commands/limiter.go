package commands

import "cellserver/internal/quota"

// What the limiters share: the words after the limit, and the five integers.

var (
	quantityArg = Int("quantity").Or(1)
	modeArg     = OneOf("mode", "PEEK", "UPTO", "FORCE")
	msArg       = Flag("MS")
)

// modes are modeArg's tokens, after none.
var modes = [...]quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force}

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

const limiterReply = "The [five integers](#the-reply-of-a-limiter); with UPTO a sixth: what was taken, or below 0 what came back."

package commands

import (
	"cellserver/internal/store"
	"cellserver/internal/window"
)

// The windows: CL.FIXED, CL.SLIDING, CL.SLIDINGLOG. One grammar and one reply; each has a rule of its own.

func (l *Limiters) fixed() *Command {
	return l.windowed(Command{
		Name: "cl.fixed", Complexity: "O(1)", Summary: "Counts against a limit in a window that the first call opens (fixed window).",
	}, limitArg, func(c *Call) (err error) {
		c.rule.Kind = store.Fixed
		c.rule.Window, err = window.NewLimit(c.Int(), c.Int())
		return err
	})
}

func (l *Limiters) sliding() *Command {
	return l.windowed(Command{
		Name: "cl.sliding", Complexity: "O(1)", Summary: "Counts against a limit in a sliding window, from two counters (sliding window counter).",
	}, limitArg, func(c *Call) (err error) {
		c.rule.Kind = store.Sliding
		c.rule.Window, err = window.NewLimit(c.Int(), c.Int())
		return err
	})
}

func (l *Limiters) slidingLog() *Command {
	return l.windowed(Command{
		Name: "cl.slidinglog", Complexity: "O(log(N)) in the number of calls in view, and O(1) for each that leaves it",
		Summary: "Counts against a limit in a sliding window, exactly (sliding window log).",
	}, Int("limit"), func(c *Call) (err error) { // its limit is bounded by an option, and by a refusal that says what to use instead
		c.rule.Kind = store.SlidingLog
		c.rule.Log, err = window.NewLogLimit(c.Int(), c.Int(), l.MaxLogLimit)
		return err
	})
}

// windowed makes a window's row. rule reads the limit and the period.
func (l *Limiters) windowed(row Command, limit Arg, rule func(*Call) error) *Command {
	row.Group, row.Since, row.KeyAccess = "limiter", "1.0.0", "RW ACCESS UPDATE"
	row.Flags, row.Cost, row.Traits = Write|Fast, Constant, DecimalWords
	row.Args = []Arg{Key("key"), limit, Int("period").Min(1).Max(maxPeriod), quantityArg, modeArg, msArg}
	row.Reply, row.decides, row.peeks = limiterReply, true, modeIsPeek
	row.Run = func(c *Call) error {
		key := c.Key()
		if err := rule(c); err != nil {
			return err
		}
		quantity, mode, ms := c.Int(), modes[c.Choice()], c.Flag()
		d, err := c.View.Take(c.Context, key, &c.rule, quantity, mode)
		if err != nil {
			return l.undecided(c, err, key, c.rule.Size(), mode, ms)
		}
		l.seen(c, key, d.Limited)
		c.decision(&d, mode, ms)
		return nil
	}
	return &row
}

var limitArg = Int("limit").Min(0)

// maxPeriod bounds the period of a window and the time of a lease, in seconds: 31 years.
const maxPeriod = 1_000_000_000

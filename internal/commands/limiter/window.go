package limiter

import (
	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/limit"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

func (l *Family) fixed() *command.Command {
	return l.windowed(command.Command{
		Name: "cl.fixed", Complexity: "O(1)",
		Summary: "Counts against a limit in a window that the first call opens (fixed window).",
	}, limitArg, periodArg, func(c *command.Call) (err error) {
		c.Rule.Kind = limit.Fixed
		c.Rule.Window, err = window.NewLimit(c.Int(), c.Period())
		return err
	})
}

func (l *Family) sliding() *command.Command {
	return l.windowed(command.Command{
		Name: "cl.sliding", Complexity: "O(1)",
		Summary: "Counts against a limit in a sliding window, from two counters (sliding window counter).",
	}, limitArg, periodArg, func(c *command.Call) (err error) {
		c.Rule.Kind = limit.Sliding
		c.Rule.Window, err = window.NewLimit(c.Int(), c.Period())
		return err
	})
}

func (l *Family) slidingLog() *command.Command {
	return l.windowed(command.Command{
		Name:       "cl.slidinglog",
		Complexity: "O(log(N)) in the number of calls in view, and O(1) for each that leaves it",
		Summary:    "Counts against a limit in a sliding window, exactly (sliding window log).",
	}, command.Int("limit"), periodArg,
		// An option bounds its limit, with an error that names CL.SLIDING as the alternative.
		func(c *command.Call) (err error) {
			c.Rule.Kind = limit.SlidingLog
			c.Rule.Log, err = window.NewLogLimit(c.Int(), c.Period(), l.maxLogLimit)
			return err
		})
}

// windowed completes the row of CL.FIXED, CL.SLIDING, CL.SLIDINGLOG or CL.QUOTA, which have one
// grammar and one reply. rule reads the limit, and the period or unit, into c.Rule.
func (l *Family) windowed(row command.Command, limit, span command.Arg,
	rule func(*command.Call) error) *command.Command {
	row.Group, row.Since, row.KeyAccess = "limiter", "1.0.0", "RW ACCESS UPDATE"
	row.Flags, row.Cost, row.Traits = command.Write|command.Fast, command.Constant, command.Decides|command.NamesArguments
	row.Args = []command.Arg{command.Key("key"), limit, span, quantityArg, modeArg, msArg, leaveArg, command.WaitArg,
		command.IDArg, decide.HoldArgs[0], decide.HoldArgs[1]}
	row.Effort = decide.SettleEffort
	row.Reply, row.Keys.Peeks, row.Keys.Takes = limiterReply, modeIsPeek, quantityTakes
	row.Run = func(c *command.Call) error {
		key := c.Key()
		if err := rule(c); err != nil {
			return err
		}
		r := request{store.LimitRequest{Key: key, Quantity: c.Int()}, decide.Modes[c.Choice()], c.Flag()}
		if c.Extra {
			r.Rule = c.Rule
			return l.decideWithOptions(c, r)
		}
		d, err := c.View.Take(c.Context, key, &c.Rule, r.Quantity, r.mode)
		if err != nil {
			r.Rule = c.Rule
			return l.OnError(c, r.call(c), err, nil)
		}
		l.reply(c, key, &d, r.mode, r.ms)
		return nil
	}
	return &row
}

var (
	limitArg  = command.Int("limit").Min(0)
	periodArg = command.Period("period").Max(maxPeriod)
)

// maxPeriod bounds the period of a window and the time of a lease, in seconds. It is 31 years.
const maxPeriod = 1_000_000_000

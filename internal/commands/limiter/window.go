package limiter

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// windows are the limiters whose limit is a count and a period.
var windows = []struct {
	kind                limit.Kind
	summary, complexity string
}{
	{limit.Fixed, "Counts against a limit in a window that the first call opens (fixed window).", "O(1)"},
	{limit.Sliding, "Counts against a limit in a sliding window, from two counters (sliding window counter).", "O(1)"},
	{limit.SlidingLog, "Counts against a limit in a sliding window, exactly (sliding window log).",
		"O(log(N)) in the number of calls in view, and O(1) for each that leaves it"},
}

func windowKinds() (kinds []limit.Kind) {
	for _, w := range windows {
		kinds = append(kinds, w.kind)
	}
	return kinds
}

// windowRows returns the rows of these limiters.
func (l *Family) windowRows() (rows []*command.Command) {
	for _, w := range windows {
		size := limitArg
		if w.kind == limit.SlidingLog { // an option bounds it, with an error that names CL.SLIDING as the alternative
			size = command.Int("limit")
		}
		row := command.Command{Name: w.kind.Command(), Complexity: w.complexity, Summary: w.summary}
		rows = append(rows, l.windowed(row, func(c *command.Call) error {
			return c.Rule.SetWindow(w.kind, c.Int(), c.Period(), l.maxLogLimit)
		}, size, periodArg))
	}
	return rows
}

// windowed completes the row of a limiter that has the options and the reply of one of windows. rule reads the
// arguments of its limit into c.Rule.
func (l *Family) windowed(
	row command.Command, rule func(*command.Call) error, limit ...command.Arg,
) *command.Command {
	row.Group, row.Since, row.KeyAccess = "limiter", "1.0.0", "RW ACCESS UPDATE"
	row.Flags, row.Cost = command.Write|command.Fast, command.Constant
	row.Traits = command.Decides | command.NamesArguments
	row.Args = slices.Concat([]command.Arg{command.Key("key")}, limit,
		[]command.Arg{quantityArg, decide.ModeArg, msArg}, decide.Args(leaveArg))
	row.Effort = decide.SettleEffort
	row.Reply, row.Keys.Peeks, row.Keys.Takes = limiterReply, modeIsPeek, quantityTakes
	row.Run = func(c *command.Call) error {
		key := c.Key()
		if err := rule(c); err != nil {
			return err
		}
		r := request{store.LimitRequest{Key: key, Quantity: c.Int()}, decide.Modes[c.Choice()], c.Flag()}
		if c.Extras > 0 {
			if l.takeOnce(c, key, r.Quantity, r.mode, r.ms) {
				return nil
			}
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

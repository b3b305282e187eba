package limiter

import (
	"cellserver/internal/command"
	"cellserver/internal/gcra"
	"cellserver/internal/store"
)

func (l *Family) throttle() *command.Command {
	return &command.Command{
		Name: "cl.throttle", Group: "limiter", Since: "1.0.0", Complexity: "O(1)",
		Flags: command.Write | command.Fast, Cost: command.Constant, Traits: command.Decides | command.NamesArguments,
		Summary:   "Takes tokens from a key's quota if there are enough (GCRA).",
		KeyAccess: "RW ACCESS UPDATE",
		Args: []command.Arg{command.Key("key"), command.Int("max_burst").Min(-1).Max(command.MaxInt - 1),
			command.Int("count_per_period").Min(1), command.Period("period"),
			quantityArg, modeArg, msArg, leaveArg, command.WaitArg, command.IDArg},
		Reply: limiterReply, Keys: command.KeyRules{Peeks: modeIsPeek, Takes: quantityTakes}, Run: l.decide,
	}
}

// decide runs CL.THROTTLE. It is not a function literal, because the profile of optimized builds
// (default.pgo) refers to functions by name: the names of literals contain numbers, which each new
// command would change. The profile also counts the lines of the function: with one more line before a
// call, the compiler no longer inlines that call.
func (l *Family) decide(c *command.Call) error {
	b := &c.Bound // access by index in place of Key and Int saves 40 of 2,000 instructions
	key := c.Words[b[0].At]
	limit, err := c.LastLimit.Limit(b[1].N, b[2].N, b[3].N)
	if err != nil || c.Extra {
		return l.throttleExtra(c, limit, err)
	}
	quantity, mode, ms := b[4].N, modes[b[5].N], b[6].N != 0
	o, err := c.View.Throttle(c.Context, key, *limit, quantity, mode)
	if err != nil {
		return l.throttleOnError(c, err, key, *limit, b[4].N, mode, ms) // quantity would be spilled before the call
	}
	d := limit.Decision(o)
	l.countDecision(c, key, d.Limited)
	writeDecision(c, &d, mode, ms)
	return nil
}

// throttleExtra continues decide for a limit that is out of range, or with options of extra.go.
func (l *Family) throttleExtra(c *command.Call, limit *gcra.Limit, err error) error {
	if err != nil {
		return err
	}
	c.Rule = store.Rule{Kind: store.Throttle, Throttle: *limit}
	b := &c.Bound
	return l.decideExtra(c, request{key: c.Words[b[0].At], quantity: b[4].N, mode: modes[b[5].N], ms: b[6].N != 0})
}

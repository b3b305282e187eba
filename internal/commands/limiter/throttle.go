package limiter

import (
	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

func (l *Family) throttle() *command.Command {
	return &command.Command{
		Name: limit.Throttle.Command(), Group: "limiter", Since: "1.0.0", Complexity: "O(1)",
		Flags: command.Write | command.Fast, Cost: command.Constant, Traits: command.Decides | command.NamesArguments,
		Effort:    decide.SettleEffort,
		Summary:   "Takes tokens from a key's quota if there are enough (GCRA).",
		KeyAccess: "RW ACCESS UPDATE",
		Args: append([]command.Arg{command.Key("key"), command.Int("max_burst").Min(-1).Max(command.MaxInt - 1),
			command.Int("count_per_period").Min(1), command.Period("period"),
			quantityArg, decide.ModeArg, msArg}, decide.Args(leaveArg)...),
		Reply: limiterReply, Keys: command.KeyRules{Peeks: modeIsPeek, Takes: quantityTakes}, Run: l.runThrottle,
	}
}

// runThrottle is not a function literal, because the profile of optimized builds (default.pgo) refers to functions by
// name, and the names of literals contain numbers, which each new command would change.
func (l *Family) runThrottle(c *command.Call) error {
	b := &c.Bound // access by index in place of Key and Int saves 1 % of the instructions
	key := c.Words[b[0].At]
	limit, err := c.LastLimit.Limit(b[1].N, b[2].N, b[3].N)
	if err != nil {
		return err
	}
	quantity, mode, ms := b[4].N, decide.Modes[b[5].N], b[6].N != 0
	if c.Extras > 0 {
		return l.throttleWithOptions(c, key, limit, quantity, mode, ms)
	}
	o, err := c.View.Throttle(c.Context, key, *limit, quantity, mode)
	if err != nil {
		return l.OnError(c, throttleRequest(key, *limit, quantity, mode, ms).call(c), err, nil)
	}
	d := limit.Decision(o) // what follows is reply
	if d.Limited {
		c.Limited++
	}
	l.CountKey(c, key, d.Limited)
	decide.WriteDecision(c, &d, mode, ms)
	return nil
}

func (l *Family) throttleWithOptions(
	c *command.Call, key []byte, rate *gcra.Limit, quantity int64, mode quota.Mode, ms bool,
) error {
	c.Rule = limit.Rule{Kind: limit.Throttle, Throttle: *rate}
	if l.takeOnce(c, key, quantity, mode, ms) {
		return nil
	}
	return l.decideWithOptions(c, throttleRequest(key, *rate, quantity, mode, ms))
}

func throttleRequest(key []byte, rate gcra.Limit, quantity int64, mode quota.Mode, ms bool) request {
	rule := limit.Rule{Kind: limit.Throttle, Throttle: rate}
	return request{store.LimitRequest{Key: key, Rule: rule, Quantity: quantity}, mode, ms}
}

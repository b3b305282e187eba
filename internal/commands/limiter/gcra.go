package limiter

import (
	"bytes"
	"math"

	"cellserver/internal/command"
	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/resp"
)

// gcra is GCRA, the command that Redis built but withheld from 8.8, after client libraries had added it.
// It does what CL.THROTTLE does, on the same keys, with another syntax.
func (l *Family) gcra() *command.Command {
	return &command.Command{
		Name: "gcra", Group: "limiter", Since: "1.0.0", Complexity: "O(1)",
		Flags: command.Write | command.Fast, Cost: command.Constant, Traits: command.Decides,
		Summary:   "Takes tokens from a key's quota, as CL.THROTTLE does, with the syntax of the GCRA command that Redis built but withheld from 8.8.",
		KeyAccess: "RW ACCESS UPDATE",
		Args: []command.Arg{command.Key("key"), command.Int("max_burst").By(atLeastZero),
			command.Int("tokens_per_period").By(atLeastOne), command.Word("period"),
			command.Word("[TOKENS count]").Optional().Many()},
		Reply: "The [five integers](#the-reply-of-a-limiter).",
		Run: func(c *command.Call) error {
			key, burst, tokens := c.Key(), c.Int(), c.Int()
			seconds, ns, ok := parsePeriod(c.Word())
			if !ok {
				return command.Refusal("ERR period must be > 0 and < 1e12")
			}
			count, err := tokensOption(c.Row, c.Many())
			if err != nil {
				return err
			}
			limit, err := gcra.NewLimitOf(burst, tokens, seconds, ns)
			if err != nil {
				return errGCRAOverflow
			}
			r := throttleRequest(key, limit, count, quota.Take, false)
			if c.Outcome != nil {
				return l.Decide(c, r.call(c))
			}
			o, err := c.View.Throttle(c.Context, key, limit, count, quota.Take)
			if err != nil {
				return l.OnError(c, r.call(c), err, nil)
			}
			d := limit.Decision(o)
			l.reply(c, key, &d, quota.Take, false)
			return nil
		},
	}
}

const errGCRAOverflow command.Refusal = "ERR GCRA limiting uses microsecond accuracy. Combination of period, tokens_per_period and TOKENS would cause an overflow"

// atLeastZero reads an integer that is not negative, with Redis's errors.
func atLeastZero(word []byte) (int64, error) {
	return inRange(word, 0, "ERR value is out of range, must be positive")
}

// atLeastOne reads a positive integer, with Redis's errors.
func atLeastOne(word []byte) (int64, error) {
	return inRange(word, 1, "ERR value is out of range, value must between 1 and 9223372036854775807")
}

func inRange(word []byte, least int64, below command.Refusal) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, command.ErrNotAnInteger
	case n < least:
		return 0, below
	}
	return n, nil
}

// tokensOption reads the option TOKENS, which may follow the period.
func tokensOption(row *command.Command, words [][]byte) (int64, error) {
	switch {
	case len(words) == 0:
		return 1, nil
	case len(words) > 2:
		return 0, command.ErrArity(row)
	case !command.FoldEqual(words[0], "TOKENS"):
		return 0, command.ErrSyntax
	case len(words) == 1:
		return 0, command.Refusal("ERR Missing TOKENS value")
	}
	return atLeastOne(words[1])
}

// parsePeriod reads a period in seconds: decimal digits with at most one point, truncated to whole
// nanoseconds. It must be above 0 and below 1e12 seconds.
func parsePeriod(word []byte) (seconds, ns int64, ok bool) {
	whole, fraction, _ := bytes.Cut(word, []byte{'.'})
	if len(whole)+len(fraction) == 0 {
		return 0, 0, false
	}
	for _, c := range whole {
		if c < '0' || c > '9' || seconds > math.MaxInt64/100 {
			return 0, 0, false
		}
		seconds = seconds*10 + int64(c-'0')
	}
	unit := int64(1e8)
	for _, c := range fraction {
		if c < '0' || c > '9' {
			return 0, 0, false
		}
		ns += int64(c-'0') * unit
		unit /= 10
	}
	return seconds, ns, seconds < 1e12 && seconds+ns > 0
}

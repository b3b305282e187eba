// Package adding has the steps that a Redis or Valkey server makes itself, in a script, on a key that several processes
// write: taking from a throttle key, a fixed window, a sliding window counter or a calendar quota. With compare and set
// alone, each process would compute from a value that another process has replaced by the time its write arrives.
//
// A limiter has one definition, in packages gcra and window. The scripts repeat only a part of it: in the common cases,
// whether a quantity is allowed, and what the key holds then. A script returns what the key held before, and the
// process computes the decisions from that value, by the definition. TestScriptsMakeTheSteps compares script and
// definition in a million steps. If the key holds anything else, such as a window with another period, the script
// returns the value and changes nothing.
package adding

import (
	"cellserver/internal/calendar"
	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store/remote/ahead"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/window"
)

// maxQuantity keeps the products of the scripts below 2^53, up to which Lua's numbers are exact.
const maxQuantity = 1_000_000

// The instants for which the scripts compute, in Unix nanoseconds.
const (
	earliest = int64(1e9)
	latest   = int64(7e18) // in 2191
)

// Call is a call of a limiter that a script can make. It implements combine.Adding.
type Call struct {
	rule     limit.Rule
	quantity int64
	upTo     bool
	extra    ahead.Extra // tokens to take ahead if it is allowed
	margin   int64       // how long the key stays after its state has ended, in nanoseconds
}

// Set sets the call. It returns false, and sets nothing, if the scripts cannot make it.
func (c *Call) Set(rule *limit.Rule, quantity int64, mode quota.Mode, margin int64) bool {
	switch {
	case quantity < 1 || quantity > maxQuantity || mode != quota.Take && mode != quota.UpTo || rule.Size() < 1:
		return false
	}
	switch rule.Kind {
	case limit.Throttle, limit.Fixed, limit.Quota:
	case limit.Sliding:
		if mode == quota.UpTo {
			return false
		}
	default:
		return false
	}
	*c = Call{rule: *rule, quantity: quantity, upTo: mode == quota.UpTo, margin: margin}
	return true
}

// TakeAhead makes the call take further tokens if it is allowed.
func (c *Call) TakeAhead(extra ahead.Extra) { c.extra = extra }

// Fits reports whether one script can make the call together with a first one, at the instant now.
func (c *Call) Fits(first combine.Adding, now int64) bool {
	if now < earliest || now > latest || c.rule.Kind == limit.Throttle && int64(c.rule.Throttle.Tolerance()) > latest-now {
		return false
	}
	other, ok := first.(*Call)
	return ok && (c == other || c.rule == other.rule && c.margin == other.margin)
}

// mode returns the mode of the call.
func (c *Call) mode() quota.Mode {
	if c.upTo {
		return quota.UpTo
	}
	return quota.Take
}

// Apply returns the value that the call leaves, given a value that the script has not refused.
func (c *Call) Apply(now int64, v combine.Value) combine.Value {
	if c.rule.Kind == limit.Throttle {
		return c.applyThrottle(now, v)
	}
	var s form.State
	if v.Bytes != nil && (s.Read(v.Bytes, 0) != nil || s.Kind != c.rule.Kind) {
		return v
	}
	if v.Bytes == nil || s.Expires() <= now {
		s = form.State{}
	}
	if s.Kind = c.rule.Kind; !c.step(now, &s) {
		return v
	}
	return combine.Value{Bytes: form.Append(nil, &s), Expires: s.Expires() + c.margin}
}

func (c *Call) applyThrottle(now int64, v combine.Value) combine.Value {
	tat, _ := form.ParseTAT(v.Bytes)
	o, next, err := c.rule.Throttle.Outcome(now, tat, c.quantity, c.mode())
	if err != nil || next == tat {
		return v
	}
	if extra := c.extra.Of(c.rule.Throttle.Decision(o).Remaining); extra > 0 {
		_, next, _ = c.rule.Throttle.Outcome(now, next, extra, quota.UpTo)
	}
	return combine.Value{Bytes: form.AppendTAT(nil, next), Expires: next + c.margin}
}

// step makes the call on a state of a window, which is empty if the key does not exist. It reports whether the state
// has changed.
func (c *Call) step(now int64, s *form.State) bool {
	if s.Kind == limit.Quota {
		if s.Quota.Used == 0 {
			s.Quota, s.Cycle = window.Calendar{End: c.rule.Cycle.End(now)}, c.rule.Cycle
		} else if s.Cycle != c.rule.Cycle {
			return false
		}
	}
	d, err := c.take(now, s, c.quantity, c.mode())
	if err != nil || d.Taken == 0 {
		return false
	}
	if extra := c.extra.Of(d.Remaining); extra > 0 {
		_, _ = c.take(now, s, extra, quota.UpTo)
	}
	return true
}

func (c *Call) take(now int64, s *form.State, n int64, mode quota.Mode) (d quota.Decision, err error) {
	if s.Kind == limit.Quota {
		d, s.Quota, err = c.rule.Window.StepCalendar(now, s.Quota, n, mode)
	} else {
		d, s.Plain, err = s.Kind.Plain().Step(&c.rule, now, s.Plain, n, mode)
	}
	return d, err
}

// cycleForm returns the cycle of a quota as its form has it.
func cycleForm(c calendar.Cycle) []byte {
	s := form.State{Kind: limit.Quota, Quota: window.Calendar{Used: 1}, Cycle: c}
	const head = len("\x00cl1q") + 8 + 1
	return form.Append(nil, &s)[head:]
}

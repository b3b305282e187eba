// Package standing keeps what a policy remembers about one subject apart from its limits: whether
// it is exempt from them, whether it is banned, how often it was refused, which plan it has, and what it
// was granted. Like window it is pure arithmetic: state and instant go in, the next state comes out. The caller owns
// the clock and keeps the state.
//
// A subject is banned by hand, or because the limits have refused it too often: After times within
// Within. If After is at most MaxExact, the instants of the refusals are kept, and the count is exact,
// as in a sliding window log. A larger After is counted by a sliding window counter, which
// estimates. The first ban lasts for For, and each further one Factor times as long as the one before,
// but at most Max. The level is the number of such bans so far. It returns to 0 when Max has passed
// since the end of the last one.
//
// Each ban needs After new refusals: the count begins at 0 after a ban, and refusals during a ban do
// not count. If After or Within changes, refusals counted by the old rule still count: instants and
// counter are added up. So do refusals counted by older versions, which had only the counter.
package standing

import (
	"math"

	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// MaxReason is the length of the longest reason, in bytes.
const MaxReason = 256

// maxLevel is the highest level. From level 63 on, any ban whose Factor is 2 or more lasts for Max.
const maxLevel = math.MaxInt32

// State is the standing of a subject. In the zero State, nothing is remembered. Instants are
// nanoseconds on the clock of the caller; 0 is no instant.
type State struct {
	Exemption Term
	Ban       Term
	Level     int64          // bans because of refusals since the level was 0
	LevelEnd  int64          // when the level returns to 0
	Refusals  window.Sliding // since the last ban, if they are counted by estimate
	Recent    Recent         // since the last ban, if they are counted exactly
	Plan      Plan
	Grants    Grants
}

// MaxPlan is the length of the longest name of a plan, in bytes.
const MaxPlan = 64

// Plan is the plan that a subject has for a time. It may be one that its policy does not have any more.
type Plan struct {
	Name string
	Term
}

// Term is the time until an exemption or a ban ends.
type Term struct {
	Until  int64
	Reason string // as a person gave it; empty for a ban because of refusals
}

// Rule says which refusals lead to a ban, and how long it lasts.
type Rule struct {
	Refusals window.Limit // After - 1 in Within: the refusal that this limit does not allow leads to a ban
	For      int64        // ns: how long a ban of level 0 lasts
	Factor   int64        // 1 or more: how many times as long the ban of the next level lasts
	Max      int64        // ns: how long a ban lasts at most, and after which time the level is 0; at least For
}

// At returns the state at an instant, without what has ended by then.
func (s State) At(now int64) State {
	if now >= s.Exemption.Until {
		s.Exemption = Term{}
	}
	if now >= s.Ban.Until {
		s.Ban = Term{}
	}
	if now >= s.LevelEnd {
		s.Level, s.LevelEnd = 0, 0
	}
	if now >= s.Refusals.End {
		s.Refusals = window.Sliding{}
	}
	s.Recent = s.Recent.at(now)
	if now >= s.Plan.Until {
		s.Plan = Plan{}
	}
	s.Grants = s.Grants.at(now)
	return s
}

// Counted returns how many refusals are kept that count for a ban at an instant, including all refusals that are
// counted by estimate.
func (s *State) Counted(now int64) int64 {
	return s.Refusals.Previous + s.Refusals.Current + int64(s.Recent.at(now).Len())
}

// Exempt reports whether the subject is exempt at an instant.
func (s *State) Exempt(now int64) bool { return now < s.Exemption.Until }

// Banned reports whether the subject is banned at an instant, and how long the ban lasts from then on.
// An exempt subject may be banned too; the exemption takes precedence.
func (s *State) Banned(now int64) (rest int64, banned bool) {
	if now >= s.Ban.Until {
		return 0, false
	}
	return s.Ban.Until - now, true
}

// Expires returns the instant from which the state has no effect any more; 0 if it has none.
func (s *State) Expires() int64 {
	return max(s.Exemption.Until, s.Ban.Until, s.LevelEnd, s.Refusals.End, s.Recent.End, s.Plan.Until, s.Grants.end())
}

// Refused returns the state after a limit has refused the subject at an instant, and whether this
// refusal leads to a ban.
func (s State) Refused(now int64, r Rule) (next State, banned bool) {
	now = max(now, 0)
	next = s.At(now)
	if _, already := next.Banned(now); already {
		return next, false
	}
	period := int64(r.Refusals.Period())
	exact := next.Recent.within(now, period)
	// Only Force returns an error.
	d, _, _ := r.Refusals.StepSliding(now, next.Refusals, int64(exact.Len())+1, quota.Peek)
	switch {
	case d.Limited:
		return next.lead(now, r), true
	case r.Refusals.Size() < MaxExact:
		next.Recent = exact.and(now, period)
	default:
		_, next.Refusals, _ = r.Refusals.StepSliding(now, next.Refusals, 1, quota.Take)
	}
	return next, false
}

// lead returns the state after a refusal that leads to a ban.
func (s State) lead(now int64, r Rule) (next State) {
	next = s
	next.Refusals, next.Recent = window.Sliding{}, Recent{}
	next.Ban = Term{Until: later(now, r.duration(next.Level))}
	next.Level = min(next.Level+1, maxLevel)
	next.LevelEnd = later(next.Ban.Until, r.Max)
	return next
}

// duration returns how long a ban of a level lasts: For * Factor^level, at most Max.
func (r Rule) duration(level int64) int64 {
	if r.Factor <= 1 {
		return min(r.For, r.Max)
	}
	d := r.For
	for range min(level, 63) {
		if d > r.Max/r.Factor {
			return r.Max
		}
		d *= r.Factor
	}
	return min(d, r.Max)
}

// ExemptFor returns the state with an exemption for a time in nanoseconds; 0 ends the exemption.
func (s State) ExemptFor(now, duration int64, reason string) State {
	next := s.At(now)
	next.Exemption = term(now, duration, reason)
	return next
}

// BanFor returns the state with a ban for a time in nanoseconds; 0 ends the ban, whatever led to it.
// The level and the refusals stay as they are.
func (s State) BanFor(now, duration int64, reason string) State {
	next := s.At(now)
	next.Ban = term(now, duration, reason)
	return next
}

// Pardon returns the state without its ban, level and refusals. An exemption stays, and so do a plan and grants.
func (s State) Pardon(now int64) State {
	s = s.At(now)
	return State{Exemption: s.Exemption, Plan: s.Plan, Grants: s.Grants}
}

// PlanFor returns the state with a plan for a time in nanoseconds; 0 ends the plan.
func (s State) PlanFor(now, duration int64, name, reason string) State {
	next := s.At(now)
	if next.Plan = (Plan{}); duration > 0 {
		next.Plan = Plan{name, term(now, duration, reason)}
	}
	return next
}

func term(now, duration int64, reason string) Term {
	if duration <= 0 {
		return Term{}
	}
	return Term{Until: later(max(now, 0), duration), Reason: reason}
}

// later returns an instant and a duration added, neither negative, or the last instant there is.
func later(now, duration int64) int64 {
	if duration > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + duration
}

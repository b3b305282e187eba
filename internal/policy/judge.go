package policy

import (
	"math"
	"math/bits"

	"cellserver/internal/quota"
	"cellserver/internal/standing"
)

// Request is what a call asks of a policy, as far as its judgement depends on it.
type Request struct {
	Quantity int64
	Mode     quota.Mode
}

// Decider is what has decided a call.
type Decider uint8

const (
	ByLimit Decider = iota
	ByExemption
	ByBan
	ByOverride // one that is Unlimited or Blocked
)

// Verdict is the answer to a call.
type Verdict struct {
	quota.Decision // as the client gets it
	By             Decider
	Limit          int  // if By is ByLimit: the index of the limit
	Refused        bool // the policy refuses the call; in shadow mode it is answered as allowed
}

// JudgeStanding returns the verdict of a call that needs no decisions of limits: because the subject is
// exempt or banned, or because its override is Unlimited or Blocked. Otherwise ok is false. The standing
// may be nil.
func (p *Policy) JudgeStanding(now int64, s *standing.State, t Treatment, r Request) (v Verdict, ok bool) {
	if s != nil && s.Exempt(now) {
		return unlimited(ByExemption, r), true
	}
	if s != nil {
		if rest, banned := s.Banned(now); banned {
			return p.judgeBan(rest, t), true
		}
	}
	switch t.Effect {
	case Unlimited:
		return unlimited(ByOverride, r), true
	case Blocked:
		return p.answer(Verdict{Decision: quota.Blocked(), By: ByOverride}), true
	}
	return Verdict{}, false
}

// unlimited is the verdict of a call that no limit concerns. Nothing is stored, so a refund gives nothing back.
func unlimited(by Decider, r Request) Verdict {
	return Verdict{By: by, Decision: quota.Decision{
		Limit: math.MaxInt64, Remaining: math.MaxInt64, RetryAfter: quota.Never, Taken: max(r.Quantity, 0),
	}}
}

// judgeBan returns the verdict of a call whose subject is banned for a time in nanoseconds. It shows the
// first limit that the subject would have without the ban.
func (p *Policy) judgeBan(rest int64, t Treatment) Verdict {
	return p.answer(Verdict{By: ByBan, Decision: quota.Decision{
		Limited: true, Limit: p.limitsIn(t)[0].Size(), RetryAfter: rest, ResetAfter: rest,
	}})
}

// JudgeLimits returns the verdict of a call that the limits have decided. decisions are its
// limits' decisions, in order; a decision is Limited if its limit has refused the call.
func (p *Policy) JudgeLimits(decisions []quota.Decision) Verdict {
	i := deciding(decisions)
	return p.answer(Verdict{Decision: decisions[i], Limit: i})
}

// answer completes a verdict: in shadow mode, the client is told that the call was allowed.
func (p *Policy) answer(v Verdict) Verdict {
	v.Refused = v.Limited
	if p.Shadow && v.Limited {
		v.Limited, v.RetryAfter = false, quota.Never
	}
	return v
}

// deciding returns the index of the decision that a call is answered with: the limit with the longest
// time to wait, or, if nothing limited the call, the limit with the least part remaining; the first of equals.
func deciding(decisions []quota.Decision) (index int) {
	for i := range decisions {
		if i > 0 && decidesBefore(&decisions[i], &decisions[index]) {
			index = i
		}
	}
	return index
}

// decidesBefore reports whether a call is answered with decision a and not with b, which comes first in
// the order of the limits.
func decidesBefore(a, b *quota.Decision) bool {
	switch {
	case a.Limited != b.Limited:
		return a.Limited
	case !a.Limited:
		return lessRemains(a, b)
	case b.RetryAfter == quota.Never:
		return false
	}
	return a.RetryAfter == quota.Never || a.RetryAfter > b.RetryAfter
}

// lessRemains reports whether a smaller part of a's limit remains than of b's. It compares the exact
// fractions remaining / limit. Of a limit of 0, nothing remains.
func lessRemains(a, b *quota.Decision) bool {
	aHi, aLo := bits.Mul64(uint64(a.Remaining), uint64(max(b.Limit, 1)))
	bHi, bLo := bits.Mul64(uint64(b.Remaining), uint64(max(a.Limit, 1)))
	return aHi < bHi || aHi == bHi && aLo < bLo
}

// Deciding returns the index of the verdict that a call on several policies is answered with.
func Deciding(verdicts []Verdict) (index int) {
	for i := range verdicts {
		if i > 0 && decidesBefore(&verdicts[i].Decision, &verdicts[index].Decision) {
			index = i
		}
	}
	return index
}

// Occasion is how a call came to be refused, if that makes a difference to bans.
type Occasion uint8

const (
	AtOnce    Occasion = iota // as most calls
	AfterWait                 // its WAIT is over
	Repeated                  // it repeats a call with the same ID
	Assumed                   // the limits were not asked: a remembered denial, full memory, or a store that fails
)

// CountsForBan reports whether a call that these decisions refuse counts for a ban. It counts if it asked
// for a quantity within the limits, and so much did not remain of a limit. Modes that take nothing or always
// take do not count, and neither does a call that only its LEAVE has refused: its quantity, or the first
// unit of an UPTO, remained.
func (p *Policy) CountsForBan(r Request, o Occasion, decisions []quota.Decision) bool {
	needed := r.Quantity
	switch {
	case p.Ban == nil || p.Shadow || o != AtOnce || r.Quantity <= 0:
		return false
	case r.Mode == quota.UpTo:
		needed = 1
	case r.Mode != quota.Take:
		return false
	}
	counts := false
	for i := range decisions {
		d := &decisions[i]
		if needed > d.Limit {
			return false
		}
		counts = counts || d.Limited && needed > d.Remaining
	}
	return counts
}

// Refuse counts a refusal for a ban. It returns the next standing and, if the refusal leads to a ban, the
// verdict of the call that was refused.
func (p *Policy) Refuse(now int64, s standing.State, t Treatment) (next standing.State, v Verdict, banned bool) {
	next, banned = s.Refused(now, p.Ban.Rule)
	if !banned {
		return next, Verdict{}, false
	}
	rest, _ := next.Banned(now)
	return next, p.judgeBan(rest, t), true
}

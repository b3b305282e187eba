package decide

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

// Part is what a policy adds to a call: the requests of its limits, and the standing of its subject, which may decide
// the part before any limit is asked.
type Part struct {
	Policy    *policy.Policy
	Subject   policy.Subject
	Treatment policy.Treatment
	Request   policy.Request
	Standing  []byte // key
	Leave     int64  // the integer of LEAVE: see policy.LeaveOf
	From      int    // index of its first request; there is one for each limit of the treatment

	// Verdict is the answer of the policy. Decisions are the decisions of its limits; nil if the limits were not asked.
	Verdict   policy.Verdict
	Decisions []quota.Decision

	without *policy.Treatment // the Treatment without plan and grants; nil before they were looked for
	decided bool              // by the standing, or by an override that needs no limits
	banned  bool              // by this call
	asked   int               // index of its first request among Call.asked
}

// DefaultPlan returns the plan of a subject that has none of its own; empty if no plan applies to it.
func (p *Part) DefaultPlan() string {
	if p.Treatment.Override >= 0 || p.Treatment.Effect != policy.Limited {
		return ""
	}
	return p.Policy.DefaultPlan
}

// requests returns the number of requests of a part.
func (p *Part) requests() int { return len(p.Treatment.Limits) }

// Asked returns how many of the call's decisions are about the part.
func (p *Part) Asked() int {
	if p.decided {
		return 0
	}
	return p.requests()
}

// MayHaveStandings reports whether a subject may have a standing.
func (d *Decider) MayHaveStandings() bool {
	return d.Standings == nil || d.Standings.MayHaveStandings()
}

// judgeFirst judges the parts of a call before its decision. If each operation of the store costs a round trip, the
// parts are judged in the step of the decision instead. Then another call on the same subject, even from another
// process, comes either before the whole call or after it. A call with an ID is judged first in any case, because its
// ID is looked up after the standings.
func (a *attempt) judgeFirst() (err error) {
	c, k := a.call, a.of
	switch s, steps := c.View.(store.Stepper); {
	case k.Parts == nil:
		return nil
	case !a.MayHaveStandings():
		a.judgeWithoutStore()
		return nil
	case steps && k.IDAt == 0 && k.HoldAt == 0:
		a.judges = true
		return nil
	case steps:
		err = s.Step(c.Context, k.standings(nil), func(v store.View) error { return a.judge(c.Context, v) })
	default:
		err = a.judge(c.Context, c.View)
	}
	if err == nil || errors.Is(err, store.ErrWrongKind) {
		return err
	}
	if a.judgeWithoutStore(); len(k.asked) > 0 {
		a.failed = err
	}
	return nil
}

// judge reads the standings, and decides the parts that need no limits.
func (a *attempt) judge(ctx context.Context, v store.View) error {
	for i := range a.of.Parts {
		p := &a.of.Parts[i]
		state, err := v.Standing(ctx, p.Standing)
		if err != nil {
			return err
		}
		a.of.useStanding(p, v.Now(), &state)
		p.judge(v.Now(), &state)
	}
	a.of.ask()
	return nil
}

// judgeWithoutStore decides the parts whose override needs neither a standing nor limits.
func (a *attempt) judgeWithoutStore() {
	for i := range a.of.Parts {
		a.of.Parts[i].judge(a.call.View.Now(), nil)
	}
	a.of.ask()
}

// useStanding sets the rules of a part's requests to the limits of the subject's plan, with its grants added. The keys
// of the requests stay. It may be called again, with another standing.
func (k *Call) useStanding(p *Part, now int64, s *standing.State) {
	if len(p.Policy.Plans) == 0 && s.Grants == "" && p.without == nil {
		return
	}
	if p.without == nil {
		t := p.Treatment
		p.without = &t
	}
	p.Treatment = p.Policy.PlanFor(now, s, *p.without).Granted(now, s)
	for i := range p.Treatment.Limits {
		r := &k.Requests[p.From+i]
		r.Rule = p.Treatment.Limits[i].Rule
		if s.Grants != "" {
			r.Ahead = limit.NotAhead // tokens taken ahead would be spent after the grant has ended
		}
		if p.Leave < 0 {
			r.Leave = policy.LeaveOf(p.Leave, r.Size())
		}
	}
}

func (p *Part) judge(now int64, s *standing.State) {
	p.banned, p.Decisions = false, nil
	p.Verdict, p.decided = p.Policy.JudgeStanding(now, s, p.Treatment, p.Request)
}

// ask sets k.asked to the requests of the call, without the requests of parts that are decided.
func (k *Call) ask() {
	k.refused = false
	drop := make([]bool, len(k.Requests))
	for i := range k.Parts {
		if p := &k.Parts[i]; p.decided {
			k.refused = k.refused || p.Verdict.Limited
			for j := range p.Treatment.Limits {
				drop[p.From+j] = true
			}
		}
	}
	place := make([]int, len(k.Requests)+1) // of each request in k.asked
	k.asked = nil
	for i := range k.Requests {
		if place[i] = len(k.asked); !drop[i] {
			k.asked = append(k.asked, k.Requests[i])
		}
	}
	place[len(k.Requests)] = len(k.asked)
	for i := range k.Parts {
		k.Parts[i].asked = place[k.Parts[i].From]
	}
}

// keys returns the keys of a step of the call, each once, beginning with the key that its ID belongs to. The keys of
// the requests differ from one another and may be long, so they are compared only with the first key and the standings.
func (k *Call) keys() [][]byte {
	var first [][]byte
	if k.IDAt > 0 || k.HoldAt > 0 {
		first = append(first, k.Key)
	}
	keys := k.standings(first)
	known := keys
	for i := range k.asked {
		if key := k.asked[i].Key; !contains(known, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// standings appends the keys of the standings, each once.
func (k *Call) standings(keys [][]byte) [][]byte {
	for i := range k.Parts {
		if key := k.Parts[i].Standing; !contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func contains(keys [][]byte, key []byte) bool {
	return slices.ContainsFunc(keys, func(other []byte) bool { return bytes.Equal(key, other) })
}

// countRefusals counts a refusal by limits for the policies that ban subjects, and reports whether it has counted any.
// A refusal after a wait does not count. If a refusal leads to a ban, the ban is the verdict of the part. If a refusal
// cannot be counted, because memory is full or the store fails, the call is refused all the same.
func (a *attempt) countRefusals(ctx context.Context, v store.View, decisions []quota.Decision, allowed bool) bool {
	counted := false
	if allowed || a.silent || a.last || a.call.Attempt != command.FirstAttempt {
		return false
	}
	for i := range a.of.Parts {
		p := &a.of.Parts[i]
		if p.decided || !p.Policy.CountsForBan(p.Request, policy.AtOnce, p.of(decisions)) {
			continue
		}
		var verdict policy.Verdict
		var banned bool
		err := v.EditStanding(ctx, p.Standing, func(now int64, was standing.State) (next standing.State) {
			next, verdict, banned = p.Policy.Refuse(now, was, p.Treatment)
			return next
		})
		counted = counted || err == nil
		if p.banned = banned && err == nil; p.banned {
			p.Verdict = verdict
		}
	}
	return counted
}

// of returns the decisions of the limits of the part.
func (p *Part) of(decisions []quota.Decision) []quota.Decision {
	return decisions[p.asked : p.asked+p.requests()]
}

// settle sets the verdicts of the parts that the limits have decided.
func (k *Call) settle(decisions []quota.Decision) {
	for i := range k.Parts {
		p := &k.Parts[i]
		switch {
		case p.decided || p.banned:
			continue
		case k.Fits(decisions):
			p.Decisions = p.of(decisions)
		default:
			p.Decisions = decisions
		}
		p.Verdict = p.Policy.JudgeLimits(p.Decisions)
	}
}

// Fits reports whether there is a decision about each request. A call that repeats an earlier one gets the decisions of
// the earlier call, and its policies may have got other limits since.
func (k *Call) Fits(decisions []quota.Decision) bool { return len(decisions) == len(k.asked) }

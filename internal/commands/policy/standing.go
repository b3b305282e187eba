package policy

import (
	"errors"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

// A subject's exemption, its ban and its refusals are in one key, which few subjects have. If the store
// knows that there is no such key at all, none is looked up.

// standingKey returns the key of a subject's standing, in new memory: it is used together with the keys of the
// limits, which are in memory of the call.
func (f *Family) standingKey(s *subjectOf) []byte {
	return policies.AppendKey(nil, f.prefix, s.policy, s.subject, policies.StandingLabel)
}

// soleStandingKey is standingKey in memory of the call, for the steps that use no other key: those of the limits are
// overwritten.
func (f *Family) soleStandingKey(c *command.Call, s *subjectOf) []byte {
	c.Value = policies.AppendKey(c.Value[:0], f.prefix, s.policy, s.subject, policies.StandingLabel)
	return c.Value
}

// mayHaveStandings reports whether a subject may have a standing.
func (f *Family) mayHaveStandings() bool { return f.Standings == nil || f.Standings.MayHaveStandings() }

// judgeStanding decides a request that needs no decisions of limits; see policies.JudgeStanding.
func (f *Family) judgeStanding(c *command.Call, s *subjectOf, r policies.Request) (
	v policies.Verdict, decided bool, err error,
) {
	if !f.mayHaveStandings() {
		v, decided = s.policy.JudgeStanding(c.View.Now(), nil, s.treatment, r)
		return v, decided, nil
	}
	state, err := c.View.Standing(c.Context, f.soleStandingKey(c, s))
	if err != nil {
		return v, false, err
	}
	v, decided = s.policy.JudgeStanding(c.View.Now(), &state, s.treatment, r)
	return v, decided, nil
}

// withoutStanding continues a call whose standing could not be read. While the store fails, calls are
// answered as the settings for that say, and what an override allows or blocks needs no store.
func (t *taking) withoutStanding(err error) error {
	c := t.call
	if errors.Is(err, store.ErrWrongKind) {
		return err
	}
	if v, decided := t.policy.JudgeStanding(c.View.Now(), nil, t.treatment, t.request); decided {
		return t.reply(v, nil)
	}
	requests := t.requests()
	defer clear(requests)
	return t.f.Limiters.DecideOnError(c, err, nil, t.limitCall(requests))
}

// countRefusal counts a request that the limits have refused, if it counts for a ban. If that bans the
// subject, it returns the verdict of the ban. If the refusal cannot be counted, because memory is full or
// the store fails, the request is refused nevertheless.
func (f *Family) countRefusal(
	c *command.Call, s *subjectOf, r policies.Request, o command.LimitOutcome, decisions []quota.Decision,
) (v policies.Verdict, banned bool) {
	if o.Allowed || !s.policy.CountsForBan(r, occasionOf(c, o), decisions) {
		return v, false
	}
	key := f.soleStandingKey(c, s)
	err := c.View.EditStanding(c.Context, key, func(now int64, was standing.State) (next standing.State) {
		next, v, banned = s.policy.Refuse(now, was, s.treatment)
		return next
	})
	return v, banned && err == nil
}

// occasionOf returns how a call came to be refused.
func occasionOf(c *command.Call, o command.LimitOutcome) policies.Occasion {
	switch {
	case o.Assumed:
		return policies.Assumed
	case o.Repeated:
		return policies.Repeated
	case c.Attempt != command.FirstAttempt:
		return policies.AfterWait
	}
	return policies.AtOnce
}

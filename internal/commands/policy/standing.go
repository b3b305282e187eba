package policy

import (
	"errors"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

// A subject's exemption, its ban and its refusals are in one key, which few subjects have. If the store
// knows that there is no such key at all, none is looked up.

// standingKey returns the key of the subject's standing. It is valid until the call asks a limit.
func (t *taking) standingKey() []byte {
	c := t.call
	c.Value = policies.AppendKey(c.Value[:0], t.f.prefix, t.policy, t.subject, policies.StandingLabel)
	return c.Value
}

// judgeStanding decides a call that needs no decisions of limits; see policies.JudgeStanding.
func (t *taking) judgeStanding() (v policies.Verdict, decided bool, err error) {
	c := t.call
	if s := t.f.Standings; s != nil && !s.MayHaveStandings() {
		v, decided = t.policy.JudgeStanding(c.View.Now(), nil, t.treatment, t.request)
		return v, decided, nil
	}
	state, err := c.View.Standing(c.Context, t.standingKey())
	if err != nil {
		return v, false, err
	}
	v, decided = t.policy.JudgeStanding(c.View.Now(), &state, t.treatment, t.request)
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

// countRefusal counts a call that the limits have refused, if it counts for a ban. If that bans the
// subject, it returns the verdict of the ban. If the refusal cannot be counted, because memory is full or
// the store fails, the call is refused nevertheless.
func (t *taking) countRefusal(o command.LimitOutcome) (v policies.Verdict, banned bool) {
	c, occasion := t.call, policies.AtOnce
	switch {
	case o.Allowed:
		return v, false
	case o.Assumed:
		occasion = policies.Assumed
	case o.Repeated:
		occasion = policies.Repeated
	case c.Attempt != command.FirstAttempt:
		occasion = policies.AfterWait
	}
	if !t.policy.CountsForBan(t.request, occasion, o.Decisions) {
		return v, false
	}
	err := c.View.EditStanding(c.Context, t.standingKey(), func(now int64, s standing.State) (next standing.State) {
		next, v, banned = t.policy.Refuse(now, s, t.treatment)
		return next
	})
	return v, banned && err == nil
}

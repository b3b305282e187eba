package policy

import (
	"context"
	"errors"

	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

// If each operation of the store costs a round trip, a call reads the standing, asks the limits, and counts
// a refusal in one step. It has the same answer as in several, but for other calls on the same subject at
// the same time: these come before it or after it, also those of other processes. So if a ban or an
// exemption was answered before a call was sent, the call finds it, and no refusal is counted for a
// ban that a pardon has ended meanwhile.
//
// A call with LEAVE, WAIT or ID, and CL.ALL, read the standings first. A ban that is set between that and
// their decision is found by the next call.

// decision is what a step has decided.
type decision struct {
	verdict   policies.Verdict
	decided   bool // the verdict is the answer, whatever the limits say
	decisions []quota.Decision
	allowed   bool
	counts    bool // the step has counted a refusal
}

// stepper returns the view of a call that is made as one step.
func (t *taking) stepper() (s store.Stepper, ok bool) {
	if !t.call.Extra && t.treatment.Effect == policies.Limited {
		s, ok = t.call.View.(store.Stepper)
	}
	return s, ok
}

// decideTogether makes a call as one step. It has a copy of the call, which is on the heap.
func (t taking) decideTogether(s store.Stepper) error {
	c, limiters := t.call, t.f.Limiters
	requests := t.requests()
	defer clear(requests) // the next call expects that
	keys := [][]byte{t.f.standingKey(&t.subjectOf)}
	for i := range requests {
		keys = append(keys, requests[i].Key)
	}
	d, err := t.makeStep(c.Context, s, keys, requests, true)
	if refused := (*store.RefusedError)(nil); d.counts && errors.As(err, &refused) {
		// The store refuses to write, because its memory is full, or it has no replicas. What it cannot
		// count stays a refusal.
		d, err = t.makeStep(c.Context, s, keys, requests, false)
	}
	if err != nil {
		return limiters.DecideOnError(c, err, d.decisions, t.limitCall(requests))
	}
	for i := range d.decisions {
		limiters.CountKey(c, requests[i].Key, d.decisions[i].Limited)
	}
	if d.decided {
		return t.reply(d.verdict, nil)
	}
	return t.reply(t.policy.JudgeLimits(d.decisions), d.decisions)
}

// makeStep decides a call. The first of the keys is that of the standing, and the others are those of the
// requests. Refusals are counted if counting is set.
func (t *taking) makeStep(ctx context.Context, s store.Stepper, keys [][]byte, requests []store.LimitRequest,
	counting bool) (d decision, err error) {
	err = s.Step(ctx, keys, func(v store.View) error {
		d = decision{}
		state, err := v.Standing(ctx, keys[0])
		if err != nil {
			return err
		}
		if d.verdict, d.decided = t.policy.JudgeStanding(v.Now(), &state, t.treatment, t.request); d.decided {
			return nil
		}
		d.decisions, d.allowed, err = t.step(ctx, v, requests, t.request.Mode == quota.Peek)
		d.counts = err == nil && counting && !d.allowed &&
			t.policy.CountsForBan(t.request, policies.AtOnce, d.decisions)
		if !d.counts {
			return err
		}
		return v.EditStanding(ctx, keys[0], func(now int64, was standing.State) (next standing.State) {
			next, d.verdict, d.decided = t.policy.Refuse(now, was, t.treatment)
			return next
		})
	})
	return d, err
}

package policy

import (
	"cellserver/internal/decide"
	"cellserver/internal/quota"
)

// settle makes a call with SETTLE. Neither the standing of the subject nor shadow mode matters: what was charged is
// corrected. It has a copy of the call, which is on the heap: see decision.
func (t taking) settle(options decide.Options) error {
	c, requests := t.call, t.requests()
	defer clear(requests) // the next call expects that
	k := t.decision(requests)
	k.Options = options
	c.Work += decide.SettleWork + max(len(requests)-1, 0)*limitWork
	force := t.Request.Mode == quota.Force
	t.Request.Mode = quota.UpTo // whose reply has a sixth integer
	k.Reply = func(decisions []quota.Decision, _ bool) error {
		t.Decisions = decisions
		if len(decisions) > 0 {
			t.Verdict = t.Policy.JudgeLimits(decisions)
		} else {
			t.Verdict, _ = t.Policy.JudgeStanding(c.View.Now(), nil, t.Treatment, t.Request)
			t.Verdict.Limited, t.Verdict.Taken = false, 0
		}
		t.write(&t.Verdict)
		return nil
	}
	return t.f.Settle(c, k, t.Request.Quantity, force)
}

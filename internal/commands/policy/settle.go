package policy

import (
	"cellserver/internal/decide"
	"cellserver/internal/quota"
)

// settle makes a call with SETTLE. It corrects what was charged, whether or not the subject is banned or exempt now,
// and in shadow mode too. It keeps a copy of the call on the heap: see decision.
func (t taking) settle(options decide.Options) error {
	c, requests := t.call, t.requests()
	defer clear(requests) // the next call expects zero values
	k := t.decision(requests)
	k.Options = options
	c.Work += decide.SettleWork + max(len(requests)-1, 0)*limitWork
	force := t.Request.Mode == quota.Force
	k.Parts[0].Request.Mode = quota.UpTo // its reply has a sixth integer
	k.Reply = func([]quota.Decision, bool) error {
		t.Part = k.Parts[0]
		t.write(&t.Verdict)
		return nil
	}
	return t.f.Settle(c, k, t.Request.Quantity, force)
}

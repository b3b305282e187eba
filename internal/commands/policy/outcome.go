package policy

import (
	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
)

// tell stores the outcome of a call with VERBOSE as a value if the caller wants one: a request over HTTP would
// otherwise have to parse the reply. It reports whether the value replaces the reply: see command.Call.Outcome.
func (t *taking) tell() bool {
	v, decisions := &t.Verdict, t.Decisions
	to, wanted := t.call.Outcome.(*policies.Outcomes)
	waited := t.call.Attempt != command.FirstAttempt
	if !wanted && !waited {
		return false
	}
	if to == nil {
		to = new(policies.Outcomes)
		t.call.Outcome = to
	}
	o := to.Add()
	o.Policy, o.By, o.Allowed, o.Shadow = t.Policy.Name, t.decider(), !v.Limited, t.Policy.Shadow
	o.Decision, o.Numbers = t.integers(&v.Decision), 5
	if t.Request.Mode == quota.UpTo {
		o.Numbers = 6
	}
	for i := range decisions {
		if v.Limited && decisions[i].Limited {
			name := t.Policy.Name
			if len(decisions) > 1 {
				name += "." + t.Treatment.Limits[i].Label()
			}
			o.Violated = append(o.Violated, name)
		}
	}
	o.Fields = t.fields(o.Fields)
	if !waited {
		t.call.Out.Status("OK")
	}
	return !waited
}

func (t *taking) integers(d *quota.Decision) [6]int64 {
	limited := int64(0)
	if d.Limited {
		limited = 1
	}
	retry, reset := command.WholeUnits(d.RetryAfter, t.ms), command.WholeUnits(d.ResetAfter, t.ms)
	return [6]int64{limited, d.Limit, d.Remaining, retry, reset, d.Taken}
}

// fields appends the fields of an HTTP response.
func (t *taking) fields(dst []policies.Field) []policies.Field {
	report := policies.Report{Policy: t.Policy, Treatment: t.Treatment, Decisions: t.Decisions, Verdict: t.Verdict}
	return policies.Fields(dst, []policies.Report{report}, t.call.Unix(t.call.View.Now())/1e9)
}

package policy

import (
	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
)

// told is a session that may want to be told the outcome of a call with VERBOSE: requests over HTTP, which
// would otherwise read the reply and write it again. A call that is not made in a turn of its session has no
// session, and so a reply.
type told interface {
	// Outcome returns where the outcome is written; nil for a reply.
	Outcome() *policies.Outcome
}

// tell tells the session the outcome of a call, if it wants that. The reply is then OK.
func (t *taking) tell(v policies.Verdict, decisions []quota.Decision) bool {
	session, ok := t.call.Session.(told)
	if !ok {
		return false
	}
	o := session.Outcome()
	if o == nil {
		return false
	}
	o.Reset()
	o.Policy, o.By, o.Allowed, o.Shadow = t.policy.Name, t.decider(v), !v.Limited, t.policy.Shadow
	o.Decision, o.Numbers = t.integers(&v.Decision), 5
	if t.request.Mode == quota.UpTo {
		o.Numbers = 6
	}
	for i := range decisions {
		if v.Limited && decisions[i].Limited {
			name := t.policy.Name
			if len(decisions) > 1 {
				name += "." + t.treatment.Limits[i].Label()
			}
			o.Violated = append(o.Violated, name)
		}
	}
	o.Fields = t.fields(o.Fields, v, decisions)
	t.call.Out.Status("OK")
	return true
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
func (t *taking) fields(dst []policies.Field, v policies.Verdict, decisions []quota.Decision) []policies.Field {
	report := policies.Report{Policy: t.policy, Treatment: t.treatment, Decisions: decisions, Verdict: v}
	return policies.Fields(dst, []policies.Report{report}, t.call.Unix(t.call.View.Now())/1e9)
}

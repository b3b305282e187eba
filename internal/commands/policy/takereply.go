package policy

import (
	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/stats"
)

// reply writes the reply of a call. The decisions are those of the limits; nil if they were not asked.
func (t *taking) reply(v policies.Verdict, decisions []quota.Decision) error {
	c, result := t.call, resultOf(&v)
	t.f.count(c, t.policy, t.request.Mode, result)
	switch result {
	case stats.Limited:
		c.Limited++
	case stats.Shadow:
		countShadow(c)
	}
	if !t.verbose {
		writeDecision(c, &v.Decision, t.request.Mode, t.ms)
		return nil
	}
	if len(decisions) != len(t.treatment.Limits) {
		decisions = nil // of an earlier call with the same ID, before the policy got other limits
	}
	if !t.tell(v, decisions) {
		t.writeVerbose(v, decisions)
	}
	return nil
}

// writeDecision is that of the family of limiters. One function for both, in package command, made
// CL.THROTTLE 13 instructions longer: it would no longer be the one of the profile that the compiler uses.
func writeDecision(c *command.Call, d *quota.Decision, mode quota.Mode, ms bool) {
	limited := int64(0)
	if d.Limited {
		limited = 1
	}
	retry, reset := command.WholeUnits(d.RetryAfter, ms), command.WholeUnits(d.ResetAfter, ms)
	if mode == quota.UpTo {
		c.Out.Ints(limited, d.Limit, d.Remaining, retry, reset, d.Taken)
		return
	}
	c.Out.Ints(limited, d.Limit, d.Remaining, retry, reset)
}

// writeVerbose writes the map of a call with VERBOSE.
func (t *taking) writeVerbose(v policies.Verdict, decisions []quota.Decision) {
	c := t.call
	c.Work += (len(decisions) + 1) * limitWork
	c.Out.Map(7)
	c.Out.BulkString("allowed")
	c.Out.Bool(!v.Limited)
	c.Out.BulkString("policy")
	c.Out.BulkString(t.policy.Name)
	c.Out.BulkString("decided_by")
	c.Out.BulkString(t.decider(v))
	c.Out.BulkString("shadow")
	c.Out.Bool(t.policy.Shadow)
	c.Out.BulkString("decision")
	writeDecision(c, &v.Decision, t.request.Mode, t.ms)
	c.Out.BulkString("limits")
	c.Out.Map(len(decisions))
	for i := range decisions {
		c.Out.BulkString(t.treatment.Limits[i].Label())
		writeDecision(c, &decisions[i], t.request.Mode, t.ms)
	}
	fields := t.fields(nil, v, decisions)
	c.Out.BulkString("fields")
	c.Out.Map(len(fields))
	for _, field := range fields {
		c.Out.BulkString(field.Name)
		c.Out.BulkString(field.Value)
	}
}

// decider names what has decided a call.
func (t *taking) decider(v policies.Verdict) string {
	switch v.By {
	case policies.ByLimit:
		if v.Limit >= len(t.treatment.Limits) {
			return "limit" // which the policy does not have any more: see reply
		}
		return t.treatment.Limits[v.Limit].Label()
	case policies.ByExemption:
		return "exemption"
	case policies.ByBan:
		return "ban"
	default:
		return "override"
	}
}

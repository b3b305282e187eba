package policy

import (
	"cellserver/internal/decide"
	policies "cellserver/internal/policy"
	"cellserver/internal/stats"
)

// reply counts the verdict of a call, and writes the reply.
func (t *taking) reply(v policies.Verdict) {
	c, result := t.call, resultOf(&v)
	t.f.count(c, t.Policy, t.Request.Mode, result)
	switch result {
	case stats.Limited, stats.Banned:
		c.Limited++
	case stats.Shadow:
		countShadow(c)
	}
	t.write(&v)
}

// write writes the reply of a call.
func (t *taking) write(v *policies.Verdict) {
	if !t.verbose {
		decide.WriteDecision(t.call, &v.Decision, t.Request.Mode, t.ms)
		return
	}
	if len(t.Decisions) != len(t.Treatment.Limits) {
		t.Decisions = nil // of an earlier call with the same ID, before the policy got other limits
	}
	t.writeVerbose()
}

// writeVerbose writes the map of a call with VERBOSE.
func (t *taking) writeVerbose() {
	if t.tell() {
		return
	}
	c, v, decisions := t.call, &t.Verdict, t.Decisions
	c.Work += (len(decisions) + 1) * limitWork
	c.Out.Map(7)
	c.Out.Field("allowed").Bool(!v.Limited)
	c.Out.Field("policy").BulkString(t.Policy.Name)
	c.Out.Field("decided_by").BulkString(t.decider())
	c.Out.Field("shadow").Bool(t.Policy.Shadow)
	c.Out.BulkString("decision")
	decide.WriteDecision(c, &v.Decision, t.Request.Mode, t.ms)
	c.Out.Field("limits").Map(len(decisions))
	for i := range decisions {
		c.Out.BulkString(t.Treatment.Limits[i].Label())
		decide.WriteDecision(c, &decisions[i], t.Request.Mode, t.ms)
	}
	fields := t.fields(nil)
	c.Out.Field("fields").Map(len(fields))
	for _, field := range fields {
		c.Out.Field(field.Name).BulkString(field.Value)
	}
}

// decider names the limit or rule that has decided a call, for decided_by.
func (t *taking) decider() string {
	switch v := &t.Verdict; v.By {
	case policies.ByLimit:
		if v.Limit >= len(t.Treatment.Limits) {
			return "limit" // of an earlier call with the same ID; the policy no longer has this limit: see write
		}
		return t.Treatment.Limits[v.Limit].Label()
	case policies.ByExemption:
		return "exemption"
	case policies.ByBan:
		return "ban"
	default:
		return "override"
	}
}

package explain

import (
	"fmt"
	"strconv"
	"time"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/policy"
	"cellserver/internal/quota"
)

// allows reports whether the call would be allowed.
func (x *explanation) allows() bool {
	switch k := x.Call; {
	case x.Fails != nil:
		return x.Answer == "allow"
	case len(k.Parts) == 1 && len(k.Parts[0].Treatment.Limits) == len(k.Requests):
		v := &k.Parts[0].Verdict // of the whole call; in shadow mode, it allows what the limits do not
		return !v.Limited || v.By == policy.ByLimit && len(k.Requests) > 0 && x.isForced(0)
	}
	return x.Allowed
}

// isForced reports whether the call takes from a limit even beyond the limit.
func (x *explanation) isForced(i int) bool { return x.Call.Requests[i].Mode == quota.Force }

// retryAfter returns the time until the call would be allowed, in ns.
func (x *explanation) retryAfter() int64 {
	if x.Fails != nil {
		return int64(time.Second) // as --store-fails deny answers
	}
	var decisions []quota.Decision
	for i := range x.Call.Parts {
		decisions = append(decisions, x.Call.Parts[i].Verdict.Decision)
	}
	for i := range x.Limits {
		if x.Call.PartOf(i) < 0 {
			decisions = append(decisions, x.Limits[i].Decision)
		}
	}
	retry, _ := quota.LongestRetry(decisions)
	return retry
}

// decider names what decides a part: exemption, ban, override, or the label of a limit.
func (x *explanation) decider(part int) string {
	p := &x.Call.Parts[part]
	switch p.Verdict.By {
	case policy.ByExemption:
		return "exemption"
	case policy.ByBan:
		return "ban"
	case policy.ByOverride:
		return "override"
	}
	if x.Fails != nil || p.Verdict.Limit >= len(p.Treatment.Limits) {
		return "" // the call repeats an earlier one, or the store does not answer
	}
	return p.Treatment.Limits[p.Verdict.Limit].Label()
}

// name returns the name of a limit: its kind, or the policy and its label.
func (x *explanation) name(i int) string {
	k := x.Call
	part := k.PartOf(i)
	if part < 0 {
		return k.Requests[i].Rule.Kind.Word()
	}
	p := &k.Parts[part]
	return p.Policy.Name + "." + p.Treatment.Limits[i-p.From].Label()
}

// why returns the explanation as lines for people.
func (x *explanation) why() (lines []string) {
	if x.Fails != nil {
		return []string{"the store does not answer (" + x.Fails.Error() + "): --store-fails says " + x.Answer}
	}
	if x.allows() {
		lines = append(lines, "the call would be allowed")
	} else {
		lines = append(lines, "the call would be limited")
	}
	if x.Repeats {
		return append(lines, "a call with this ID was decided before, and its decision is the answer")
	}
	for i := range x.Call.Parts {
		lines = append(lines, x.whyPart(i)...)
	}
	for i := range x.Limits {
		lines = append(lines, x.whyLimit(i)...)
	}
	if wait := x.Options.Wait * int64(time.Millisecond); wait > 0 && !x.allows() {
		if retry := x.retryAfter(); retry != quota.Never && retry <= wait {
			lines = append(lines, "with WAIT, the call waits for that")
		} else {
			lines = append(lines, "the call does not wait, because that takes longer than its WAIT")
		}
	}
	if x.family.IsFull() {
		lines = append(lines, "memory is full: a call that needs a new key is refused")
	}
	return lines
}

// whyPart says what a policy adds to the call.
func (x *explanation) whyPart(i int) (lines []string) {
	p := &x.Call.Parts[i]
	name, v := p.Policy.Name, &p.Verdict
	switch v.By {
	case policy.ByExemption:
		lines = append(lines, fmt.Sprintf("the subject is exempt from %s %s", name,
			term(x.Standings[i].Exemption.Until-x.At)))
	case policy.ByBan:
		lines = append(lines, fmt.Sprintf("the subject is banned from %s %s", name,
			term(x.Standings[i].Ban.Until-x.At)))
	}
	switch {
	case p.Treatment.Override >= 0:
		lines = append(lines, fmt.Sprintf("override %d of %s is for the subject: %s", p.Treatment.Override+1, name,
			p.Treatment.Effect))
	case p.Treatment.Effect == policy.Blocked:
		lines = append(lines, "the subject is too long to be compared with the patterns of "+name+", so it is blocked")
	}
	if p.Treatment.Plan != "" {
		lines = append(lines, fmt.Sprintf("the subject has plan %s of %s %s", p.Treatment.Plan, name,
			term(x.Standings[i].Plan.Until-x.At)))
	} else if plan := x.Standings[i].At(x.At).Plan; plan.Name != "" {
		lines = append(lines, fmt.Sprintf("the subject was given plan %s, which does not matter: it has an override, or %s has no such plan",
			plan.Name, name))
	}
	lines = append(lines, x.whyGrants(i)...)
	if v.Refused && !v.Limited {
		lines = append(lines, name+" refuses the call, but is in shadow mode")
	}
	if n := x.Standings[i].Counted(x.At); n > 0 && p.Policy.Ban != nil && v.By == policy.ByLimit {
		lines = append(lines, fmt.Sprintf("refusals that count for a ban from %s: %d", name, n))
	}
	return lines
}

// whyGrants says what the subject of a part was granted.
func (x *explanation) whyGrants(i int) (lines []string) {
	p := &x.Call.Parts[i]
	for _, grant := range x.Standings[i].At(x.At).Grants.List() {
		line := fmt.Sprintf("the subject was granted %d more of %s.%s for %s more", grant.Quantity, p.Policy.Name, grant.Label,
			duration(grant.Until-x.At))
		if at := p.Treatment.Find(grant.Label); at < 0 || !p.Treatment.Limits[at].Grantable() {
			line += ", which does not matter: it has no such limit"
		}
		lines = append(lines, line)
	}
	return lines
}

// whyLimit says how a limit decides.
func (x *explanation) whyLimit(i int) (lines []string) {
	r, l := &x.Call.Requests[i], &x.Limits[i]
	name, quantity, unit := x.name(i), r.Quantity, ""
	if x.Call.PartOf(i) < 0 {
		name += " " + strconv.Quote(command.Prefix(r.Key, maxShownKey))
	}
	if r.Lease != nil {
		quantity, unit = r.Lease.Quantity(), " permits"
	}
	state := fmt.Sprintf("%s: %d of %d%s used", name, l.Used(), l.Present.Limit, unit)
	switch {
	case !l.Asked:
		state += ", which does not matter"
	case x.isForced(i):
		state += fmt.Sprintf(", and %d are taken in any case", quantity)
	case l.Decision.Limited && l.Decision.RetryAfter == quota.Never:
		state += fmt.Sprintf(", and %d can never be had at once", quantity)
	case l.Decision.Limited:
		state += fmt.Sprintf(", and %d can be had in %s", quantity, duration(l.Decision.RetryAfter))
	default:
		state += fmt.Sprintf(", and %d can be had", quantity)
	}
	lines = append(lines, state)
	if l.Used() > 0 && r.Rule.Kind != limit.Lease {
		lines = append(lines, fmt.Sprintf("%s: one comes back in %s, half in %s, all in %s", name, duration(l.Next),
			duration(l.Half), duration(l.Present.ResetAfter)))
	}
	if n := len(l.Holds); n > 0 {
		lines = append(lines, fmt.Sprintf("%s: open holds may give some back (%s listed)", name, atMost(n)))
	}
	if n := len(x.waiting(i)); n > 0 {
		lines = append(lines, fmt.Sprintf("%s: calls wait for it (%s listed), and a call with WAIT waits behind them", name,
			atMost(n)))
	}
	return lines
}

// maxShownKey bounds the bytes of a key in a line.
const maxShownKey = 64

// atMost says how many of a list are shown.
func atMost(n int) string {
	if n == most {
		return fmt.Sprintf("the first %d", n)
	}
	return fmt.Sprintf("%d", n)
}

// forGood is less than the time of a plan that was given for good, and more than anybody writes.
const forGood = int64(50 * 365 * 24 * time.Hour)

// term says how much longer something lasts.
func term(ns int64) string {
	if ns > forGood {
		return "for good"
	}
	return "for " + duration(ns) + " more"
}

// duration writes a time for people, rounded up to milliseconds.
func duration(ns int64) string { return (time.Duration(milliseconds(ns)) * time.Millisecond).String() }

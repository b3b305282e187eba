package policy

import (
	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// modes maps the choice of the mode to a mode; the first is for a call without the option.
var modes = [...]quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force}

func (f *Family) take() *command.Command {
	return &command.Command{
		Name: "cl.take", Group: "limiter", Since: "1.0.0", Complexity: "O(N) in the number of limits and overrides",
		// A transaction locks all keys, because those of a call depend on the policies.
		Flags: command.Write | command.Fast, Cost: command.Constant,
		Traits:  command.Decides | command.SeveralSteps | command.AnyKey,
		Summary: "Takes from the limits of a policy for a subject, all or none.", KeyAccess: "RW ACCESS UPDATE",
		Args: []command.Arg{command.Key("subject"), command.Word("policy"), command.Int("quantity").Or(1),
			command.OneOf("mode", "PEEK", "UPTO", "FORCE"), command.Flag("MS"), command.Flag("VERBOSE")},
		Keys: command.KeyRules{Rights: f.rights},
		Reply: `The [five integers](#the-reply-of-a-limiter) of the limit that decides: of those that refused the call, the one with
the longest retry_after; if none did, the one of which the least part remains. With UPTO a sixth: what was taken. With
VERBOSE a map: allowed, policy, decided_by, shadow, limits (the five integers of each), fields (of an HTTP response).`,
		Run: f.runTake,
	}
}

// rights returns what the key patterns of users are checked against: the beginning of all keys of the
// subject.
func (f *Family) rights(keys, words [][]byte) [][]byte {
	p, err := f.find(words[2])
	if err != nil { // the call is refused later, if the user may make it
		return append(keys, append(append([]byte(f.prefix), words[2]...), ':'))
	}
	return append(keys, policies.AppendKeyHead(nil, f.prefix, p, p.Subject(words[1])))
}

// taking is a call of CL.TAKE.
type taking struct {
	f         *Family
	call      *command.Call
	policy    *policies.Policy
	subject   policies.Subject
	treatment policies.Treatment
	request   policies.Request
}

func (f *Family) runTake(c *command.Call) error {
	text, name := c.Key(), c.Word()
	t := taking{f: f, call: c, request: policies.Request{Quantity: c.Int(), Mode: modes[c.Choice()]}}
	ms, verbose := c.Flag(), c.Flag()
	var err error
	if t.policy, err = f.find(name); err != nil {
		return err
	}
	if t.subject, t.treatment, err = treat(t.policy, text); err != nil {
		return err
	}
	v, decided := t.policy.JudgeStanding(c.View.Now(), nil, t.treatment, t.request)
	var one [1]quota.Decision
	var decisions []quota.Decision
	if !decided {
		if len(t.treatment.Limits) == 1 {
			decisions = one[:]
			one[0], err = t.decideOne(&t.treatment.Limits[0])
		} else {
			decisions, err = t.decide()
		}
		if err != nil {
			return err
		}
		v = t.policy.JudgeLimits(decisions)
	}
	if v.Limited {
		c.Limited++
	}
	if verbose {
		t.writeVerbose(v, decisions, ms)
		return nil
	}
	writeDecision(c, &v.Decision, t.request.Mode, ms)
	return nil
}

// decideOne asks the only limit.
func (t *taking) decideOne(l *policies.Limit) (quota.Decision, error) {
	c := t.call
	c.Value = policies.AppendKey(c.Value[:0], t.f.prefix, t.policy, t.subject, l.Label())
	if l.Kind == policies.Throttle {
		o, err := c.View.Throttle(c.Context, c.Value, l.Throttle, t.request.Quantity, t.request.Mode)
		return l.Throttle.Decision(o), err
	}
	c.Rule = ruleOf(l)
	return c.View.Take(c.Context, c.Value, &c.Rule, t.request.Quantity, t.request.Mode)
}

// decide asks several limits.
func (t *taking) decide() ([]quota.Decision, error) {
	requests := t.requests()
	defer clear(requests) // they refer to memory that is reused
	c, mode := t.call, t.request.Mode
	if t.request.Quantity > 0 && (mode == quota.UpTo || mode == quota.Force) {
		return t.decideTogether(requests)
	}
	decisions, _, err := c.View.TakeAll(c.Context, requests, mode == quota.Peek)
	return decisions, err
}

// decideTogether makes a call with UPTO or FORCE on several limits, in one atomic step.
func (t taking) decideTogether(requests []store.LimitRequest) (decisions []quota.Decision, err error) {
	c := t.call
	keys := make([]store.KeyRef, len(requests))
	for i := range requests {
		keys[i] = store.KeyRef{Database: c.View.Selected(), Key: requests[i].Key}
	}
	quantity := t.request.Quantity
	err = c.View.Atomically(c.Context, keys, false, func() (err error) {
		if t.request.Mode == quota.Force {
			decisions, err = t.force(requests)
			return err
		}
		least := quantity
		for i := range requests {
			d, err := c.View.Take(c.Context, requests[i].Key, &requests[i].Rule, 0, quota.Peek)
			if err != nil {
				return err
			}
			least = min(least, d.Remaining)
		}
		for i := range requests {
			requests[i].Quantity = max(least, 1)
		}
		decisions, _, err = c.View.TakeAll(c.Context, requests, false)
		return err
	})
	return decisions, err
}

// force takes the quantity from each limit.
func (t *taking) force(requests []store.LimitRequest) ([]quota.Decision, error) {
	decisions := make([]quota.Decision, len(requests))
	for i := range requests {
		r := &requests[i]
		var err error
		if decisions[i], err = t.call.View.Take(t.call.Context, r.Key, &r.Rule, r.Quantity, quota.Force); err != nil {
			return nil, err
		}
	}
	return decisions, nil
}

// requests returns a request to each limit. They are in memory of the call, and so are their keys.
func (t *taking) requests() []store.LimitRequest {
	c, limits := t.call, t.treatment.Limits
	if cap(c.Requests) < len(limits) {
		c.Requests = make([]store.LimitRequest, policies.MaxLimits)
	}
	requests := c.Requests[:len(limits)]
	var ends [policies.MaxLimits]int
	names := c.Value[:0]
	for i := range limits {
		names = policies.AppendKey(names, t.f.prefix, t.policy, t.subject, limits[i].Label())
		ends[i] = len(names)
	}
	c.Value = names
	from := 0
	for i := range limits {
		requests[i] = store.LimitRequest{
			Key: names[from:ends[i]:ends[i]], Rule: ruleOf(&limits[i]), Quantity: t.request.Quantity,
		}
		from = ends[i]
	}
	return requests
}

// ruleOf returns the rule of a limit.
func ruleOf(l *policies.Limit) store.Rule {
	switch l.Kind {
	case policies.Throttle:
		return store.Rule{Kind: store.Throttle, Throttle: l.Throttle}
	case policies.Fixed:
		return store.Rule{Kind: store.Fixed, Window: l.Window}
	case policies.Sliding:
		return store.Rule{Kind: store.Sliding, Window: l.Window}
	case policies.SlidingLog:
		return store.Rule{Kind: store.SlidingLog, Log: l.Log}
	default:
		return store.Rule{Kind: store.Quota, Window: l.Window, Cycle: l.Cycle}
	}
}

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
func (t *taking) writeVerbose(v policies.Verdict, decisions []quota.Decision, ms bool) {
	c := t.call
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
	writeDecision(c, &v.Decision, t.request.Mode, ms)
	c.Out.BulkString("limits")
	c.Out.Map(len(decisions))
	for i := range decisions {
		c.Out.BulkString(t.treatment.Limits[i].Label())
		writeDecision(c, &decisions[i], t.request.Mode, ms)
	}
	report := policies.Report{Policy: t.policy, Treatment: t.treatment, Decisions: decisions, Verdict: v}
	fields := policies.Fields([]policies.Report{report}, c.Unix(c.View.Now())/1e9)
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
		return t.treatment.Limits[v.Limit].Label()
	case policies.ByExemption:
		return "exemption"
	case policies.ByBan:
		return "ban"
	default:
		return "override"
	}
}

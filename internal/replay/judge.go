package replay

import (
	"context"
	"sync/atomic"

	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/limit"
	"cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// logClock is the clock of a log. The store sweeps expired keys in another goroutine.
type logClock struct {
	now    atomic.Int64
	offset int64 // Unix time of instant 0: whole seconds, as a store rounds it
}

func (c *logClock) Now() int64    { return c.now.Load() }
func (c *logClock) Offset() int64 { return c.offset }

// set sets the clock to a Unix time. It never runs back.
func (c *logClock) set(unix int64) {
	if now := unix - c.offset; now > c.now.Load() {
		c.now.Store(now)
	}
}

// judge decides requests by a policy, as CL.TAKE does.
type judge struct {
	policy   *policy.Policy
	view     store.View
	decider  *decide.Decider
	call     command.Call
	requests []store.LimitRequest
	keys     []byte
	ends     []int
	one      [1]quota.Decision
	only     *policy.Limit // the only limit, if it alone decides about all subjects; otherwise nil

	// The same limits, multiplied, have keys of their own, and no bans.
	prefix string
	scale  func(l *policy.Limit) policy.Limit
}

func newJudge(p *policy.Policy, data store.Store) *judge {
	j := &judge{policy: p, view: data.View(), decider: &decide.Decider{}}
	j.call = command.Call{Context: context.Background(), View: j.view, Server: &command.Server{Clock: data.Clock()}}
	if isOneThrottle(p) && p.Ban == nil {
		j.only = &p.Limits[0]
	}
	return j
}

// isOneThrottle reports whether a policy has a single limit, which is a throttle, and the same for all subjects.
func isOneThrottle(p *policy.Policy) bool {
	return p.TreatsAlike() && len(p.Limits) == 1 && p.Limits[0].Kind == limit.Throttle
}

// take decides a request at the time of the clock.
func (j *judge) take(subject []byte, quantity int64) (v policy.Verdict, label string, err error) {
	j.view.Begin()
	if j.only != nil {
		v, err = j.takeOnly(subject, quantity)
		return v, j.only.Label(), err
	}
	part := decide.Part{Policy: j.policy, Request: policy.Request{Quantity: quantity, Mode: quota.Take}}
	part.Subject = j.policy.Subject(subject)
	if j.policy.TreatsAlike() {
		part.Treatment = policy.Treatment{Limits: j.policy.Limits, Override: -1}
	} else {
		part.Treatment, _ = j.policy.TreatCounted(part.Subject)
	}
	j.ask(&part, quantity)
	switch {
	case part.Treatment.Effect == policy.Limited && (j.policy.Ban == nil || j.scale != nil):
		var decisions []quota.Decision
		if decisions, err = j.takeAll(); err == nil {
			v = j.policy.JudgeLimits(decisions)
		}
	case j.scale != nil:
		v, _ = j.policy.JudgeStanding(j.view.Now(), nil, part.Treatment, part.Request)
	default:
		v, err = j.decide(&part)
	}
	return v, labelOf(&v, &part.Treatment), err
}

// takeOnly decides a request by the only limit.
func (j *judge) takeOnly(text []byte, quantity int64) (v policy.Verdict, err error) {
	subject, rate := j.policy.Subject(text), j.only.Throttle
	j.keys = policy.AppendLimitKey(j.keys[:0], j.prefix, j.policy, &subject, j.only)
	o, err := j.view.Throttle(j.call.Context, j.keys, rate, quantity, quota.Take)
	j.one[0] = rate.Decision(o)
	return j.policy.JudgeLimits(j.one[:]), err
}

// takeAll asks all limits. If there is one limit, it makes a step on one key, as CL.TAKE does, in half of the time.
func (j *judge) takeAll() (decisions []quota.Decision, err error) {
	if len(j.requests) > 1 {
		decisions, _, err = j.view.TakeAll(j.call.Context, j.requests, quota.Take)
		return decisions, err
	}
	r := &j.requests[0]
	if r.Rule.Kind != limit.Throttle {
		j.one[0], err = j.view.Take(j.call.Context, r.Key, &r.Rule, r.Quantity, quota.Take)
		return j.one[:], err
	}
	o, err := j.view.Throttle(j.call.Context, r.Key, r.Rule.Throttle, r.Quantity, quota.Take)
	j.one[0] = r.Rule.Throttle.Decision(o)
	return j.one[:], err
}

// labelOf names the limit or rule that has decided.
func labelOf(v *policy.Verdict, t *policy.Treatment) string {
	switch v.By {
	case policy.ByBan:
		return "ban"
	case policy.ByOverride, policy.ByExemption:
		return "override"
	}
	return t.Limits[v.Limit].Label()
}

// decide decides a request for which the standing of its subject matters.
func (j *judge) decide(part *decide.Part) (v policy.Verdict, err error) {
	part.Standing = policy.AppendKey(nil, j.prefix, j.policy, part.Subject, policy.StandingLabel)
	k := &decide.Call{Requests: j.requests, Key: part.Standing, Parts: []decide.Part{*part}}
	k.Reply = func([]quota.Decision, bool) error {
		v = k.Parts[0].Verdict
		return nil
	}
	err = j.decider.Decide(&j.call, k)
	return v, err
}

// ask makes the requests to the limits of a subject, as CL.TAKE makes them.
func (j *judge) ask(part *decide.Part, quantity int64) {
	j.keys, j.ends, j.requests = j.keys[:0], j.ends[:0], j.requests[:0]
	limits := part.Treatment.Limits
	for i := range limits {
		j.keys = policy.AppendLimitKey(j.keys, j.prefix, j.policy, &part.Subject, &limits[i])
		j.ends = append(j.ends, len(j.keys))
	}
	from := 0
	for i, end := range j.ends {
		l := &limits[i]
		rule := l.Rule
		if j.scale != nil {
			rule = j.scale(l).Rule
		}
		j.requests = append(j.requests, store.LimitRequest{Key: j.keys[from:end:end], Rule: rule, Quantity: quantity})
		from = end
	}
}

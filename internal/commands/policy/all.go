package policy

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/decide"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

// Part implements decide.Policies.
func (f *Family) Part(c *command.Call, mode quota.Mode, subject, name []byte, quantity int64) (
	p decide.Part, requests []store.LimitRequest, err error,
) {
	p.Request = policies.Request{Quantity: quantity, Mode: mode}
	if p.Policy, err = find(f.current(c), name); err != nil {
		return p, nil, err
	}
	if treat(c, &p, subject); c.Background != nil && !p.Policy.TreatsAlike() {
		c.Yield()
	}
	p.Standing = f.standingKey(&p)
	head := slices.Clip(policies.AppendKeyHead(nil, f.prefix, p.Policy, p.Subject))
	for i := range p.Treatment.Limits {
		l := &p.Treatment.Limits[i]
		requests = append(requests, store.LimitRequest{Key: append(head, l.Label()...), Rule: l.Rule, Quantity: quantity,
			Ahead: p.Policy.Ahead})
	}
	return p, requests, nil
}

// Count implements decide.Policies.
func (f *Family) Count(c *command.Call, k *decide.Call, limited bool) {
	shadow := false
	for i := range k.Parts {
		result := resultOf(&k.Parts[i].Verdict)
		f.count(c, k.Parts[i].Policy, k.Mode, result)
		shadow = shadow || result == stats.Shadow
	}
	if shadow && !limited { // the call is allowed because a policy is in shadow mode
		countShadow(c)
	}
}

// CountHold is the CountHold of a decide.Decider.
func (f *Family) CountHold(c *command.Call, p *decide.Part, held, settled int64) {
	counts := f.countsOf(p.Policy)
	c.AfterCommit(func() { counts.AddHolds(held, settled) })
}

// CountFailure implements decide.Policies.
func (f *Family) CountFailure(c *command.Call, k *decide.Call) {
	for i := range k.Parts {
		f.count(c, k.Parts[i].Policy, k.Mode, stats.Failed)
	}
}

// WriteVerbose implements decide.Policies.
func (f *Family) WriteVerbose(c *command.Call, p *decide.Part, ms bool) {
	t := taking{f: f, call: c, Part: *p, ms: ms}
	t.writeVerbose()
}

// MemberWork implements decide.Policies.
func (f *Family) MemberWork(snapshot any, subject, policy []byte, verbose bool) int {
	return mostWork(snapshot.(*policies.Set), subject, policy, verbose)
}

// MemberKeys implements decide.Policies.
func (f *Family) MemberKeys(keys [][]byte, snapshot any, subject, policy []byte) [][]byte {
	return f.appendKeys(keys, snapshot.(*policies.Set), subject, policy)
}

// MemberRight implements decide.Policies.
func (f *Family) MemberRight(keys [][]byte, snapshot any, subject, policy []byte) [][]byte {
	return append(keys, f.right(snapshot.(*policies.Set), subject, policy))
}

// MemberHead implements decide.Policies.
func (f *Family) MemberHead(snapshot any, subject, policy []byte) []byte {
	p, err := find(snapshot.(*policies.Set), policy)
	if err != nil { // the call is refused when it is made
		return policy
	}
	return policies.AppendKeyHead(nil, f.prefix, p, p.Subject(subject))
}

package policy

import (
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
	keys := f.keysOf(p.Policy, p.Subject, p.Treatment)
	p.Standing = keys[0]
	for i, key := range keys[1:] {
		requests = append(requests, store.LimitRequest{Key: key, Rule: p.Treatment.Limits[i].Rule, Quantity: quantity,
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

// MemberKeys implements decide.Policies. The standing comes first.
func (f *Family) MemberKeys(keys [][]byte, snapshot any, subject, policy []byte) [][]byte {
	p := snapshot.(*policies.Set).Policy(policy)
	if p == nil { // the call is refused when it is made
		return keys
	}
	s, t, _ := treatCounted(p, subject)
	return append(keys, f.keysOf(p, s, t)...)
}

// MemberRight implements decide.Policies. The name is the common prefix of all keys of the subject: see
// policies.AppendRight.
func (f *Family) MemberRight(keys [][]byte, snapshot any, subject, policy []byte) [][]byte {
	p := snapshot.(*policies.Set).Policy(policy)
	if p == nil { // the call is refused later, if the user may make it
		return append(keys, append(append([]byte(f.prefix), policy...), ':'))
	}
	return append(keys, policies.AppendRight(nil, f.prefix, p, p.Subject(subject)))
}

// MemberHead implements decide.Policies.
func (f *Family) MemberHead(snapshot any, subject, policy []byte) []byte {
	p := snapshot.(*policies.Set).Policy(policy)
	if p == nil { // the call is refused when it is made
		return policy
	}
	return policies.AppendKeyHead(nil, f.prefix, p, p.Subject(subject))
}

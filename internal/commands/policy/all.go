package policy

import (
	"context"
	"errors"
	"slices"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

// joint is a CL.ALL of which members are policies. It takes from all members or from none; but a policy in
// shadow mode refuses nothing, so if the others allow the call, it takes from that policy what fits.
type joint struct {
	family   *Family
	call     *command.Call
	members  []member
	requests []store.LimitRequest // first those that may refuse the call, then those of policies in shadow mode
	binding  int                  // how many of them may refuse the call
	refused  bool                 // a member refuses the call without its limits
	peek     bool
	as       command.MemberReply
	failed   error // of the store, when a standing was to be read
}

// member is one of the members of a call.
type member struct {
	subjectOf                  // its policy is nil for a limiter
	request   policies.Request // of a policy
	from, to  int              // its requests
	verdict   policies.Verdict // of a policy; of one that decides without its limits, from the beginning
	decided   bool             // without its limits
	decisions []quota.Decision // of the limits of a policy; nil if they do not decide
}

// Join implements command.Policies.
func (f *Family) Join(c *command.Call, of []command.Member, call *command.LimitCall,
	as command.MemberReply) error {
	j := &joint{as: as, family: f, call: c, members: make([]member, len(of)), peek: call.Peek}
	call.Failed = j.countFailed
	set := f.current(c)
	for i := range of {
		if m := &j.members[i]; of[i].NamesPolicy {
			if err := m.lookup(c, set, of[i].Subject, of[i].Policy); err != nil {
				return err
			}
			if c.Background != nil && !m.policy.TreatsAlike() {
				c.Yield()
			}
		}
	}
	if err := j.judge(of); err != nil {
		return err
	}
	j.addRequests(f, of, false)
	j.binding = len(j.requests)
	j.addRequests(f, of, true)
	call.Requests = slices.Clone(j.requests)
	for i := j.binding; i < len(call.Requests); i++ {
		call.Requests[i].Mode = quota.Force // so that no call waits for it
	}
	if first := &of[0]; !first.NamesPolicy {
		call.Key = first.Request.Key
	} else {
		call.Key = f.standingKey(&j.members[0].subjectOf)
	}
	if call.Step = j.step; j.refused { // it takes nothing, so there is nothing to wait for, and none to remember
		call.Wait, call.IDAt = 0, 0
	}
	call.Reply = func(o command.LimitOutcome) error { return j.reply(o) }
	return nil
}

func (j *joint) mode() quota.Mode {
	if j.peek {
		return quota.Peek
	}
	return quota.Take
}

// judge decides the members that need no decisions of limits.
func (j *joint) judge(of []command.Member) error {
	states, err := j.readStandings()
	if errors.Is(err, store.ErrWrongKind) {
		return err
	}
	for i := range of {
		m := &j.members[i]
		if m.policy == nil {
			continue
		}
		m.request = policies.Request{Quantity: of[i].Quantity, Mode: j.mode()}
		var state *standing.State
		if states != nil && err == nil {
			state = states[string(j.family.standingKey(&m.subjectOf))]
		}
		m.verdict, m.decided = m.policy.JudgeStanding(j.call.View.Now(), state, m.treatment, m.request)
		if err != nil && !m.decided {
			j.failed = err
		}
		j.refused = j.refused || m.decided && m.verdict.Limited
	}
	return nil
}

// readStandings reads the standings of the members of a call that are policies, if the store may have any:
// in one step, if the store has such.
func (j *joint) readStandings() (states map[string]*standing.State, err error) {
	f, c := j.family, j.call
	if !f.mayHaveStandings() {
		return nil, nil
	}
	states = map[string]*standing.State{}
	var keys [][]byte
	for i := range j.members {
		m := &j.members[i]
		if m.policy == nil {
			continue
		}
		if key := f.standingKey(&m.subjectOf); states[string(key)] == nil {
			states[string(key)], keys = &standing.State{}, append(keys, key)
		}
	}
	read := func(v store.View) (err error) {
		for _, key := range keys {
			if *states[string(key)], err = v.Standing(c.Context, key); err != nil {
				return err
			}
		}
		return nil
	}
	if s, ok := c.View.(store.Stepper); ok {
		return states, s.Step(c.Context, keys, read)
	}
	return states, read(c.View)
}

// addRequests adds the requests of the members that are in shadow mode, or of the others.
func (j *joint) addRequests(f *Family, of []command.Member, shadow bool) {
	for i := range of {
		m := &j.members[i]
		switch {
		case m.policy == nil && !shadow:
			m.from, m.to = len(j.requests), len(j.requests)+1
			j.requests = append(j.requests, of[i].Request)
		case m.policy != nil && m.policy.Shadow == shadow && !m.decided:
			m.from = len(j.requests)
			head := slices.Clip(policies.AppendKeyHead(nil, f.prefix, m.policy, m.subject))
			for l := range m.treatment.Limits {
				limit := &m.treatment.Limits[l]
				j.requests = append(j.requests, store.LimitRequest{
					Key: append(head, limit.Label()...), Rule: ruleOf(limit), Quantity: of[i].Quantity,
				})
			}
			m.to = len(j.requests)
		}
	}
}

// step makes the decision of the call with a view.
func (j *joint) step(ctx context.Context, v store.View, peek bool) (
	decisions []quota.Decision, allowed bool, err error,
) {
	if err := j.failed; err != nil { // what comes next does not ask the store, but decides without it
		j.failed = nil
		return nil, false, err
	}
	if j.binding == len(j.requests) {
		return j.take(ctx, v, peek)
	}
	keys := make([]store.KeyRef, len(j.requests))
	for i := range j.requests {
		keys[i] = store.KeyRef{Database: v.Selected(), Key: j.requests[i].Key}
	}
	err = v.Atomically(ctx, keys, false, func() error {
		decisions, allowed, err = j.take(ctx, v, peek)
		decisions = slices.Clone(decisions) // they are valid until the next step
		if err == nil {
			decisions = j.takeShadows(ctx, v, decisions, peek || !allowed)
		}
		return err
	})
	return decisions, allowed, err
}

// take takes from the limits that may refuse the call.
func (j *joint) take(ctx context.Context, v store.View, peek bool) (
	decisions []quota.Decision, allowed bool, err error,
) {
	if j.binding == 0 {
		return nil, !j.refused, nil
	}
	decisions, allowed, err = v.TakeAll(ctx, j.requests[:j.binding], peek || j.refused)
	if err == nil && j.refused && allowed {
		decisions, err = presentState(ctx, v, j.requests[:j.binding])
	}
	return decisions, allowed && !j.refused, err
}

// takeShadows appends the decisions of the policies in shadow mode. Their errors are none of the call,
// which has taken from the others already.
func (j *joint) takeShadows(ctx context.Context, v store.View, decisions []quota.Decision, peek bool) []quota.Decision {
	for i := range j.members {
		m := &j.members[i]
		if m.policy == nil || !m.policy.Shadow || m.from == m.to {
			continue
		}
		requests := j.requests[m.from:m.to]
		taken, allowed, err := v.TakeAll(ctx, requests, peek)
		if err == nil && peek && allowed && !j.peek {
			taken, err = presentState(ctx, v, requests)
		}
		if err != nil {
			taken = make([]quota.Decision, len(requests))
			for i := range taken {
				taken[i] = quota.Decision{Limit: requests[i].Size(), RetryAfter: quota.Never}
			}
		}
		decisions = append(decisions, taken...)
	}
	return decisions
}

// presentState returns decisions about nothing of the same limits.
func presentState(ctx context.Context, v store.View, requests []store.LimitRequest) ([]quota.Decision, error) {
	asked := slices.Clone(requests)
	for i := range asked {
		if l := asked[i].Lease; l != nil {
			asked[i].Lease = &store.LeaseRequest{Request: l.WithQuantity(0), MaxHolders: l.MaxHolders}
		}
	}
	decisions, _, err := v.TakeAll(ctx, withQuantity(asked, 0), true)
	return decisions, err
}

// reply writes the reply of the call.
func (j *joint) reply(o command.LimitOutcome) error {
	if len(o.Decisions) != len(j.requests) {
		return store.ErrReused // the policies have got other limits since the call that it repeats
	}
	limited := false // by a member that may refuse the call
	for i := range j.members {
		m := &j.members[i]
		switch decisions := o.Decisions[m.from:m.to]; {
		case m.policy == nil:
			m.verdict = policies.Verdict{Decision: decisions[0]}
		case !m.decided:
			m.verdict = m.policy.JudgeLimits(decisions)
			m.decisions = decisions
			if ban, banned := j.family.countRefusal(j.call, &m.subjectOf, m.request, o, decisions); banned {
				m.verdict, m.decisions = ban, nil
			}
		}
		limited = limited || m.verdict.Limited
	}
	limited = limited && (!o.Allowed || j.refused)
	j.count(limited)
	j.write(limited)
	return nil
}

// count counts the decisions of the policies, and whether the call is allowed because one of them is in
// shadow mode.
func (j *joint) count(limited bool) {
	shadow := false
	for i := range j.members {
		if m := &j.members[i]; m.policy != nil {
			result := resultOf(&m.verdict)
			j.family.count(j.call, m.policy, j.mode(), result)
			shadow = shadow || result == stats.Shadow
		}
	}
	if shadow && !limited {
		countShadow(j.call)
	}
}

// countFailed counts a call that gets an error, for the policies that it names.
func (j *joint) countFailed() {
	for i := range j.members {
		if m := &j.members[i]; m.policy != nil {
			j.family.count(j.call, m.policy, j.mode(), stats.Failed)
		}
	}
}

// write writes the verdicts of the members.
func (j *joint) write(limited bool) {
	c, first, retry := j.call, int64(0), int64(quota.Never)
	if limited {
		first, retry = 1, j.longestRetry()
		c.Limited++
	}
	c.Out.Array(2 + len(j.members))
	c.Out.Int(first)
	c.Out.Int(command.WholeUnits(retry, j.as.MS))
	for i := range j.members {
		m := &j.members[i]
		if m.policy == nil || !j.as.Verbose {
			writeDecision(c, &m.verdict.Decision, quota.Take, j.as.MS)
			continue
		}
		t := taking{f: j.family, call: c, subjectOf: m.subjectOf, request: m.request, ms: j.as.MS}
		t.writeVerbose(m.verdict, m.decisions)
	}
}

// longestRetry returns the time until all members would allow the call, or Never.
func (j *joint) longestRetry() (retry int64) {
	for i := range j.members {
		switch v := &j.members[i].verdict; {
		case v.Limited && v.RetryAfter == quota.Never:
			return quota.Never
		case v.Limited:
			retry = max(retry, v.RetryAfter)
		}
	}
	return retry
}

// MemberWork implements command.Policies.
func (f *Family) MemberWork(snapshot any, subject, policy []byte, verbose bool) int {
	return mostWork(snapshot.(*policies.Set), subject, policy, verbose)
}

// MemberKeys implements command.Policies.
func (f *Family) MemberKeys(keys [][]byte, snapshot any, subject, policy []byte) [][]byte {
	return f.appendKeys(keys, snapshot.(*policies.Set), subject, policy)
}

// MemberRight implements command.Policies.
func (f *Family) MemberRight(keys [][]byte, snapshot any, subject, policy []byte) [][]byte {
	return append(keys, f.appendHead(nil, snapshot.(*policies.Set), subject, policy))
}

package policy

import (
	"context"
	"slices"

	"cellserver/internal/command"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

// modes maps the choice of the mode to a mode; the first is for a call without the option.
var modes = [...]quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force}

// The indexes of arguments of CL.TAKE.
const (
	subjectAt = iota
	policyAt
	quantityAt
	modeAt
	msAt
	verboseAt
)

func (f *Family) take() *command.Command {
	return &command.Command{
		Name: "cl.take", Group: "limiter", Since: "1.0.0", Complexity: "O(N) in the number of limits and overrides",
		Flags: command.Write | command.Fast, Cost: command.Constant,
		Traits:  command.Decides | command.SeveralSteps | command.NamesArguments,
		Effort:  &command.Effort{Fixed: f.takeWork},
		Summary: "Takes from the limits of a policy for a subject, all or none.", KeyAccess: "RW ACCESS UPDATE",
		Args: []command.Arg{command.Key("subject"), command.Word("policy"), command.Int("quantity").Or(1),
			command.OneOf("mode", "PEEK", "UPTO", "FORCE"), command.Flag("MS"), command.Flag("VERBOSE"),
			leaveArg, command.WaitArg, command.IDArg},
		Keys: command.KeyRules{Rights: f.rights, Touched: f.touched, Snapshot: f.Snapshot,
			Peeks: func(c *command.Call) bool { return modes[c.Bound[modeAt].N] == quota.Peek },
			Takes: func(c *command.Call) bool { return c.Bound[quantityAt].N >= 0 }},
		Reply: `The [five integers](#the-reply-of-a-limiter) of the limit that decides: of those that refused the call, the one with
the longest retry_after; if none did, the one of which the least part remains. With UPTO a sixth: what was taken. With
VERBOSE a map: allowed, policy, decided_by, shadow, decision, limits (the five integers of each), fields (of an HTTP
response). LEAVE n leaves n of each limit to other calls, and LEAVE p% that part of each limit, rounded up.`,
		Run: f.runTake,
	}
}

// takeWork returns the work of a call in a transaction: its subject is compared with the patterns of the policy
// twice, to find its keys and to make the call.
func (f *Family) takeWork(words [][]byte) int {
	return 2 * mostWork(f.Files.InForce(), words[1], words[2], command.HasWord(words[3:], "VERBOSE"))
}

// rights returns what the key patterns of users are checked against: the beginning of all keys of the
// subject.
func (f *Family) rights(keys, words [][]byte, snapshot any) [][]byte {
	if len(words) < 3 { // the key of a standing, which RESTORE writes
		return append(keys, words[1:]...)
	}
	return append(keys, f.appendHead(nil, snapshot.(*policies.Set), words[1], words[2]))
}

// appendHead appends the beginning of all keys of a subject.
func (f *Family) appendHead(dst []byte, set *policies.Set, text, name []byte) []byte {
	p, err := find(set, name)
	if err != nil { // the call is refused later, if the user may make it
		return append(append(append(dst, f.prefix...), name...), ':')
	}
	return f.appendHeadOf(dst, p, text)
}

func (f *Family) appendHeadOf(dst []byte, p *policies.Policy, text []byte) []byte {
	return policies.AppendKeyHead(dst, f.prefix, p, p.Subject(text))
}

// touched returns the keys of a call of CL.TAKE.
func (f *Family) touched(keys, words [][]byte, snapshot any) [][]byte {
	return f.appendKeys(keys, snapshot.(*policies.Set), words[1], words[2])
}

// appendKeys appends the names of the keys of a subject: first that of its standing, and then those of its
// limits. There are none if a call on the subject is refused.
func (f *Family) appendKeys(keys [][]byte, set *policies.Set, text, name []byte) [][]byte {
	p, err := find(set, name)
	if err != nil {
		return keys
	}
	s, t, _, err := treat(p, text)
	if err != nil {
		return keys
	}
	head := slices.Clip(policies.AppendKeyHead(nil, f.prefix, p, s))
	keys = append(keys, append(head, policies.StandingLabel...))
	for i := range t.Limits {
		keys = append(keys, append(head, t.Limits[i].Label()...))
	}
	return keys
}

// subjectOf is a subject of a policy, and how the policy treats it.
type subjectOf struct {
	policy    *policies.Policy
	subject   policies.Subject
	treatment policies.Treatment
}

// lookup finds the policy with a name, and treats a subject of a call.
func (s *subjectOf) lookup(c *command.Call, set *policies.Set, text, name []byte) (err error) {
	if s.policy, err = find(set, name); err != nil {
		return err
	}
	return s.treat(c, text)
}

// treat sets how the policy treats a subject of a call.
func (s *subjectOf) treat(c *command.Call, text []byte) (err error) {
	if s.policy.TreatsAlike() { // most do, and this takes a fifth of the instructions of treat
		s.subject.Text, s.treatment.Limits, s.treatment.Override = text, s.policy.Limits, -1
		return nil
	}
	var work int
	s.subject, s.treatment, work, err = treat(s.policy, text)
	c.Work += work
	return err
}

// isLong reports whether comparing a subject with the patterns of its policy may take too long for an event
// loop.
func (t *taking) isLong(text []byte) bool {
	return !t.policy.TreatsAlike() && t.policy.MostSteps(len(text)) > loopSteps && t.call.Session != nil &&
		!t.call.InTransaction
}

// offload has a call made outside the event loop.
func (t taking) offload(text []byte) error {
	wait := int64(0)
	if !t.policy.Shadow { // see limitCall
		wait = t.call.Option("WAIT")
	}
	return t.f.Limiters.Offload(t.call, t.f.appendHeadOf(nil, t.policy, text), wait)
}

// taking is a call of CL.TAKE.
type taking struct {
	f    *Family
	call *command.Call
	subjectOf
	request     policies.Request
	ms, verbose bool
	leave       int64 // see leaveArg
}

func (f *Family) runTake(c *command.Call) error {
	b := &c.Bound // access by index in place of Key and Int saves 60 of 2,400 instructions
	t := taking{f: f, call: c, ms: b[msAt].N != 0, verbose: b[verboseAt].N != 0}
	t.request = policies.Request{Quantity: b[quantityAt].N, Mode: modes[b[modeAt].N]}
	if c.Extra {
		if err := t.readOptions(); err != nil {
			return err
		}
	}
	text := c.Words[b[subjectAt].At]
	policy, err := find(f.current(c), c.Words[b[policyAt].At])
	if err != nil {
		return err
	}
	if t.policy = policy; t.isLong(text) {
		return t.offload(text)
	}
	if err = t.treat(c, text); err == nil {
		err = t.judge()
	}
	if err != nil {
		f.count(c, t.policy, t.request.Mode, stats.Failed)
	}
	return err
}

// judge decides a call.
func (t *taking) judge() error {
	f, c := t.f, t.call
	if t.treatment.Effect != policies.Limited || f.mayHaveStandings() {
		if s, ok := t.stepper(); ok {
			return t.decideTogether(s)
		}
		switch v, decided, err := f.judgeStanding(c, &t.subjectOf, t.request); {
		case err != nil:
			return t.withoutStanding(err)
		case decided:
			return t.reply(v, nil)
		}
	}
	if !c.Extra && len(t.treatment.Limits) == 1 {
		return t.decideOne(&t.treatment.Limits[0])
	}
	requests := t.requests()
	c.Work += (len(requests) - 1) * limitWork
	err := t.decide(requests)
	clear(requests) // the next call expects that
	return err
}

// decide asks the limits.
func (t *taking) decide(requests []store.LimitRequest) error {
	c, limiters := t.call, t.f.Limiters
	if c.Extra {
		return limiters.Decide(c, t.limitCall(requests))
	}
	decisions, allowed, err := t.step(c.Context, c.View, requests, t.request.Mode == quota.Peek)
	if err != nil {
		return limiters.DecideOnError(c, err, decisions, t.limitCall(requests))
	}
	for i := range requests {
		limiters.CountKey(c, requests[i].Key, decisions[i].Limited)
	}
	return t.answer(command.LimitOutcome{Decisions: decisions, Allowed: allowed})
}

// decideOne asks the only limit.
func (t *taking) decideOne(l *policies.Limit) error {
	c := t.call
	key := policies.AppendLimitKey(c.Value[:0], t.f.prefix, t.policy, &t.subject, l)
	c.Value = key
	var one [1]quota.Decision
	var err error
	if l.Kind == policies.Throttle {
		o, failed := c.View.Throttle(c.Context, key, l.Throttle, t.request.Quantity, t.request.Mode)
		one[0], err = l.Throttle.Decision(o), failed
	} else {
		c.Rule = ruleOf(l)
		one[0], err = c.View.Take(c.Context, key, &c.Rule, t.request.Quantity, t.request.Mode)
	}
	if err != nil {
		return t.f.Limiters.DecideOnError(c, err, nil, t.limitCall(t.requests()))
	}
	t.f.Limiters.CountKey(c, key, one[0].Limited)
	if !one[0].Limited && !t.verbose { // most calls: the decision of the limit is the reply
		t.f.count(c, t.policy, t.request.Mode, stats.Allowed)
		writeDecision(c, &one[0], t.request.Mode, t.ms)
		return nil
	}
	return t.answer(command.LimitOutcome{Decisions: one[:], Allowed: !one[0].Limited})
}

// limitCall returns the call for the family of limiters.
func (t taking) limitCall(requests []store.LimitRequest) *command.LimitCall {
	c := t.call
	call := &command.LimitCall{
		Requests: requests, Peek: t.request.Mode == quota.Peek,
		IDAt: c.OptionAt(command.IDOption), WaitAt: c.OptionAt("WAIT"),
		Key: t.f.standingKey(&t.subjectOf),
	}
	if !t.policy.Shadow { // a call that is never refused does not wait
		call.Wait = c.Option("WAIT")
	}
	call.Step = func(ctx context.Context, v store.View, peek bool) ([]quota.Decision, bool, error) {
		return t.step(ctx, v, requests, peek)
	}
	call.Reply = t.answer
	return call
}

// answer writes the reply of a call that the limits have decided.
func (t *taking) answer(o command.LimitOutcome) error {
	if !o.Allowed && t.policy.Ban != nil {
		return t.answerRefused(o)
	}
	return t.reply(t.policy.JudgeLimits(o.Decisions), o.Decisions)
}

// answerRefused is answer for a call that may lead to a ban. It has a copy of the call, which is on the
// heap; other calls allocate nothing.
func (t taking) answerRefused(o command.LimitOutcome) error {
	if v, banned := t.f.countRefusal(t.call, &t.subjectOf, t.request, o, o.Decisions); banned {
		return t.reply(v, nil)
	}
	return t.reply(t.policy.JudgeLimits(o.Decisions), o.Decisions)
}

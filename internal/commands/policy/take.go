package policy

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/limit"
	policies "cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/standing"
	"cellserver/internal/stats"
	"cellserver/internal/store"
)

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
		Args: append([]command.Arg{command.Key("subject"), command.Word("policy"), command.Int("quantity").Or(1),
			decide.ModeArg, command.Flag("MS"), command.Flag("VERBOSE")}, decide.Args(leaveArg)...),
		Keys: command.KeyRules{Rights: f.rights, Touched: f.touched, Snapshot: f.Snapshot,
			Peeks: func(c *command.Call) bool { return decide.Modes[c.Bound[modeAt].N] == quota.Peek },
			Takes: func(c *command.Call) bool { return c.Bound[quantityAt].N >= 0 && !decide.Settles(c) }},
		Reply: `The [five integers](#the-reply-of-a-limiter) of the limit that decides: the refusal with the longest
retry_after, or, if no limit refused the call, the limit with the least part remaining. With UPTO a sixth: what was
taken. With VERBOSE a map: allowed, policy, decided_by, shadow, decision, limits (the five integers of each), fields (of an HTTP
response). LEAVE n leaves n of each limit to other calls, and LEAVE p% that part of each limit, rounded up. HOLD is on
each of the limits; SETTLE is answered for the limit with the least part remaining.`,
		Run: f.runTake,
	}
}

// taking is a call of CL.TAKE.
type taking struct {
	f    *Family
	call *command.Call
	decide.Part
	ms, verbose bool
}

func (f *Family) runTake(c *command.Call) (err error) {
	b := &c.Bound // access by index in place of Key and Int saves instructions in each call
	var options decide.Options
	mode := decide.Modes[b[modeAt].N]
	if c.Extras > 0 {
		if options, err = decide.OptionsOf(c, mode, b[quantityAt].N, b[quantityAt].At > 0); err != nil {
			return err
		}
	}
	text := c.Words[b[subjectAt].At]
	p, err := find(f.current(c), c.Words[b[policyAt].At])
	if err != nil {
		return err
	}
	// Most calls have one limit, the same for all subjects. They need no taking, which is large.
	if c.Extras > 0 || !p.IsSimple() || b[verboseAt].N != 0 || f.MayHaveStandings() {
		return f.takeAny(c, p, text, options)
	}
	l := &p.Limits[0]
	key := policies.AppendLimitKey(c.Value[:0], f.prefix, p, &policies.Subject{Text: text}, l)
	c.Value = key
	d, err := takeOne(c, key, l, b[quantityAt].N, mode)
	if err != nil || d.Limited {
		t := newTaking(f, c, p)
		treat(c, &t.Part, text)
		return t.answerOne(d, err)
	}
	if f.CountKey(c, key, false) && mode != quota.Peek {
		f.noteUse(c, p, text, &d)
	}
	f.count(c, p, mode, stats.Allowed)
	if p.Notify != nil && l.Nears(&d) && mode != quota.Peek {
		f.Notice(c, p, text, l, &d, false)
	}
	decide.WriteDecision(c, &d, mode, b[msAt].N != 0)
	return nil
}

// takeOne asks a limit.
func takeOne(c *command.Call, key []byte, l *policies.Limit, quantity int64, mode quota.Mode) (quota.Decision, error) {
	if l.Kind != limit.Throttle {
		return c.View.Take(c.Context, key, &l.Rule, quantity, mode)
	}
	o, err := c.View.Throttle(c.Context, key, l.Throttle, quantity, mode)
	return l.Throttle.Decision(o), err
}

func newTaking(f *Family, c *command.Call, p *policies.Policy) *taking {
	b := &c.Bound
	t := &taking{f: f, call: c, ms: b[msAt].N != 0, verbose: b[verboseAt].N != 0}
	t.Policy, t.Request = p, policies.Request{Quantity: b[quantityAt].N, Mode: decide.Modes[b[modeAt].N]}
	return t
}

// takeAny makes a call for which the short way in runTake is not enough.
func (f *Family) takeAny(c *command.Call, p *policies.Policy, text []byte, options decide.Options) (err error) {
	t := newTaking(f, c, p)
	if p.Shadow { // a call that is never refused does not wait
		options.Wait = 0
	}
	if t.isLong(text) {
		return f.Offload(c, policies.AppendKeyHead(nil, f.prefix, p, p.Subject(text)), options.Wait)
	}
	treat(c, &t.Part, text)
	if options.SettleAt > 0 {
		return t.settle(options)
	}
	if c.Extras > 0 || t.Treatment.Effect != policies.Limited || f.MayHaveStandings() && !t.hasNoStanding() {
		err = t.slowly(func(k *decide.Call) error {
			k.Options = options
			c.Work += max(len(k.Requests)-1, 0) * limitWork
			return f.Decide(c, k)
		})
	} else {
		err = t.takeAll()
	}
	if err != nil {
		f.count(c, p, t.Request.Mode, stats.Failed)
	}
	return err
}

// isLong reports whether comparing a subject with the patterns of its policy may take too long for an event
// loop.
func (t *taking) isLong(text []byte) bool {
	return !t.Policy.TreatsAlike() && t.Policy.MostSteps(len(text)) > loopSteps && t.call.Session != nil &&
		!t.call.InTransaction
}

// treat sets the subject of a part, and how its policy treats it.
func treat(c *command.Call, p *decide.Part, text []byte) {
	if p.Policy.TreatsAlike() { // most do, and this takes a fifth of the instructions
		p.Subject.Text, p.Treatment.Limits, p.Treatment.Override = text, p.Policy.Limits, -1
		return
	}
	var work int
	p.Subject, p.Treatment, work = treatCounted(p.Policy, text)
	c.Work += work
}

// hasNoStanding reports whether the subject is known to have no standing, as most subjects. If an operation of the
// store costs a round trip, it returns false without looking.
func (t *taking) hasNoStanding() bool {
	c := t.call
	if _, steps := c.View.(store.Stepper); steps {
		return false
	}
	c.Value = policies.AppendKey(c.Value[:0], t.f.prefix, t.Policy, t.Subject, policies.StandingLabel)
	state, err := c.View.Standing(c.Context, c.Value)
	return err == nil && state == standing.State{}
}

// answerOne answers a call whose only limit, on the key in c.Value, has refused it or got an error.
func (t *taking) answerOne(d quota.Decision, err error) error {
	c := t.call
	switch {
	case err != nil:
		err = t.slowly(func(k *decide.Call) error { return t.f.OnError(c, k, err, nil) })
		if err != nil {
			t.f.count(c, t.Policy, t.Request.Mode, stats.Failed)
		}
		return err
	case t.Policy.Ban != nil:
		return t.slowly(func(k *decide.Call) error { return t.f.Answer(c, k, []quota.Decision{d}, false) })
	}
	sampled := t.f.CountKey(c, c.Value, true)
	t.notice(&t.Treatment.Limits[0], &d)
	t.replyTo([]quota.Decision{d}, sampled)
	return nil
}

// takeAll asks all limits.
func (t *taking) takeAll() error {
	c, requests := t.call, t.requests()
	defer clear(requests) // the next call expects zero values
	c.Work += (len(requests) - 1) * limitWork
	mode := t.Request.Mode
	if mode == quota.Force { // each of the requests is forced
		mode = quota.Take
	}
	decisions, allowed, err := c.View.TakeAll(c.Context, requests, mode)
	if err != nil {
		return t.f.OnError(c, t.decision(requests), err, decisions)
	}
	if t.verbose || !allowed && t.Policy.Ban != nil {
		return t.f.Answer(c, t.decision(requests), decisions, allowed)
	}
	sampled := false
	for i := range requests {
		sampled = t.f.CountKey(c, requests[i].Key, decisions[i].Limited) || sampled
		t.notice(&t.Treatment.Limits[i], &decisions[i])
	}
	t.replyTo(decisions, sampled)
	return nil
}

// replyTo writes the reply of a call after each limit of its policy has decided.
func (t *taking) replyTo(decisions []quota.Decision, sampled bool) {
	v := t.Policy.JudgeLimits(decisions)
	if sampled && t.Request.Mode != quota.Peek {
		t.f.noteUse(t.call, t.Policy, t.Subject.Text, &v.Decision)
	}
	t.reply(v)
}

// notice reports the thresholds that a step on a limit has reached.
func (t *taking) notice(l *policies.Limit, d *quota.Decision) {
	if t.Policy.Notify != nil && l.Nears(d) && t.Request.Mode != quota.Peek {
		t.f.Notice(t.call, t.Policy, t.Subject.Text, l, d, false)
	}
}

// slowly calls a function with the decide.Call of the call, which allocates memory.
func (t taking) slowly(decide func(k *decide.Call) error) error {
	requests := t.requests()
	defer clear(requests) // the next call expects zero values
	return decide(t.decision(requests))
}

// decision returns the decide.Call of the call. It copies t to the heap, because Reply uses it later; calls that need
// no decide.Call allocate nothing.
func (t taking) decision(requests []store.LimitRequest) *decide.Call {
	k := &decide.Call{Requests: requests, Parts: []decide.Part{t.Part}, Mode: t.Request.Mode}
	k.Key = t.f.standingKey(t.Policy, t.Subject)
	k.Parts[0].Standing, k.Parts[0].Leave = k.Key, t.call.Option("LEAVE")
	if k.Mode == quota.Force {
		k.Mode = quota.Take
	}
	k.Reply = func([]quota.Decision, bool) error {
		t.Part = k.Parts[0]
		t.reply(t.Verdict)
		return nil
	}
	return k
}

// settle makes a call with SETTLE. It corrects what was charged, whether or not the subject is banned or exempt now,
// and in shadow mode too. It keeps a copy of the call on the heap: see decision.
func (t taking) settle(options decide.Options) error {
	c, requests := t.call, t.requests()
	defer clear(requests) // the next call expects zero values
	k := t.decision(requests)
	k.Options = options
	c.Work += decide.SettleWork + max(len(requests)-1, 0)*limitWork
	k.Parts[0].Request.Mode = quota.UpTo // its reply has a sixth integer
	k.Reply = func([]quota.Decision, bool) error {
		t.Part = k.Parts[0]
		t.write(&t.Verdict)
		return nil
	}
	return t.f.Settle(c, k, &store.Settlement{Quantity: t.Request.Quantity, Force: t.Request.Mode == quota.Force})
}

// takeWork returns the work of a call in a transaction: its subject is compared with the patterns of the policy
// twice, to find its keys and to make the call.
func (f *Family) takeWork(words [][]byte) int {
	return 2*f.MemberWork(f.Snapshot(), words[1], words[2], command.HasWord(words[3:], "VERBOSE")) +
		decide.SettleEffort.Fixed(words[3:])
}

// rights returns the name to check against the key patterns of users.
func (f *Family) rights(keys, words [][]byte, snapshot any) [][]byte {
	if len(words) < 3 { // the key of a standing, which RESTORE writes
		return append(keys, words[1:]...)
	}
	return f.MemberRight(keys, snapshot, words[1], words[2])
}

// touched returns the keys of a call of CL.TAKE.
func (f *Family) touched(keys, words [][]byte, snapshot any) [][]byte {
	return f.MemberKeys(keys, snapshot, words[1], words[2])
}

// keysOf returns the names of the keys of a subject: first its standing, and then its limits.
func (f *Family) keysOf(p *policies.Policy, s policies.Subject, t policies.Treatment) (keys [][]byte) {
	head := slices.Clip(policies.AppendKeyHead(nil, f.prefix, p, s))
	keys = append(keys, append(head, policies.StandingLabel...))
	for i := range t.Limits {
		keys = append(keys, append(head, t.Limits[i].Label()...))
	}
	return keys
}

// fewRequests is the smallest number of requests for which a call keeps memory. CL.ALL relies on it.
const fewRequests = 8

// requests returns a request for each limit. The requests and their keys are in memory of the call.
func (t *taking) requests() []store.LimitRequest {
	c, limits := t.call, t.Treatment.Limits
	if cap(c.Requests) < len(limits) {
		c.Requests = make([]store.LimitRequest, max(len(limits), fewRequests))
	}
	leave := c.Option("LEAVE")
	requests := c.Requests[:len(limits)]
	var ends [policies.MaxLimits]int
	// The head is made once, because it may have the hash of a long subject.
	names := policies.AppendKeyHead(c.Value[:0], t.f.prefix, t.Policy, t.Subject)
	head := len(names)
	for i := range limits {
		if i > 0 {
			names = append(names, names[:head]...)
		}
		names = append(names, limits[i].Label()...)
		ends[i] = len(names)
	}
	c.Value = names
	from := 0
	for i := range limits {
		r := store.LimitRequest{Key: names[from:ends[i]:ends[i]], Rule: limits[i].Rule, Quantity: t.Request.Quantity,
			Ahead: t.Policy.Ahead}
		if r.Leave = policies.LeaveOf(leave, r.Size()); t.Request.Mode == quota.Force {
			r.Mode = quota.Force
		}
		requests[i], from = r, ends[i]
	}
	return requests
}

// leaveArg is the option LEAVE, with a number, or with a percentage of each limit. The integer of p% is -1 - p.
var leaveArg = command.Int("n|p%").By(parseLeave).After("LEAVE").Extra()

func parseLeave(word []byte) (int64, error) {
	part := len(word) > 0 && word[len(word)-1] == '%'
	if part {
		word = word[:len(word)-1]
	}
	switch n, ok := command.ParseInteger(word, true); {
	case !ok:
		return 0, command.ErrNotAnInteger
	case n < 0:
		return 0, &quota.ArgumentError{Name: "n", Lo: 0, Hi: command.MaxInt}
	case !part:
		return n, nil
	case n > 100:
		return 0, &quota.ArgumentError{Name: "p", Lo: 0, Hi: 100}
	default:
		return -1 - n, nil
	}
}

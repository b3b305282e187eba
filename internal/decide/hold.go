package decide

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// A call with HOLD charges an estimate, and a call with SETTLE may correct it once: see store.HoldKeeper. The word
// after HOLD is an ID that is remembered as long as the hold is open, so a call with HOLD goes through Once, as a call
// with ID does.

// HoldArgs are the options HOLD and SETTLE.
var HoldArgs = []command.Arg{
	command.Word("id").Longest(store.MaxToken).After("HOLD").Then(command.Period("ttl")).Extra(),
	command.Word("id").Longest(store.MaxToken).After("SETTLE").Extra(),
}

const (
	// ErrNoHolds refuses HOLD and SETTLE if the store keeps no holds.
	ErrNoHolds      command.Refusal = "ERR the store keeps no holds"
	errEmptyHold    command.Refusal = "ERR id is empty"
	errNoQuantity   command.Refusal = "ERR SETTLE needs a quantity: what was used in fact"
	errLongHeldLogs command.Refusal = "ERR HOLD is for limits of CL.SLIDINGLOG of at most 4000; larger ones are for CL.SLIDING"
)

// maxHeldLog is the largest limit of a CL.SLIDINGLOG that can be held. A correction rewrites all entries after its own.
const maxHeldLog = 4000

// SettleWork is the work (see command.Call) of a settlement, which may look through a thousand holds of a key and
// rewrite four thousand entries of a log.
const SettleWork = 32 * command.CallWork

// SettleEffort is the effort of rows that have the option SETTLE, which a transaction takes into account.
var SettleEffort = &command.Effort{Fixed: func(words [][]byte) int {
	if command.HasWord(words, "SETTLE") {
		return SettleWork
	}
	return 0
}}

// Settles reports whether a bound call has the option SETTLE, and so may give back what was taken.
func Settles(c *command.Call) bool { return c.Extras > 0 && c.OptionAt("SETTLE") > 0 }

// checkHolds checks a call with the options HOLD or SETTLE. quantity is the quantity of the call, and given reports
// whether the client gave one. leaves reports whether the call has the option LEAVE.
func (o *Options) checkHolds(c *command.Call, mode quota.Mode, quantity int64, given, leaves bool) error {
	switch {
	case c.Server.Abilities&store.KeepsHolds == 0:
		return ErrNoHolds
	case o.HoldAt > 0:
		return o.checkHold(c, mode, quantity)
	case mode == quota.Peek || mode == quota.UpTo:
		return command.ErrSyntaxAt(c.Words[o.SettleAt-1])
	case o.IDAt > 0:
		return command.ErrSyntaxAt([]byte(command.IDOption))
	case o.WaitAt > 0:
		return command.ErrSyntaxAt([]byte("WAIT"))
	case leaves:
		return command.ErrSyntaxAt([]byte("LEAVE"))
	case len(c.Words[o.SettleAt]) == 0:
		return errEmptyHold
	case !given:
		return errNoQuantity
	case quantity < 0:
		return &quota.ArgumentError{Name: "quantity", Lo: 0, Hi: math.MaxInt64}
	}
	return nil
}

func (o *Options) checkHold(c *command.Call, mode quota.Mode, quantity int64) error {
	switch {
	case mode == quota.Peek || mode == quota.Force || o.SettleAt > 0 || o.IDAt > 0:
		return command.ErrSyntaxAt([]byte("HOLD"))
	case len(c.Words[o.HoldAt]) == 0:
		return errEmptyHold
	case quantity < 1:
		return &quota.ArgumentError{Name: "quantity", Lo: 1, Hi: math.MaxInt64}
	}
	return nil
}

// newHold returns the store.Once of a call with the option HOLD.
func (a *attempt) newHold() (*store.Once, error) {
	for i := range a.of.Requests {
		if r := &a.of.Requests[i]; r.Held && r.Rule.Kind == limit.SlidingLog && r.Rule.Size() > maxHeldLog {
			return nil, errLongHeldLogs
		}
	}
	return &store.Once{
		Keys:     a.of.keys(),
		Token:    store.Token{ID: a.call.Words[a.of.HoldAt], Words: fingerprint(a.call, a.of.WaitAt), TTL: a.IDTime},
		HoldTime: a.holdTime(a.of.HoldTime),
	}, nil
}

// holdTime returns the time of a hold that lapses after a period.
func (d *Decider) holdTime(p quota.Period) time.Duration {
	longest := int64(d.MaxHold)
	ns, ok := p.Nanoseconds(longest / 1e9)
	if !ok { // it is longer than the longest; the grammar refuses anything that is no period
		ns = longest
	}
	return time.Duration(max(ns, 1))
}

// HoldOne decides a call on one key whose only option in Args is HOLD. Use it before Decide, because Decide allocates.
// The rule of the call is in c.Rule. If made is false, nothing was changed, and the caller must use Decide: for example
// because there is an error.
func (d *Decider) HoldOne(
	c *command.Call, key []byte, quantity int64, hold command.Option,
) (decision quota.Decision, made bool) {
	v, ok := c.View.(store.HoldsOne)
	id := c.Words[hold.At]
	switch {
	case !ok || c.Outcome != nil || quantity < 1 || len(id) == 0 || c.Session != nil && c.Session.IDsWait():
		return decision, false
	case c.Rule.Kind == limit.SlidingLog && c.Rule.Size() > maxHeldLog:
		return decision, false
	}
	token := store.Token{ID: id, Words: fingerprint(c, 0), TTL: d.IDTime}
	decision, repeated, made := v.HoldOne(c.Context, key, &c.Rule, quantity, token, d.holdTime(quota.Period(hold.N)))
	switch {
	case !made:
	case repeated:
		c.AfterCommit(func() { d.repeats.Add(1) })
	default:
		if d.CountKey(c, key, decision.Limited); !decision.Limited {
			d.countHolds(c, holdCounts{made: 1})
		}
	}
	return decision, made
}

// nameOfID returns the name under which a waiting call is known: its ID, or the name of its hold.
func (a *attempt) nameOfID() []byte {
	if id := a.once.Token.ID; a.of.HoldAt == 0 {
		return id
	}
	return nameOfHold(a.once.Token.ID)
}

// nameOfHold is nameOfID for a hold. Its prefix makes the name of a hold longer than any ID, so the two never collide.
func nameOfHold(id []byte) []byte { return append(make([]byte, store.MaxToken+1), id...) }

// endWait ends the wait of the call that was to make the hold, if it still waits: the work is done without the charge.
func endWait(c *command.Call, s *store.Settlement) {
	if c.Session == nil || !c.Session.IDsWait() {
		return
	}
	id := command.CallID{Key: slices.Clone(s.Key), Name: nameOfHold(s.ID)}
	c.AfterCommit(func() { c.Session.EndWait(id) })
}

// hold marks the requests of a call with HOLD.
func (k *Call) hold() {
	if k.HoldAt == 0 {
		return
	}
	for i := range k.Requests {
		k.Requests[i].Held = k.Requests[i].Lease == nil
	}
}

// holds reports whether the attempt makes a hold. allowed says whether its limits have allowed it. The hold of an
// exempt subject has charged nothing, nor has the hold of a call that is allowed only because its policy is in shadow
// mode: a client that was allowed to work must be able to settle. A call that is only explained, which is in mode Peek,
// makes no hold.
func (a *attempt) holds(allowed bool) bool {
	k := a.of
	shadow := len(k.Parts) == 1 && k.Parts[0].Policy.Shadow && len(k.Requests) == k.Parts[0].requests()
	return k.HoldAt > 0 && k.Mode != quota.Peek && !k.refused && !a.asks() && (allowed || shadow)
}

// emptyHold is the decision remembered for a hold that has charged nothing.
var emptyHold = []quota.Decision{{Limit: math.MaxInt64, Remaining: math.MaxInt64, RetryAfter: quota.Never}}

// Settle corrects what a call with HOLD has taken. The Call k has a request for each present limit, with the quantity
// that was used in fact, and its Reply gets the decisions after the correction. The caller sets Quantity, Force and
// Skip of s, and Settle its other fields.
func (d *Decider) Settle(c *command.Call, k *Call, s *store.Settlement) error {
	if err := d.findRules(c, k); err != nil {
		return err
	}
	s.Key, s.ID, s.Requests = k.Key, c.Words[k.SettleAt], k.Requests
	decisions, err := d.correct(c, s)
	if err != nil {
		return err
	}
	k.asked = k.Requests
	k.judgeSettled(c.View.Now(), decisions)
	if !s.Repeated && d.Observers.CountHold != nil {
		d.countSettled(c, k, s.Charged)
	}
	for i := range k.Parts {
		if !s.Repeated {
			d.notice(c, &k.Parts[i], true)
		}
	}
	return k.Reply(decisions, true)
}

// SettleAll is Settle for a call with several members. It ignores members that the hold has not charged.
func (d *Decider) SettleAll(c *command.Call, k *Call) error {
	text := []byte{}
	for i := range k.Requests {
		text = binary.AppendVarint(text, k.Requests[i].Quantity)
	}
	s := &store.Settlement{Quantity: -1 - int64(xxh3.Hash(text)>>1), Skip: true}
	if len(k.Requests) == 1 {
		s.Quantity = k.Requests[0].Quantity
	}
	for i := range k.Requests {
		s.Force = s.Force || k.Requests[i].Mode == quota.Force
	}
	return d.Settle(c, k, s)
}

// SettleOne is Settle for a call on one limiter, without a policy. It writes no reply.
func (d *Decider) SettleOne(c *command.Call, r *store.LimitRequest, id []byte, force bool) (quota.Decision, error) {
	s, ok := d.held.settlements.Get().(*store.Settlement)
	if !ok {
		s = &store.Settlement{}
	}
	s.Key, s.ID, s.Quantity, s.Force, s.Requests = r.Key, id, r.Quantity, force, append(s.Requests, *r)
	decisions, err := d.correct(c, s)
	if c.Work += s.Work; err != nil {
		return quota.Decision{}, err // a store that does not answer may still use s
	}
	if len(decisions) != 1 { // a call on a policy has settled the hold, and the key is the one that its ID belongs to
		return quota.Decision{}, store.ErrReused
	}
	clear(s.Requests)
	*s = store.Settlement{Requests: s.Requests[:0], Charged: s.Charged[:0]}
	d.held.settlements.Put(s)
	return decisions[0], nil
}

// correct corrects what a hold has charged, and counts it.
func (d *Decider) correct(c *command.Call, s *store.Settlement) ([]quota.Decision, error) {
	if _, explained := c.Outcome.(*Explanation); explained {
		return nil, errExplainsSettle
	}
	endWait(c, s)
	s.Remember = d.IDTime
	decisions, err := c.View.(store.HoldKeeper).Settle(c.Context, s)
	if err != nil || s.Repeated {
		return decisions, err
	}
	for i := range decisions {
		if taken := decisions[i].Taken; taken < 0 {
			d.countHolds(c, holdCounts{givenBack: -taken})
		}
	}
	if s.Found {
		d.countHolds(c, holdCounts{settled: 1})
	}
	return decisions, nil
}

// countSettled counts the quantities of a settlement for the policies that the hold has charged.
func (d *Decider) countSettled(c *command.Call, k *Call, charged []int64) {
	for i := range k.Parts {
		p := &k.Parts[i]
		if slices.ContainsFunc(charged[p.From:p.From+p.requests()], func(n int64) bool { return n > 0 }) {
			d.Observers.CountHold(c, p, 0, p.Request.Quantity)
		}
	}
}

// findRules reads the standings of subjects: a hold is corrected by the rules of the subject's plan, and the reply
// shows its grants. If an operation costs a round trip, and the policy has no plans, it reads nothing: showing grants
// is not worth the round trip.
func (d *Decider) findRules(c *command.Call, k *Call) error {
	_, steps := c.View.(store.Stepper)
	for i := range k.Parts {
		p := &k.Parts[i]
		if steps && len(p.Policy.Plans) == 0 || !d.MayHaveStandings() {
			continue
		}
		state, err := c.View.Standing(c.Context, p.Standing)
		if err != nil {
			return err
		}
		k.useStanding(p, c.View.Now(), &state)
	}
	return nil
}

// judgeSettled sets the verdicts of the parts after a correction. Neither standings nor shadow mode matter. As in
// Call.settle, a repeated correction has the decisions of the first, and the policies may have got other limits since.
func (k *Call) judgeSettled(now int64, decisions []quota.Decision) {
	fits := k.Fits(decisions)
	for i := range k.Parts {
		p := &k.Parts[i]
		switch {
		case fits && p.requests() == 0:
			p.Verdict, _ = p.Policy.JudgeStanding(now, nil, p.Treatment, p.Request)
			p.Verdict.Limited, p.Verdict.Taken = false, 0
			continue
		case fits:
			p.Decisions = decisions[p.From : p.From+p.requests()]
		case len(decisions) == 0:
			p.Decisions = emptyHold
		default:
			p.Decisions = decisions
		}
		p.Verdict = p.Policy.JudgeLimits(p.Decisions)
	}
}

// countHolds counts what a call has done with holds, when it commits.
func (d *Decider) countHolds(c *command.Call, n holdCounts) {
	if c.InTransaction {
		d.countHoldsLater(c, n)
		return
	}
	d.held.add(n)
}

// countHoldsLater is not a part of countHolds, because its closure would make every call allocate.
func (d *Decider) countHoldsLater(c *command.Call, n holdCounts) {
	c.AfterCommit(func() { d.held.add(n) })
}

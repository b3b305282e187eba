package decide

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"cellserver/internal/command"
	"cellserver/internal/policy"
	"cellserver/internal/quota"
	"cellserver/internal/stats"
	"cellserver/internal/store"
	"cellserver/internal/topk"
)

// Decider makes the decisions of a server.
type Decider struct {
	Fallback  Fallback
	Top       topk.Counter           // for CL.TOP
	Tokens    store.TokenCounter     // for INFO; nil if the store does not count IDs
	Standings store.StandingReporter // nil if the store does not know whether it holds standings

	// LimitWhenFull limits a call if there is no memory for its keys, in place of refusing it (--oom-decision).
	LimitWhenFull atomic.Bool
	IDTime        time.Duration     // how long the ID of a call is remembered
	MaxHold       time.Duration     // the longest time until a hold lapses
	Holds         store.HoldCounter // nil if the store keeps none
	Observers     Observers

	held    holdState
	repeats atomic.Int64 // calls that got the decision of an earlier one with the same ID
}

// holdState counts what calls of this server have done, wherever the holds are.
type holdState struct {
	settlements sync.Pool // of *store.Settlement, with memory for SettleOne
	made        atomic.Int64
	settled     atomic.Int64
	givenBack   stats.Total // quantity that settled holds have given back
}

// holdCounts is what a call adds to the totals.
type holdCounts struct{ made, settled, givenBack int64 }

func (s *holdState) add(n holdCounts) {
	s.made.Add(n.made)
	s.settled.Add(n.settled)
	s.givenBack.Add(n.givenBack)
}

// Observers are told what calls on policies do. Each of the functions may be nil.
type Observers struct {
	// CountHold is called with the quantity that a call has held, or settled a hold with.
	CountHold func(c *command.Call, p *Part, held, settled int64)
	// NoteUse is called with a part of a call that is sampled.
	NoteUse func(c *command.Call, p *Part)
	// Report is called when a subject has reached a threshold of a policy with notify.
	Report func(c *command.Call, p *policy.Policy, e policy.Event)

	thresholds thresholds // that were reported
}

// Watch wraps the rows that decide, so that the Fallback notices when the store makes decisions again. It returns rows.
func (d *Decider) Watch(rows []*command.Command) []*command.Command {
	for _, row := range rows {
		if row.Traits&command.Decides != 0 && d.Fallback.Log != nil {
			row.Run = d.Fallback.watch(row.Run)
		}
	}
	return rows
}

// Call asks for one decision about all of its requests: to take from all of them, or from none.
type Call struct {
	Requests []store.LimitRequest // borrowed; includes the requests of the parts
	Key      []byte               // the key that an ID belongs to: the standing or the key of the first member
	Parts    []Part               // what policies add to the call; nil if it names no policy
	Mode     quota.Mode           // Take, Peek or UpTo; single requests may be forced
	Options
	// Reply counts the decision and writes the reply. It is called once, unless the call waits or gets an error.
	// There is a decision for each request, except for requests that a part has not asked (see Part.Asked).
	Reply func(decisions []quota.Decision, allowed bool) error

	asked   []store.LimitRequest // Requests, without the requests of parts that are decided already
	refused bool                 // a part refuses the call, whatever the limits say
}

// Decide makes a call, and writes the reply unless the call waits. Use it for calls with options or policies; calls
// without either ask the store themselves, and call OnError or Answer afterwards.
func (d *Decider) Decide(c *command.Call, k *Call) error {
	if e, ok := c.Outcome.(*Explanation); ok {
		return d.explain(c, k, e)
	}
	a := &attempt{Decider: d, call: c, of: k}
	k.hold()
	k.asked = k.Requests
	if decisions, ok := a.spend(); ok {
		return a.reply(decisions, !decisions[0].Limited)
	}
	if err := a.judgeFirst(); err != nil {
		return err
	}
	if !k.refused { // a refused call takes nothing, so there is nothing to wait for, and nothing to remember
		a.wait = waitOf(c, k)
		if taken, err := a.enter(); taken || err != nil {
			return err
		}
	}
	decisions, allowed, err := a.make(c.Context, c.View)
	if err != nil {
		return a.answer(err, decisions)
	}
	if !a.repeated && !k.refused && a.left > 0 && (!allowed || a.behind) {
		if key, of := a.longest(decisions); a.continues(&of) {
			return c.Wait(a.delay(key, &of, decisions))
		}
	}
	if a.left > 0 && !a.repeated { // before this, the call might still have waited
		a.countRefusals(c.Context, c.View, decisions, allowed)
	}
	return a.reply(decisions, allowed)
}

// OnError answers a call that a row has made itself, and for which the store returned an error, and perhaps decisions.
// If the store fails, it answers as --store-fails says; if memory is full, as --oom-decision says. It returns any other
// error.
func (d *Decider) OnError(c *command.Call, k *Call, err error, decisions []quota.Decision) error {
	k.asked = k.Requests
	return (&attempt{Decider: d, call: c, of: k}).answer(err, decisions)
}

// Answer answers a call on a policy that a row has made itself, because the store holds no standings.
func (d *Decider) Answer(c *command.Call, k *Call, decisions []quota.Decision, allowed bool) error {
	k.asked = k.Requests
	a := &attempt{Decider: d, call: c, of: k}
	a.countRefusals(c.Context, c.View, decisions, allowed)
	return a.reply(decisions, allowed)
}

// answer answers a call that the store has failed to decide.
func (a *attempt) answer(err error, decisions []quota.Decision) error {
	if a.judges && !errors.Is(err, store.ErrWrongKind) {
		a.judgeWithoutStore()
		if len(a.of.asked) == 0 {
			return a.reply(nil, !a.of.refused)
		}
	}
	allowed := false
	if !errors.Is(err, store.ErrFull) {
		decisions, allowed, err = a.Fallback.decide(a, err)
	}
	if errors.Is(err, store.ErrFull) && a.LimitWhenFull.Load() {
		decisions, err = a.limitIfFull(decisions)
	}
	if err != nil {
		return err
	}
	return a.reply(decisions, allowed)
}

// limitIfFull limits the requests for which there is no memory, because many clients admit a call that gets an error.
// If there are several requests, their decisions say which of them need memory. If there are no decisions, because the
// ID of the call cannot be remembered, it limits the first request.
func (a *attempt) limitIfFull(decisions []quota.Decision) (_ []quota.Decision, err error) {
	asked := a.of.asked
	switch {
	case len(decisions) == len(asked):
	case len(asked) == 1:
		decisions = []quota.Decision{{Limited: true}}
	default:
		if decisions, _, err = a.call.View.TakeAll(a.call.Context, asked, quota.Ask); err != nil {
			return nil, err
		}
		decisions[0].Limited = true
	}
	for i := range decisions {
		// The client may try again after a second: the next measurement of memory may find some free.
		if decisions[i].Limited {
			decisions[i] = quota.Decision{Limited: true, Limit: asked[i].Size(), RetryAfter: int64(time.Second)}
		}
	}
	return decisions, nil
}

// reply counts the decisions of a call, and writes its reply.
func (a *attempt) reply(decisions []quota.Decision, allowed bool) error {
	sampled := false
	if a.repeated {
		a.call.AfterCommit(func() { a.repeats.Add(1) })
	} else {
		for i := range decisions {
			sampled = a.CountKey(a.call, a.of.asked[i].Key, decisions[i].Limited) || sampled
		}
	}
	if a.made != nil {
		a.countHolds(a.call, holdCounts{made: 1})
	}
	a.of.settle(decisions)
	for i := range a.of.Parts {
		if sampled && !a.call.WithoutStore && a.Observers.NoteUse != nil && a.of.Mode != quota.Peek {
			a.Observers.NoteUse(a.call, &a.of.Parts[i])
		}
		if !a.repeated && !a.call.WithoutStore && a.of.Mode != quota.Peek {
			a.notice(a.call, &a.of.Parts[i], false)
		}
		if p := &a.of.Parts[i]; a.made != nil && a.Observers.CountHold != nil && len(p.Decisions) > 0 {
			a.Observers.CountHold(a.call, p, p.Decisions[0].Taken, 0)
		}
	}
	return a.of.Reply(decisions, allowed)
}

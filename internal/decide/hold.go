package decide

import (
	"math"
	"time"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// A call with HOLD charges an estimate, and may be corrected once, by a call with SETTLE: see store.HoldKeeper. HOLD
// is an ID that is remembered for as long as the hold is open, so it goes through Once as well.

// HoldArgs are the options HOLD and SETTLE.
var HoldArgs = []command.Arg{
	command.Word("id").Longest(store.MaxToken).After("HOLD").Then(command.Period("ttl")).Extra(),
	command.Word("id").Longest(store.MaxToken).After("SETTLE").Extra(),
}

const (
	// ErrNoHolds refuses calls about holds if the store keeps none.
	ErrNoHolds      command.Refusal = "ERR holds need the keys in the memory of this server: they are not possible with --store"
	errEmptyHold    command.Refusal = "ERR id is empty"
	errNoQuantity   command.Refusal = "ERR SETTLE needs a quantity: what was used in fact"
	errLongHeldLogs command.Refusal = "ERR HOLD is for limits of CL.SLIDINGLOG of at most 4000; larger ones are for CL.SLIDING"
)

// maxHeldLog is the largest limit of a CL.SLIDINGLOG that can be held: a correction writes its later entries again.
const maxHeldLog = 4000

// SettleWork is the work (see command.Call) of a settlement. It looks through a thousand holds of a key, and may write
// four thousand entries of a log again.
const SettleWork = 32 * command.BytesPerUnit

// SettleEffort is the effort of rows that have the option SETTLE, which a transaction takes into account.
var SettleEffort = &command.Effort{Fixed: func(words [][]byte) int {
	if command.HasWord(words, "SETTLE") {
		return SettleWork
	}
	return 0
}}

// addHolds adds the options HOLD and SETTLE of a call whose row binds them. quantity is that of the call, and given
// says that it is one of the words.
func (o *Options) addHolds(c *command.Call, mode quota.Mode, quantity int64, given bool) error {
	o.HoldAt, o.SettleAt = c.OptionAt("HOLD"), c.OptionAt("SETTLE")
	if o.HoldAt == 0 && o.SettleAt == 0 {
		return nil
	}
	if c.Server.Abilities&store.KeepsHolds == 0 {
		return ErrNoHolds
	}
	if o.HoldAt > 0 {
		o.HoldTime = quota.Period(c.Option("HOLD"))
		return o.checkHold(c, mode, quantity)
	}
	switch {
	case mode == quota.Peek || mode == quota.UpTo:
		return command.ErrSyntaxAt(c.Words[o.SettleAt-1])
	case o.IDAt > 0:
		return command.ErrSyntaxAt([]byte(command.IDOption))
	case o.WaitAt > 0:
		return command.ErrSyntaxAt([]byte("WAIT"))
	case c.HasOption("LEAVE"):
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

// newHold returns an attempt of a call with the option HOLD as one that is made once.
func (a *attempt) newHold() (*store.Once, error) {
	for i := range a.of.Requests {
		if r := &a.of.Requests[i]; r.Held && r.Rule.Kind == limit.SlidingLog && r.Rule.Size() > maxHeldLog {
			return nil, errLongHeldLogs
		}
	}
	longest := int64(a.MaxHold)
	time, ok := a.of.HoldTime.Nanoseconds(longest / 1e9)
	if !ok { // it is longer than that, or no period, which the grammar refuses
		time = longest
	}
	return &store.Once{
		Keys:     a.of.keys(),
		Token:    store.Token{ID: a.call.Words[a.of.HoldAt], Words: fingerprint(a.call, a.of.WaitAt), TTL: a.IDTime},
		HoldTime: holdTime(time),
	}, nil
}

func holdTime(ns int64) time.Duration { return time.Duration(max(ns, 1)) }

// nameOfID returns the name by which calls that wait are known. The IDs of holds are longer than any other.
func (a *attempt) nameOfID() []byte {
	if id := a.once.Token.ID; a.of.HoldAt == 0 {
		return id
	}
	return append(make([]byte, store.MaxToken+1), a.once.Token.ID...)
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

// holds reports whether the attempt makes a hold, if the call is allowed. The hold of an exempt subject has charged
// nothing.
func (a *attempt) holds() bool { return a.of.HoldAt > 0 && !a.of.refused && !a.asks() }

// emptyHold is what is remembered of a hold that has charged nothing.
var emptyHold = []quota.Decision{{Limit: math.MaxInt64, Remaining: math.MaxInt64, RetryAfter: quota.Never}}

// Settle corrects what a call with HOLD has taken. The requests of the call are those of the present limits, and its
// Reply gets the decisions after the correction.
func (d *Decider) Settle(c *command.Call, k *Call, quantity int64, force bool) error {
	s := &store.Settlement{
		Key: k.Key, ID: c.Words[k.SettleAt], Quantity: quantity, Requests: k.Requests, Force: force, Remember: d.IDTime,
	}
	decisions, err := c.View.(store.HoldKeeper).Settle(c.Context, s)
	if err != nil {
		return err
	}
	k.asked = k.Requests
	for i := range decisions {
		if taken := decisions[i].Taken; taken < 0 && !s.Repeated {
			c.AfterCommit(func() { d.givenBack.Add(-taken) })
		}
	}
	return k.Reply(decisions, true)
}

// Package limiter implements the commands of the rate limiters, and the commands that show their keys.
//
//	throttle.go, window.go, quota.go   CL.THROTTLE; CL.FIXED, CL.SLIDING and CL.SLIDINGLOG; CL.QUOTA
//	lease.go                           CL.ACQUIRE, CL.RENEW, CL.RELEASE and CL.HOLDERS
//	all.go, allparse.go                CL.ALL, whose members may be any of these, or policies
//	inspect.go, top.go, gcra.go        CL.INSPECT, CL.TOP, and GCRA, as Redis built and withheld it
//
// A row reads its words into a store.LimitRequest: a key, a rule and a quantity. Without further
// options, it asks the store itself, in one step, and writes the decision; this is the hot path. With
// LEAVE, WAIT, ID, HOLD or SETTLE, it passes the request to package decide, which implements these
// options for all families. There, a single limiter is a CL.ALL of one.
//
// The rows call decide.WriteDecision directly. With one more function in between, the compiler does not
// inline it, and CL.THROTTLE took 1.4 % more instructions.
package limiter

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// Family is the state that the limiters' commands share.
type Family struct {
	*decide.Decider
	Policies    decide.Policies // for members of CL.ALL
	maxLogLimit int             // the largest limit of CL.SLIDINGLOG
	maxHolders  int             // maximum number of holders per key
}

// Commands returns the rows of the family, in reading order.
func (l *Family) Commands() []*command.Command {
	return l.Watch(slices.Concat([]*command.Command{l.throttle()}, l.windowRows(), []*command.Command{
		l.quota(), l.acquire(), l.renew(), l.release(), l.holders(), l.holds(), l.all(), l.gcra(), l.inspect(),
		l.topKeys(),
	}))
}

// The arguments that follow the limit in several commands.
var (
	quantityArg = command.Int("quantity").Or(1)
	msArg       = command.Flag("MS")
	verboseArg  = command.Flag("VERBOSE")
)

// modeIsPeek is the KeyRules.Peeks of rows that have a decide.ModeArg.
func modeIsPeek(c *command.Call) bool {
	return decide.Modes[c.Bound[indexOf(c, decide.ModeArg.Name)].N] == quota.Peek
}

// quantityTakes is the KeyRules.Takes of rows that have a quantityArg.
func quantityTakes(c *command.Call) bool {
	return c.Bound[indexOf(c, quantityArg.Name)].N >= 0 && !decide.Settles(c)
}

// indexOf returns the index of an argument that the row of a call has.
func indexOf(c *command.Call, argument string) (i int) {
	for c.Row.Args[i].Name != argument {
		i++
	}
	return i
}

// leaveArg is the option LEAVE.
var leaveArg = command.Int("n").Min(0).After("LEAVE").Extra()

// request is a call of a limiter on one key.
type request struct {
	store.LimitRequest
	mode quota.Mode
	ms   bool
}

// call returns the decide.Call of a request.
func (r request) call(c *command.Call) *decide.Call {
	k := &decide.Call{Key: r.Key, Mode: r.mode}
	if r.mode == quota.Force {
		k.Mode, r.Mode = quota.Take, quota.Force
	}
	k.Requests = []store.LimitRequest{r.LimitRequest}
	k.Reply = func(decisions []quota.Decision, _ bool) error {
		writeReply(c, &decisions[0], r.mode, r.ms)
		return nil
	}
	return k
}

// decideWithOptions decides a request of a call with options that the row does not test one by one (see Call.Extras).
func (l *Family) decideWithOptions(c *command.Call, r request) (err error) {
	given := c.Bound[indexOf(c, quantityArg.Name)].At > 0
	options, err := decide.OptionsOf(c, r.mode, r.Quantity, given)
	if err != nil {
		return err
	}
	if options.SettleAt > 0 {
		return l.settle(c, &r, c.Words[options.SettleAt])
	}
	r.Leave = c.Option("LEAVE")
	k := r.call(c)
	k.Options = options
	return l.Decide(c, k)
}

// takeOnce decides a call as decideWithOptions would, without allocating. It works only if ID or HOLD is the call's
// only option that the row does not test. The rule is in c.Rule. If made is false, takeOnce has done nothing.
func (l *Family) takeOnce(c *command.Call, key []byte, quantity int64, mode quota.Mode, ms bool) (made bool) {
	var d quota.Decision
	if id := c.OnlyTokenAt(); id > 0 {
		d, made = l.TakeOnce(c, key, quantity, mode, id)
	} else if option := c.OnlyExtra(); option.Token == "HOLD" && mode == quota.Take {
		d, made = l.HoldOne(c, key, quantity, option)
	}
	if made {
		writeReply(c, &d, mode, ms)
	}
	return made
}

// settle settles a hold. The reply has a sixth integer, the correction.
func (l *Family) settle(c *command.Call, r *request, id []byte) error {
	d, err := l.SettleOne(c, &r.LimitRequest, id, r.mode == quota.Force)
	if err == nil {
		decide.WriteDecision(c, &d, quota.UpTo, r.ms)
	}
	return err
}

// reply counts a decision of the store about one key, and writes the reply.
func (l *Family) reply(c *command.Call, key []byte, d *quota.Decision, mode quota.Mode, ms bool) {
	l.CountKey(c, key, d.Limited)
	writeReply(c, d, mode, ms)
}

// writeReply counts a limited decision, and writes the reply.
func writeReply(c *command.Call, d *quota.Decision, mode quota.Mode, ms bool) {
	if d.Limited {
		c.Limited++
	}
	decide.WriteDecision(c, d, mode, ms)
}

const limiterReply = "The [five integers](#the-reply-of-a-limiter); with UPTO a sixth: what was taken or, if negative, refunded."

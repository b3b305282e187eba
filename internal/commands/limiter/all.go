package limiter

import (
	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

func (l *Family) all() *command.Command {
	return &command.Command{
		Name: "cl.all", Group: "limiter", Since: "1.0.0",
		Complexity: "O(N) in the number of limiters, and a comparison of each two keys; O(N) in the holders of each lease",
		Flags:      command.Write | command.Fast, Cost: command.Constant,
		Traits:    command.Decides | command.NamesArguments,
		Effort:    &command.Effort{Fixed: l.fixedWork},
		Summary:   "Takes from several limiters, and acquires permits, or does none of it (all or nothing).",
		KeyAccess: "RW ACCESS UPDATE",
		Args: append([]command.Arg{command.Int("count").Min(1).Max(decide.MaxRequests),
			command.Word("LIMITER key args... quantity [FORCE] [LIMITER key args... quantity [FORCE] ...]").Many(),
			command.Flag("PEEK"), msArg, verboseArg}, decide.CallArgs...),
		AnyMore: true, Keys: command.KeyRules{Find: limiterKeys, First: 3, Peeks: allPeeks,
			Rights: l.memberKeys(decide.Policies.MemberRight), Touched: l.memberKeys(decide.Policies.MemberKeys),
			OneStep: namesNoPolicy, Snapshot: func() any { return l.Policies.Snapshot() }},
		Reply: `Each limiter is THROTTLE key max_burst count_per_period period quantity; ` +
			limit.List(windowKinds(), entryName, "or") + `
key limit period quantity; QUOTA key limit unit quantity; ACQUIRE key limit ttl holder quantity; or TAKE subject
policy quantity, which stands for all limits of a policy. count is the number of limiters, 1 to 64. FORCE may follow
any quantity except for ACQUIRE and TAKE: the quantity is taken if all other limiters allow the call, and limits
nothing. The reply is an array. Its first element is limited: 0 if all limiters allowed their quantities; 1 if one
did not, and nothing was taken. The second is the longest retry_after of the limiters that did not; -1 if all did, or if
one never will. Then there are the five integers of each limiter; for a policy, the five integers of the limit that
decides or, with VERBOSE, the map of CL.TAKE. If the call is limited, remaining and reset_after of each limiter are its
present state, and a forced quantity is shown as allowed. A lease beyond the limit, which its holder may keep, is
limited if it ends before the others are allowed. HOLD charges all limiters except leases. SETTLE names the limiters of
the call with HOLD in the same order, with the quantities that were used in fact; it ignores limiters that the hold has
not charged, and each limiter of its reply has a sixth integer.`,
		Run: l.runAll,
	}
}

func (l *Family) runAll(c *command.Call) error {
	k, err := l.parseAll(c)
	if err == nil {
		err = l.makeAll(c, k)
	}
	k.forget()
	return err
}

func (l *Family) makeAll(c *command.Call, k *allMemory) error {
	if k.policies == nil && repeatsKey(k.requests) {
		return errRepeatsKey
	}
	if k.SettleAt > 0 {
		c.Work += decide.SettleWork * len(k.requests)
	}
	if c.Work > command.MaxLoopWork && c.Session != nil && !c.InTransaction {
		return l.Offload(c, l.firstKey(c), k.Wait)
	}
	if k.policies != nil || c.Extras > 0 || c.Outcome != nil {
		return l.decideAll(c, k.allCall)
	}
	decisions, allowed, err := c.View.TakeAll(c.Context, k.requests, k.mode)
	if err != nil {
		return l.OnError(c, l.callOf(c, k.allCall), err, decisions)
	}
	for i := range decisions {
		l.CountKey(c, k.requests[i].Key, decisions[i].Limited)
	}
	writeAll(c, decisions, k.mode, allowed, k.ms, nil)
	return nil
}

// callOf returns the decide.Call of a call. It keeps a copy of k, which Reply needs after the steps of the call.
func (l *Family) callOf(c *command.Call, k allCall) *decide.Call {
	call := &decide.Call{Requests: k.requests, Mode: k.mode, Options: k.Options}
	if k.SettleAt > 0 {
		call.Mode = quota.UpTo // its reply has a sixth integer
	}
	call.Reply = func(decisions []quota.Decision, allowed bool) error {
		if !call.Fits(decisions) {
			return store.ErrReused
		}
		l.replyAll(c, &k, call, decisions, allowed)
		return nil
	}
	return call
}

// decideAll makes a call with options, or with policies.
func (l *Family) decideAll(c *command.Call, k allCall) error {
	call := l.callOf(c, k)
	err := l.expand(c, &k, call)
	switch {
	case err != nil:
	case len(call.Requests) > decide.MaxRequests:
		err = errManyLimits
	case k.policies != nil && repeatsKey(call.Requests):
		err = errRepeatsKey
	case k.SettleAt > 0:
		err = l.SettleAll(c, call)
	default:
		err = l.Decide(c, call)
	}
	if err != nil && call.Parts != nil {
		l.Policies.CountFailure(c, call)
	}
	return err
}

// expand replaces the policies of a call by the requests of their limits. Policies in shadow mode, which refuse
// nothing, come last.
func (l *Family) expand(c *command.Call, k *allCall, call *decide.Call) error {
	first := k.first()
	if call.Key = k.requests[first].Key; k.policies == nil {
		return nil
	}
	var shadows [][]store.LimitRequest // of each part
	call.Requests = make([]store.LimitRequest, 0, 2*len(k.requests))
	for i := range k.requests {
		r, named := &k.requests[i], len(call.Parts)
		if named == len(k.policies) || k.policies[named].member != i {
			call.Requests = append(call.Requests, *r)
			continue
		}
		part, requests, err := l.Policies.Part(c, call.Mode, r.Key, k.policies[named].name, r.Quantity)
		if err != nil {
			return err
		}
		if part.From = len(call.Requests); part.Policy.Shadow {
			shadows = append(shadows, requests)
		} else {
			shadows, call.Requests = append(shadows, nil), append(call.Requests, requests...)
		}
		call.Parts = append(call.Parts, part)
	}
	for i, requests := range shadows {
		if requests != nil {
			call.Parts[i].From = len(call.Requests)
		}
		for j := range requests {
			requests[j].Shadow = i + 1
		}
		call.Requests = append(call.Requests, requests...)
	}
	for i := range k.policies {
		if k.policies[i].member == first {
			call.Key = call.Parts[i].Standing
		}
	}
	return nil
}

// first returns the index of the member that the ID of a call belongs to: the first member; for a hold, the first
// member that is not a lease, because a call with SETTLE names no leases.
func (k *allCall) first() int {
	if k.HoldAt > 0 {
		for i := range k.requests {
			if k.requests[i].Lease == nil {
				return i
			}
		}
	}
	return 0
}

const (
	errManyLimits command.Refusal = "ERR CL.ALL takes at most 64 limits, including the limits of policies"
	errRepeatsKey command.Refusal = "ERR CL.ALL takes a key once"
)

// replyAll writes the reply of a call. For a policy, it shows the decision of the policy's verdict.
func (l *Family) replyAll(c *command.Call, k *allCall, call *decide.Call, decisions []quota.Decision, allowed bool) {
	if k.policies == nil {
		writeAll(c, decisions, call.Mode, allowed, k.ms, nil)
		return
	}
	shown, parts := make([]quota.Decision, len(k.requests)), make([]*decide.Part, len(k.requests))
	for i := range k.policies {
		parts[k.policies[i].member] = &call.Parts[i]
	}
	for i, p := range parts {
		switch {
		case p == nil:
			shown[i], decisions = decisions[0], decisions[1:]
			continue
		case !p.Policy.Shadow: // in shadow mode, the decisions come last
			decisions = decisions[p.Asked():]
		}
		shown[i] = p.Verdict.Decision
	}
	limited := writeAll(c, shown, call.Mode, allowed, k.ms, func(i int) bool {
		if parts[i] == nil || !k.verbose {
			return false
		}
		l.Policies.WriteVerbose(c, parts[i], k.ms)
		return true
	})
	if k.SettleAt == 0 {
		l.Policies.Count(c, call, limited)
	}
}

// writeAll writes the reply of a call, and reports whether it is limited. If it is allowed, only forced quantities are
// beyond their limits. instead, if it is not nil, may write the i-th member in place of its decision, and reports
// whether it has.
func writeAll(
	c *command.Call, decisions []quota.Decision, mode quota.Mode, allowed, ms bool, instead func(i int) bool,
) bool {
	limited, retry := int64(0), int64(quota.Never)
	for i := 0; !allowed && i < len(decisions); i++ {
		if decisions[i].Limited {
			limited = 1
		}
	}
	if limited > 0 {
		retry, _ = quota.LongestRetry(decisions)
	}
	c.Limited += limited // they count as one decision
	c.Out.Array(2 + len(decisions))
	c.Out.Int(limited)
	c.Out.Int(command.WholeUnits(retry, ms))
	for i := range decisions {
		if instead == nil || !instead(i) {
			decide.WriteDecision(c, &decisions[i], mode, ms)
		}
	}
	return limited > 0
}

// allPeeks reports whether PEEK follows the limiters.
func allPeeks(c *command.Call) bool {
	at := 2
	for i, e := range membersOf(c.Words) {
		if e.form == nil {
			return false
		}
		at = i + e.words
	}
	return c.BindOptions(at) == nil && c.HasOption("PEEK")
}

// fixedWork returns the work of the leases and the policies of a call in a transaction, which looks policies up
// twice: to find the keys of the call, and to make it.
func (l *Family) fixedWork(words [][]byte) (work int) {
	verbose, settles := command.HasWord(words, "VERBOSE"), decide.SettleEffort.Fixed(words)
	for i, e := range membersOf(words) {
		work += settles
		switch {
		case e.form == nil:
		case e.form.kind == limit.Lease:
			work += leaseChangeWork
		case e.form.kind == limit.None:
			work += 2 * l.Policies.MemberWork(l.Policies.Snapshot(), words[i+1], words[i+2], verbose)
		}
	}
	return work
}

// snapshotOf returns the snapshot of the policies that a call uses.
func snapshotOf(c *command.Call) any {
	if c.Snapshot != nil {
		return c.Snapshot
	}
	return c.Row.TakeSnapshot()
}

// namesNoPolicy is the KeyRules.OneStep of CL.ALL. It does not bind the words, so it may also be false for a
// call with TAKE among its other words.
func namesNoPolicy(words [][]byte) bool {
	return !command.HasWord(words, "TAKE")
}

// memberKeys returns a KeyRules.Touched or KeyRules.Rights of CL.ALL. It appends the keys of the members, and calls
// ofPolicy for each policy.
func (l *Family) memberKeys(
	ofPolicy func(p decide.Policies, keys [][]byte, snapshot any, subject, policy []byte) [][]byte,
) func(keys, words [][]byte, snapshot any) [][]byte {
	return func(keys, words [][]byte, snapshot any) [][]byte {
		for i, e := range membersOf(words) {
			switch {
			case e.form == nil:
			case e.form.kind == limit.None:
				keys = ofPolicy(l.Policies, keys, snapshot, words[i+1], words[i+2])
			default:
				keys = append(keys, words[i+1])
			}
		}
		return keys
	}
}

// firstKey returns the key of the queue that a call joins if it is to be made outside the event loop.
func (l *Family) firstKey(c *command.Call) []byte {
	words := c.Words[2:]
	if entryOf(words).form.kind == limit.None {
		return l.Policies.MemberHead(snapshotOf(c), words[1], words[2])
	}
	return words[1]
}

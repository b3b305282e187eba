package limiter

import (
	"cmp"
	"errors"

	"cellserver/internal/command"
	"cellserver/internal/store"
)

// A member of CL.ALL may be TAKE subject policy quantity, which stands for all limits of a policy. Few
// calls have such a member, so they are parsed apart, and the family of policies decides them: see
// command.Policies.

// errNamesPolicy is returned for a call that has such a member.
var errNamesPolicy = errors.New("a member is a policy")

// decidePolicies makes a CL.ALL of which a member is a policy.
func (l *Family) decidePolicies(c *command.Call, count int) error {
	members, takes, words := make([]command.Member, count), make([]store.LimitRequest, count), c.Words[2:]
	var err error
	c.Work = 0 // leases before the first policy have been counted
	for i := range members {
		e := entryOf(words)
		if e.form == nil {
			return errNoLimiter(i, words)
		}
		if err == nil {
			err = ofLimiter(i, l.member(c, &members[i], takes, i, e, words[1:e.form.words]))
		}
		words = words[e.words:]
	}
	o, ok := allOptionsOf(words)
	if !ok {
		return o.err // before errors of single numbers
	}
	o.first = len(c.Words) - len(words)
	if err = cmp.Or(err, o.err); err != nil {
		return err
	}
	if c.Work > command.MaxLoopWork && c.Session != nil && !c.InTransaction {
		return l.offloadAll(c, l.allRights(nil, c.Words, snapshotOf(c))[0], o)
	}
	call := &command.LimitCall{Peek: o.peek, Wait: o.wait}
	if o.idAt > 0 {
		call.IDAt, call.WaitAt = o.places()
	}
	err = l.Policies.Join(c, members, call, command.MemberReply{MS: o.ms, Verbose: o.verbose})
	if err == nil {
		err = l.decideJoint(c, call)
	}
	if err != nil {
		call.Failed()
	}
	return err
}

// decideJoint makes a call of which a member is a policy.
func (l *Family) decideJoint(c *command.Call, call *command.LimitCall) error {
	switch {
	case len(call.Requests) == 0:
		return call.Reply(command.LimitOutcome{})
	case len(call.Requests) > maxRequests:
		return errManyLimits
	case repeatsKey(call.Requests):
		return errRepeatsKey
	}
	return l.Decide(c, call)
}

const (
	errManyLimits command.Refusal = "ERR CL.ALL takes at most 64 limits, with those of policies"
	errRepeatsKey command.Refusal = "ERR CL.ALL takes a key once"
)

// member reads the i-th member of a call.
func (l *Family) member(c *command.Call, m *command.Member, takes []store.LimitRequest, i int, e entry,
	words [][]byte) (err error) {
	switch e.form.kind {
	case store.None:
		m.NamesPolicy, m.Subject, m.Policy = true, words[0], words[1]
		if err := c.CheckKey(m.Subject); err != nil {
			return err
		}
		c.Work += l.Policies.MemberWork(snapshotOf(c), m.Subject, m.Policy, false) // showing them is counted then
		m.Quantity, err = integerBeforeOption("quantity", words[2])
		return err
	case store.Lease:
		err = l.leaseRequest(c, takes, i, words)
	default:
		err = l.request(c, &takes[i], e, words)
	}
	m.Request = takes[i]
	return err
}

// snapshotOf returns the snapshot of the policies with which a call is made.
func snapshotOf(c *command.Call) any {
	if c.Snapshot != nil {
		return c.Snapshot
	}
	return c.Row.TakeSnapshot()
}

// eachMember calls visit for each member of CL.ALL, whose words begin with its name. It stops where the
// words are not those of a member.
func eachMember(words [][]byte, visit func(e entry, words [][]byte)) {
	count, ok := command.ParseInteger(words[1], true)
	if !ok || count > maxRequests {
		return
	}
	words = words[2:]
	for range count {
		e := entryOf(words)
		if e.form == nil {
			return
		}
		visit(e, words)
		words = words[e.words:]
	}
}

// namesPolicy is the KeyRules.SeveralSteps of CL.ALL. It does not bind the words, so it may also report a
// call of which another word is TAKE.
func namesPolicy(words [][]byte) bool {
	return command.HasWord(words, "TAKE")
}

// allKeys is the KeyRules.Touched of CL.ALL.
func (l *Family) allKeys(keys, words [][]byte, snapshot any) [][]byte {
	eachMember(words, func(e entry, words [][]byte) {
		if e.form.kind == store.None {
			keys = l.Policies.MemberKeys(keys, snapshot, words[1], words[2])
		} else {
			keys = append(keys, words[1])
		}
	})
	return keys
}

// allRights is the KeyRules.Rights of CL.ALL.
func (l *Family) allRights(keys, words [][]byte, snapshot any) [][]byte {
	eachMember(words, func(e entry, words [][]byte) {
		if e.form.kind == store.None {
			keys = l.Policies.MemberRight(keys, snapshot, words[1], words[2])
		} else {
			keys = append(keys, words[1])
		}
	})
	return keys
}

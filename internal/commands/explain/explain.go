// Package explain implements CL.EXPLAIN: what a call of a limiter would be answered now, and why.
//
// The row of CL.EXPLAIN runs the row of the explained call, with a decide.Explanation as its Outcome. So the code that
// would make the call parses it and finds its policies. Package decide then asks the limits without taking anything.
//
//	explain.go  the row, and the reply
//	why.go      the reply's lines for people
package explain

import (
	"cmp"

	"cellserver/internal/acl"
	"cellserver/internal/command"
	"cellserver/internal/decide"
	"cellserver/internal/quota"
)

// Family is the state of the command.
type Family struct {
	Find     func(words [][]byte) *command.Command // the row of a call; nil if there is none
	Snapshot func() any                            // of the policies: see command.KeyRules
	Waiting  func(database int, key []byte, most int) []command.WaitingCall
	IsFull   func() bool // reports whether calls that need memory are refused
}

// most bounds each list of a reply.
const most = 10

// Commands returns the rows of the family.
func (f *Family) Commands() []*command.Command {
	return []*command.Command{{
		Name: "cl.explain", Group: "limiter", Since: "1.0.0",
		Complexity: "O(N) in the number of limits, and the effort of finding them",
		Flags:      command.ReadOnly | command.NoMulti, Cost: command.Unbounded, Traits: command.NamesArguments,
		Summary:   "Shows what a call of a limiter would be answered now, and why, without taking anything.",
		KeyAccess: "RO ACCESS", Tips: command.Varying, Secrets: command.SecretsOfCall(1),
		Args: []command.Arg{command.Word("command"), command.Word("arg").Optional().Many().UpTo(maxWords)},
		Keys: command.KeyRules{Find: f.keys, Call: f.explained, Snapshot: func() any { return f.Snapshot() }},
		Reply: `A map: call, its command; allowed; retry_after_ms, until all of its limits would allow it, -1 if they do or never
will; why, lines for people; read, the Unix time in milliseconds at which the limits were read, by the clock of their
store; policies; limits. Of each policy a map: policy, subject, decided_by, shadow, override (its
number in the file, or 0), effect, plan (empty if there is none), exempt_ms and banned_ms, the rest of an exemption and of a ban, or 0. Of each limit a
map: limit, key, asked (0 if the limits do not matter, as for an exempt subject), limited, size, used, remaining, and
next_ms, half_ms and full_ms, until one more, half of what is used, and all of it is back. Users who may call CL.POLICY
GET also get pattern, reason, refusals and level of a policy, and holds (id, quantity, milliseconds until it lapses) and
waiting (client, command, milliseconds until it gives up) of a limit, at most 10 of each. A user needs the right to the
explained call too. The call does not wait, and one with SETTLE is not explained.`,
		Run: f.run,
	}}
}

// maxWords bounds the words of the explained call. It is enough for a CL.ALL with decide.MaxRequests limiters.
const maxWords = 8*decide.MaxRequests + 16

// explained is the KeyRules.Call of the row.
func (f *Family) explained(words [][]byte) *command.Command {
	if len(words) < 2 || f.Find == nil {
		return nil
	}
	if row := f.Find(words[1:]); row != nil && row.Traits&command.Decides != 0 {
		return row
	}
	return nil
}

// keys is the KeyRules.Find of the row.
func (f *Family) keys(at []int, words [][]byte) (all []int, ok bool) {
	row, first := f.explained(words), len(at)
	switch {
	case row == nil:
		return at, false
	case row.Keys.Find != nil:
		least, _ := row.Words()
		if len(words)-1 < least {
			return at, false
		}
		at, ok = row.Keys.Find(at, words[1:])
	case row.FirstKey < len(words)-1:
		at, ok = append(at, row.FirstKey), true
	}
	for i := range at[first:] {
		at[first+i]++
	}
	return at, ok
}

const errNoLimiter command.Refusal = "ERR CL.EXPLAIN explains calls of CL.THROTTLE, CL.FIXED, CL.SLIDING, " +
	"CL.SLIDINGLOG, CL.QUOTA, CL.ACQUIRE, CL.TAKE, CL.ALL and GCRA"

func (f *Family) run(c *command.Call) error {
	row := f.explained(c.Words)
	if row == nil {
		return errNoLimiter
	}
	words := c.Words[1:]
	if least, most := row.Words(); len(words) < least || most > 0 && len(words) > most {
		return command.ErrArity(row)
	}
	x := explanation{family: f, call: c, row: row, detailed: f.mayShowPolicies(c)}
	if x.detailed {
		x.MostHolds = most
	}
	inner := command.Call{Context: c.Context, View: c.View, Out: c.Out, Server: c.Server, Client: c.Client,
		Background: c.Background, Outcome: &x.Explanation}
	inner.Snapshot = c.Snapshot
	inner.Middleware = func(c *command.Call) error {
		c.Extras = 1 // the row makes a decide.Call
		return c.Row.Run(c)
	}
	if err := inner.Run(row, words, false); err != nil {
		return err
	}
	if x.Call == nil {
		return errNoLimiter // the row has made no decide.Call
	}
	x.write()
	return nil
}

// mayShowPolicies reports whether the user has the right to CL.POLICY GET.
func (f *Family) mayShowPolicies(c *command.Call) bool {
	u := c.Client.Account.Load().User.Load()
	words := [][]byte{[]byte("CL.POLICY"), []byte("GET"), []byte("policy")}
	row := f.Find(words)
	if u == nil || row == nil {
		return false
	}
	why, _, _ := row.Authorize(c.Server, u, words, nil)
	return why == acl.Allowed
}

// explanation is a call that is explained.
type explanation struct {
	decide.Explanation
	family   *Family
	call     *command.Call
	row      *command.Command
	detailed bool // the user may see patterns, reasons, holds and waiting calls
}

func (x *explanation) write() {
	c, k := x.call, x.Call
	retry := int64(quota.Never)
	if !x.allows() {
		retry = x.retryAfter()
	}
	c.Out.Map(7)
	c.Out.Field("call").BulkString(x.row.Upper())
	c.Out.Field("allowed").Bool(x.allows())
	c.Out.Field("retry_after_ms").Int(milliseconds(retry))
	c.Out.Field("why").BulkStrings(x.why())
	at := x.At
	if x.Fails != nil {
		at = c.View.Now()
	}
	c.Out.Field("read").Int(c.Unix(at) / 1e6)
	c.Out.Field("policies").Array(len(k.Parts))
	for i := range k.Parts {
		x.writePart(i)
	}
	c.Out.Field("limits").Array(len(x.Limits))
	for i := range x.Limits {
		x.writeLimit(i)
	}
}

// writePart writes what a policy adds to the call.
func (x *explanation) writePart(i int) {
	c, p, s := x.call, &x.Call.Parts[i], &x.Standings[i]
	fields := 9
	if x.detailed {
		fields = 13
	}
	exempt, banned := int64(0), int64(0)
	if s.Exempt(x.At) {
		exempt = s.Exemption.Until - x.At
	}
	if rest, is := s.Banned(x.At); is {
		banned = rest
	}
	c.Out.Map(fields)
	c.Out.Field("policy").BulkString(p.Policy.Name)
	c.Out.Field("subject").Bulk(p.Subject.Text)
	c.Out.Field("decided_by").BulkString(x.decider(i))
	c.Out.Field("shadow").Bool(p.Policy.Shadow)
	c.Out.Field("override").Int(int64(p.Treatment.Override + 1))
	c.Out.Field("effect").BulkString(p.Treatment.Effect.String())
	c.Out.Field("plan").BulkString(cmp.Or(p.Treatment.Plan, p.DefaultPlan()))
	c.Out.Field("exempt_ms").Int(milliseconds(exempt))
	c.Out.Field("banned_ms").Int(milliseconds(banned))
	if !x.detailed {
		return
	}
	pattern, reason := "", ""
	if p.Treatment.Override >= 0 {
		pattern = p.Policy.Overrides[p.Treatment.Override].String()
	}
	switch {
	case exempt > 0:
		reason = s.Exemption.Reason
	case banned > 0:
		reason = s.Ban.Reason
	}
	c.Out.Field("pattern").BulkString(pattern)
	c.Out.Field("reason").BulkString(reason)
	c.Out.Field("refusals").Int(s.Counted(x.At))
	c.Out.Field("level").Int(s.At(x.At).Level)
}

// writeLimit writes the state of a limit.
func (x *explanation) writeLimit(i int) {
	c, r, l := x.call, &x.Call.Requests[i], &x.Limits[i]
	fields := 10
	if x.detailed {
		fields = 12
	}
	c.Out.Map(fields)
	c.Out.Field("limit").BulkString(x.name(i))
	c.Out.Field("key").Bulk(r.Key)
	c.Out.Field("asked").Bool(l.Asked)
	c.Out.Field("limited").Bool(l.Decision.Limited && !x.isForced(i))
	c.Out.Field("size").Int(l.Present.Limit)
	c.Out.Field("used").Int(l.Used())
	c.Out.Field("remaining").Int(l.Present.Remaining)
	c.Out.Field("next_ms").Int(milliseconds(l.Next))
	c.Out.Field("half_ms").Int(milliseconds(l.Half))
	c.Out.Field("full_ms").Int(milliseconds(l.Present.ResetAfter))
	if !x.detailed {
		return
	}
	c.Out.Field("holds").Array(len(l.Holds))
	for _, h := range l.Holds {
		c.Out.Array(3)
		c.Out.BulkString(h.ID)
		c.Out.Int(h.Quantity)
		c.Out.Int(milliseconds(h.Ends - x.At))
	}
	waiting := x.waiting(i)
	c.Out.Field("waiting").Array(len(waiting))
	for _, w := range waiting {
		c.Out.Array(3)
		c.Out.Int(w.Client)
		c.Out.BulkString(w.Command)
		c.Out.Int(milliseconds(w.Left))
	}
}

// waiting returns the calls that wait for the limit of a request; none if the user may not see them.
func (x *explanation) waiting(i int) []command.WaitingCall {
	if !x.detailed || x.family.Waiting == nil {
		return nil
	}
	return x.family.Waiting(x.call.View.Selected(), x.Call.Requests[i].Key, most)
}

// milliseconds rounds nanoseconds up; Never stays.
func milliseconds(ns int64) int64 { return command.WholeUnits(ns, true) }

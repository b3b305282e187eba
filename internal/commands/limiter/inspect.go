package limiter

import (
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

func (l *Family) inspect() *command.Command {
	return &command.Command{
		Name: "cl.inspect", Group: "limiter", Since: "1.0.0",
		Complexity: "O(1); O(N) in the number of holders of leases",
		Flags:      command.ReadOnly | command.Fast, Cost: command.Constant, Traits: command.ValueSized,
		Summary: "Shows what a key holds.", KeyAccess: "RO ACCESS",
		Args: []command.Arg{command.Key("key")},
		Reply: `A map: kind; state, the kind's own fields by name (of cl.throttle: tat, the theoretical arrival time in Unix
nanoseconds; ` + plainFields() + `of cl.slidinglog: entries, used, oldest,
newest; of cl.quota: unit, used, end; of cl.lease: holders, held; of cl.standing, which CL.BAN and CL.EXEMPT write:
exempt_until, exempt_reason, banned_until and banned_reason, plan, plan_until and plan_reason, and granted, granted_until and
granted_reason with _ and the label of each limit, of what there is, level, refusals; of a limiter with open
holds also holds, how many, and held, what they have charged; instants are Unix nanoseconds); expires_ms, the milliseconds until the limit has fully recovered, or -1 for a value that does not expire.
If the limit has recovered and only open holds are left, kind is none, and expires_ms is 0. Nil if there is no such key.`,
		Run: func(c *command.Call) error {
			e, fields, err := c.View.Inspect(c.Context, c.Key())
			if err != nil {
				return err
			}
			if e.Kind == limit.None && len(fields) == 0 {
				c.Out.Null()
				return nil
			}
			if e.Kind == limit.Lease {
				c.Work += int(fields[0].Value) * leaseWork // all leases were read
			}
			c.Out.Map(3)
			c.Out.Field("kind").BulkString(e.Kind.String())
			c.Out.Field("state").Map(len(fields))
			for _, f := range fields {
				c.Out.BulkString(f.Name)
				if f.Text != "" {
					c.Out.BulkString(f.Text)
					continue
				}
				if f.Instant {
					f.Value = c.Unix(f.Value)
				}
				c.Out.Int(f.Value)
			}
			c.Out.Field("expires_ms").Int(expiresMS(c, e))
			return nil
		},
	}
}

// plainFields describes the states of the plain kinds.
func plainFields() (text string) {
	for _, kind := range limit.OfPolicies {
		if p := kind.Plain(); p != nil {
			text += "of " + kind.String() + ": start, " + strings.Join(p.Counts, ", ") + "; "
		}
	}
	return text
}

// leaseWork is the work (see command.Call) of reading a lease.
const leaseWork = 16

// expiresMS returns the milliseconds until a key expires; -1 if it does not, as PTTL does; 0 for open holds without a
// limiter.
func expiresMS(c *command.Call, e store.Entry) int64 {
	switch {
	case e.Kind == limit.None:
		return 0
	case e.Expires == store.Never:
		return -1
	}
	return c.ExpiresIn(e)
}

package limiter

import (
	"time"

	"cellserver/internal/command"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var (
	ttlArg    = command.Period("ttl").Max(maxPeriod)
	holderArg = command.Word("holder")
)

// leaseChangeWork is the work (see command.Call) of changing the leases of a key: it may move 4
// bytes for each of 10,000 holders, within the processor's cache.
const leaseChangeWork = 2 * command.CallWork

func (l *Family) acquire() *command.Command {
	return &command.Command{
		Name: limit.Lease.Command(), Group: "limiter", Since: "1.0.0",
		Complexity: "O(N) in the number of holders: 4 bytes of each are moved",
		Flags:      command.Write | command.Fast, Cost: command.Constant,
		Traits:    command.Decides | command.NamesArguments,
		Summary:   "Acquires permits for a time, unless more than the limit would be held at once (leases).",
		KeyAccess: "RW ACCESS UPDATE",
		Args: []command.Arg{command.Key("key"), limitArg, ttlArg, holderArg, command.Int("quantity").Min(0).Or(1),
			msArg, command.WaitArg},
		Reply: `Five integers: limited (0 granted, 1 limited); limit; remaining, the permits that are free after this call;
retry_after, the seconds until enough other leases have ended (-1 if it was granted, or never will be); reset_after, the
seconds until the last lease ends.`,
		Run: func(c *command.Call) error {
			key := c.Key()
			limit, ttl, holder, quantity := c.Int(), c.Period(), c.Word(), c.Int()
			r, err := lease.NewRequest(limit, ttl, holder, quantity)
			if err != nil {
				return err
			}
			ms := c.Flag()
			c.Work += leaseChangeWork
			if c.Extras > 0 {
				return l.decideWithOptions(c, l.acquireRequest(key, r, ms))
			}
			d, err := c.View.Acquire(c.Context, key, r, l.maxHolders)
			if err != nil {
				return l.OnError(c, l.acquireRequest(key, r, ms).call(c), err, nil)
			}
			l.reply(c, key, &d, quota.Take, ms)
			return nil
		},
	}
}

func (l *Family) acquireRequest(key []byte, r lease.Request, ms bool) request {
	return request{store.LimitRequest{Key: key, Rule: limit.Rule{Kind: limit.Lease},
		Lease: &store.LeaseRequest{Request: r, MaxHolders: l.maxHolders}}, quota.Take, ms}
}

func (l *Family) renew() *command.Command {
	return &command.Command{
		Name: "cl.renew", Group: "limiter", Since: "1.0.0",
		Complexity: "O(N) in the number of holders: 4 bytes of each are moved",
		Flags:      command.Write | command.Fast, Cost: command.Constant, Traits: command.NamesArguments,
		Summary:   "Moves the end of a holder's lease to ttl seconds from now, earlier or later.",
		KeyAccess: "RW ACCESS UPDATE", Args: []command.Arg{command.Key("key"), ttlArg, holderArg},
		Reply: "1; 0 if the holder has no lease, or it has ended.",
		Run: func(c *command.Call) error {
			key, ttl, holder := c.Key(), c.Period(), c.Word()
			if err := lease.CheckHolder(holder); err != nil {
				return err
			}
			c.Work += leaseChangeWork
			renewed, err := c.View.Renew(c.Context, key, duration(ttl), holder)
			if err != nil {
				return err
			}
			c.WriteBool(renewed)
			return nil
		},
	}
}

func (l *Family) release() *command.Command {
	return &command.Command{
		Name: "cl.release", Group: "limiter", Since: "1.0.0",
		Complexity: "O(N) in the number of holders: 4 bytes of each are moved",
		Flags:      command.Write | command.Fast, Cost: command.Constant, Traits: command.NamesArguments,
		Summary: "Releases a holder's permits.", KeyAccess: "RW ACCESS DELETE",
		Args:  []command.Arg{command.Key("key"), holderArg},
		Reply: "The number of permits; 0 if the holder has none, or its lease has ended.",
		Run: func(c *command.Call) error {
			key, holder := c.Key(), c.Word()
			if err := lease.CheckHolder(holder); err != nil {
				return err
			}
			c.Work += leaseChangeWork
			permits, err := c.View.Release(c.Context, key, holder)
			if err != nil {
				return err
			}
			c.Out.Int(permits)
			return nil
		},
	}
}

func (l *Family) holders() *command.Command {
	return &command.Command{
		Name: "cl.holders", Group: "limiter", Since: "1.0.0",
		Complexity: "O(N) in the number of holders", Flags: command.ReadOnly,
		Cost: command.Unbounded, Traits: command.ValueSized | command.NamesArguments,
		Summary: "Lists the holders of permits.", KeyAccess: "RO ACCESS",
		Args:  []command.Arg{command.Key("key")},
		Reply: "For each holder its name, its permits, and the milliseconds until its lease ends; the lease that ends first comes first.",
		Run: func(c *command.Call) error {
			holders, err := c.View.Holders(c.Context, c.Key())
			if err != nil {
				return err
			}
			c.Out.Array(len(holders))
			for _, l := range holders {
				c.Out.Array(3)
				c.Out.BulkString(l.Holder)
				c.Out.Int(l.Quantity)
				c.Out.Int(command.RoundUp(l.End-c.View.Now(), 1e6))
				c.Out.Break()
			}
			return nil
		},
	}
}

// duration returns the duration of a ttl, which is within bounds.
func duration(ttl quota.Period) time.Duration {
	ns, _ := ttl.Nanoseconds(maxPeriod)
	return time.Duration(ns)
}

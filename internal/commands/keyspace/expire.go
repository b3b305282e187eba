package keyspace

import (
	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// expiring completes the row of a command that sets the expiry of a value: a time in a unit of
// milliseconds, from now or since 1970. word is the name of its argument. The expiry of a limiter
// key follows from its state, so the command refuses limiter keys.
func expiring(row command.Command, word string, unit int64, relative bool) command.Command {
	row.Group, row.Complexity, row.Flags, row.Cost, row.KeyAccess = "generic", "O(1)", command.Write|command.Fast,
		command.Constant, "RW UPDATE"
	row.Events.Change = "expire"
	row.Args = []command.Arg{command.Key("key"), command.Word(word),
		command.Word("[NX | XX | GT | LT]").Optional().Many()}
	row.Reply = "1 if the expiry was set, 0 if there is no such key or a condition prevented it; an error for the key of a limiter."
	row.Run = func(c *command.Call) error {
		key, when := c.Key(), c.Word()
		conditions, err := expiryConditions(c.Many())
		if err != nil {
			return err
		}
		expires, err := c.Expiry(when, unit, relative, false)
		if err != nil {
			return err
		}
		return c.ChangeIf(key, func(e store.Entry) (store.Change, error) {
			switch {
			case e.Kind == limit.None:
				return store.Change{}, nil
			case !e.Kind.IsValue():
				return store.Change{}, command.ErrOwnExpiry
			case !conditions.allows(e.Expires, expires):
				return store.Change{}, nil
			}
			return store.Change{Operation: store.SetExpiry, Expires: expires}, nil
		})
	}
	return row
}

var (
	expire = expiring(command.Command{
		Name: "expire", Since: "1.0.0", Summary: "Sets a key's expiry, in seconds from now.",
	},
		"seconds", 1000, true)
	pExpire = expiring(command.Command{
		Name: "pexpire", Since: "2.6.0", Summary: "Sets a key's expiry, in milliseconds from now.",
	},
		"milliseconds", 1, true)
	expireAt = expiring(command.Command{
		Name: "expireat", Since: "1.2.0", Summary: "Sets a key's expiry, in Unix seconds.",
	},
		"unix-time-seconds", 1000, false)
	pExpireAt = expiring(command.Command{
		Name: "pexpireat", Since: "2.6.0", Summary: "Sets a key's expiry, in Unix milliseconds.",
	},
		"unix-time-milliseconds", 1, false)
)

// conditions are the options of EXPIRE.
type conditions struct{ nx, xx, gt, lt bool }

func expiryConditions(words [][]byte) (when conditions, err error) {
	for _, word := range words {
		switch {
		case command.FoldEqual(word, "NX"):
			when.nx = true
		case command.FoldEqual(word, "XX"):
			when.xx = true
		case command.FoldEqual(word, "GT"):
			when.gt = true
		case command.FoldEqual(word, "LT"):
			when.lt = true
		default:
			return when, command.Refusal("ERR Unsupported option " + string(word))
		}
	}
	switch {
	case when.nx && (when.xx || when.gt || when.lt):
		return when, command.Refusal("ERR NX and XX, GT or LT options at the same time are not compatible")
	case when.gt && when.lt:
		return when, command.Refusal("ERR GT and LT options at the same time are not compatible")
	}
	return when, nil
}

// allows reports whether an expiry may replace another. Never is later than all others.
func (when conditions) allows(before, next int64) bool {
	switch {
	case when.nx && before != store.Never,
		when.xx && before == store.Never,
		when.gt && next <= before,
		when.lt && next >= before:
		return false
	}
	return true
}

var persist = command.Command{
	Name: "persist", Group: "generic", Since: "2.2.0", Complexity: "O(1)",
	Flags: command.Write | command.Fast, Cost: command.Constant, Summary: "Removes a key's expiry.",
	KeyAccess: "RW UPDATE", Args: []command.Arg{command.Key("key")},
	Reply: "1 if it had one, else 0; an error for the key of a limiter.",
	Run: func(c *command.Call) error {
		return c.ChangeIf(c.Key(), func(e store.Entry) (store.Change, error) {
			switch {
			case e.Kind == limit.None || e.Expires == store.Never:
				return store.Change{}, nil
			case !e.Kind.IsValue():
				return store.Change{}, command.ErrOwnExpiry
			}
			return store.Change{Operation: store.SetExpiry, Expires: store.Never}, nil
		})
	},
}

// The replies of TTL and similar commands for a key that does not exist, and for one that does not
// expire.
const (
	ttlNoKey    = -2
	ttlNoExpiry = -1
)

// readingExpiry completes the row of a command that returns the expiry of a key.
func readingExpiry(row command.Command, read func(c *command.Call, e store.Entry) int64) command.Command {
	row.Group, row.Complexity, row.Flags, row.Cost = "generic", "O(1)", command.ReadOnly|command.Fast, command.Constant
	row.KeyAccess, row.Args = "RO ACCESS", []command.Arg{command.Key("key")}
	row.Run = func(c *command.Call) error {
		e, err := c.View.Lookup(c.Context, c.Key())
		if err != nil {
			return err
		}
		c.CountLookup(e.Kind != limit.None)
		if e.Kind == limit.None {
			c.Out.Int(ttlNoKey)
			return nil
		}
		if e.Expires == store.Never {
			c.Out.Int(ttlNoExpiry)
			return nil
		}
		c.Out.Int(read(c, e))
		return nil
	}
	return row
}

var (
	ttl = readingExpiry(command.Command{
		Name: "ttl", Since: "1.0.0", Tips: command.Varying,
		Summary: "Returns a key's time to live, in seconds.",
		Reply:   "The seconds, to the nearest; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *command.Call, e store.Entry) int64 { return command.InSeconds(c.ExpiresIn(e)) })

	pttl = readingExpiry(command.Command{
		Name: "pttl", Since: "2.6.0", Tips: command.Varying,
		Summary: "Returns a key's time to live, in milliseconds.",
		Reply:   "The milliseconds, rounded up; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *command.Call, e store.Entry) int64 { return c.ExpiresIn(e) })

	expireTime = readingExpiry(command.Command{
		Name: "expiretime", Since: "7.0.0",
		Summary: "Returns the time at which a key expires, in Unix seconds.",
		Reply:   "The Unix time; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *command.Call, e store.Entry) int64 {
		return command.InSeconds(command.RoundUp(c.Unix(e.Expires), 1e6))
	})

	pExpireTime = readingExpiry(command.Command{
		Name: "pexpiretime", Since: "7.0.0",
		Summary: "Returns the time at which a key expires, in Unix milliseconds.",
		Reply:   "The Unix time; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *command.Call, e store.Entry) int64 { return command.RoundUp(c.Unix(e.Expires), 1e6) })
)

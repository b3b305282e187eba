package keyspace

import (
	"cellserver/internal/command"
	"cellserver/internal/store"
)

// When values expire. A limiter key's expiry follows from its state, and nobody moves it.

// expiring makes EXPIRE and its like.
func expiring(row command.Command, word string, unit int64, relative bool) command.Command {
	row.Group, row.Complexity, row.Flags, row.Cost, row.KeyAccess = "generic", "O(1)", command.Write|command.Fast,
		command.Constant, "RW UPDATE"
	row.Events.Change = "expire"
	row.Args = []command.Arg{command.Key("key"), command.Word(word), command.Word("[NX | XX | GT | LT]").Optional().Many()}
	row.Reply = "1 if the expiry was set, 0 if there is no such key or a condition prevented it."
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
			case e.Kind == store.None:
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

// conditions are what EXPIRE depends on.
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

// allows says whether an expiry may take the place of another. Never is later than any.
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
	Reply: "1 if it had one, else 0.",
	Run: func(c *command.Call) error {
		return c.ChangeIf(c.Key(), func(e store.Entry) (store.Change, error) {
			switch {
			case e.Kind == store.None || e.Expires == store.Never:
				return store.Change{}, nil
			case !e.Kind.IsValue():
				return store.Change{}, command.ErrOwnExpiry
			}
			return store.Change{Operation: store.SetExpiry, Expires: store.Never}, nil
		})
	},
}

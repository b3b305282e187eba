package keyspace

import (
	"context"

	"cellserver/internal/command"
	"cellserver/internal/store"
)

// Redis's commands on keys, whatever they hold.

// What TTL and its like say of a key that is not there, and of one that does not expire.
const (
	noKey   = -2
	forEver = -1
)

// timing makes the rows that read a key's expiry.
func timing(row command.Command, read func(c *command.Call, e store.Entry) int64) command.Command {
	row.Group, row.Complexity, row.Flags, row.Cost = "generic", "O(1)", command.ReadOnly|command.Fast, command.Constant
	row.KeyAccess, row.Args = "RO ACCESS", []command.Arg{command.Key("key")}
	row.Run = func(c *command.Call) error {
		e, err := c.View.Lookup(c.Context, c.Key())
		if err != nil {
			return err
		}
		c.Found(e.Kind != store.None)
		if e.Kind == store.None {
			c.Out.Int(noKey)
			return nil
		}
		if e.Expires == store.Never {
			c.Out.Int(forEver)
			return nil
		}
		c.Out.Int(read(c, e))
		return nil
	}
	return row
}

var (
	ttl = timing(command.Command{
		Name: "ttl", Since: "1.0.0", Tips: command.Varying,
		Summary: "Returns a key's time to live, in seconds.",
		Reply:   "The seconds, to the nearest; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *command.Call, e store.Entry) int64 { return command.InSeconds(c.ExpiresIn(e)) })

	pttl = timing(command.Command{
		Name: "pttl", Since: "2.6.0", Tips: command.Varying,
		Summary: "Returns a key's time to live, in milliseconds.",
		Reply:   "The milliseconds, rounded up; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *command.Call, e store.Entry) int64 { return c.ExpiresIn(e) })

	expireTime = timing(command.Command{
		Name: "expiretime", Since: "7.0.0",
		Summary: "Returns the time at which a key expires, in Unix seconds.",
		Reply:   "The Unix time; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *command.Call, e store.Entry) int64 {
		return command.InSeconds(command.RoundUp(c.Unix(e.Expires), 1e6))
	})

	pExpireTime = timing(command.Command{
		Name: "pexpiretime", Since: "7.0.0",
		Summary: "Returns the time at which a key expires, in Unix milliseconds.",
		Reply:   "The Unix time; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *command.Call, e store.Entry) int64 { return command.RoundUp(c.Unix(e.Expires), 1e6) })
)

var exists = command.Command{
	Name: "exists", Group: "generic", Since: "1.0.0", Complexity: "O(N) in the number of keys",
	Flags: command.ReadOnly | command.Fast, Cost: command.Constant,
	Summary: "Counts the keys that exist.", KeyAccess: "RO", Tips: command.SeveralShards,
	Args:  []command.Arg{command.Key("key").Many()},
	Reply: "How many of them exist; a key named twice counts twice.",
	Run: func(c *command.Call) error {
		keys := c.Many()
		n, err := byKeys(c, keys, c.View.Count)
		return answerCount(c, len(keys), n, err)
	},
}

var touch = command.Command{
	Name: "touch", Group: "generic", Since: "3.2.1", Complexity: "O(N) in the number of keys",
	Flags: command.ReadOnly | command.Fast, Cost: command.Constant,
	Summary:   "Counts the keys that exist, and sets their time of last use (OBJECT IDLETIME).",
	KeyAccess: "RO", Tips: command.SeveralShards, Args: []command.Arg{command.Key("key").Many()},
	Reply: "How many of them exist; a key named twice counts twice.",
	Run: func(c *command.Call) error {
		keys := c.Many()
		n, err := byKeys(c, keys, c.View.Touch)
		return answerCount(c, len(keys), n, err)
	},
}

// byKeys has something done to keys, so many at a time, and sums up to how many it was. Between
// them others have their turn; and if the client has gone, there is no need to go on.
func byKeys(c *command.Call, keys [][]byte,
	do func(ctx context.Context, keys [][]byte) (int, error)) (sum int, err error) {
	for err == nil {
		var n int
		n, err = do(c.Context, keys[:min(len(keys), command.KeysAStep)])
		sum += n
		if keys = keys[min(len(keys), command.KeysAStep):]; len(keys) == 0 {
			break
		}
		if c.GiveWay(); c.Context.Err() != nil && !c.InTransaction { // which is made whole, or not at all
			err = command.ErrStopped
		}
	}
	return sum, err
}

// answerCount answers how many of the keys were there.
func answerCount(c *command.Call, keys, there int, err error) error {
	c.Hits, c.Misses = c.Hits+int64(there), c.Misses+int64(keys-there)
	c.Out.Int(int64(there))
	return err
}

var del = command.Command{
	Name: "del", Group: "generic", Since: "1.0.0", Complexity: "O(N) in the number of keys",
	Flags: command.Write, Cost: command.Constant,
	Summary: "Removes keys; their limiters start afresh.", KeyAccess: "RM DELETE",
	Tips: command.SeveralShards, Args: []command.Arg{command.Key("key").Many()},
	Reply: "The number of keys that were removed.", Run: remove,
}

var unlink = command.Command{
	Name: "unlink", Group: "generic", Since: "4.0.0", Complexity: "O(N) in the number of keys",
	Flags: command.Write | command.Fast, Cost: command.Constant,
	Summary: "Removes keys, as DEL does.", KeyAccess: "RM DELETE", Tips: command.SeveralShards,
	Args: []command.Arg{command.Key("key").Many()}, Reply: "The number of keys that were removed.",
	Run: remove,
}

func remove(c *command.Call) error {
	n, err := byKeys(c, c.Many(), c.View.Delete)
	c.Out.Int(int64(n))
	return err
}

var keyType = command.Command{
	Name: "type", Group: "generic", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.ReadOnly | command.Fast, Cost: command.Constant,
	Summary: "Returns the type of a key.", KeyAccess: "RO", Args: []command.Arg{command.Key("key")},
	Reply: "string for a value and for a CL.THROTTLE key; cl.fixed, cl.sliding, cl.slidinglog, cl.lease; none if there is no such key.",
	Run: func(c *command.Call) error {
		e, err := c.View.Lookup(c.Context, c.Key())
		if err != nil {
			return err
		}
		c.Found(e.Kind != store.None)
		c.Out.Status(typeName(e.Kind))
		return nil
	},
}

// typeName is what TYPE calls a kind. redis-cell's keys are strings, so ours are to whoever asks in
// Redis's words.
func typeName(k store.Kind) string {
	switch k {
	case store.None:
		return "none"
	case store.Throttle:
		return "string"
	case store.Integer, store.Bytes:
		return "string"
	default:
		return k.String()
	}
}

package commands

import (
	"context"

	"cellserver/internal/store"
)

// Redis's commands on keys, whatever they hold.

// What TTL and its like say of a key that is not there, and of one that does not expire.
const (
	noKey   = -2
	forEver = -1
)

// timing makes the rows that read a key's expiry.
func timing(row Command, read func(c *Call, e store.Entry) int64) Command {
	row.Group, row.Complexity, row.Flags, row.Cost = "generic", "O(1)", ReadOnly|Fast, Constant
	row.KeyAccess, row.Args = "RO ACCESS", []Arg{Key("key")}
	row.Run = func(c *Call) error {
		e, err := c.View.Lookup(c.Context, c.Key())
		if err != nil {
			return err
		}
		c.found(e.Kind != store.None)
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
	ttl = timing(Command{
		Name: "ttl", Since: "1.0.0", Tips: varying, Summary: "Returns the time that a key has left, in seconds.",
		Reply: "The seconds, to the nearest; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *Call, e store.Entry) int64 { return inSeconds(c.expiresIn(e)) })

	pttl = timing(Command{
		Name: "pttl", Since: "2.6.0", Tips: varying, Summary: "Returns the time that a key has left, in milliseconds.",
		Reply: "The milliseconds, rounded up; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *Call, e store.Entry) int64 { return c.expiresIn(e) })

	expireTime = timing(Command{
		Name: "expiretime", Since: "7.0.0", Summary: "Returns the time at which a key expires, in Unix seconds.",
		Reply: "The Unix time; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *Call, e store.Entry) int64 { return inSeconds(roundUp(c.unix(e.Expires), 1e6)) })

	pExpireTime = timing(Command{
		Name: "pexpiretime", Since: "7.0.0", Summary: "Returns the time at which a key expires, in Unix milliseconds.",
		Reply: "The Unix time; -1 if the key does not expire, -2 if there is no such key.",
	}, func(c *Call, e store.Entry) int64 { return roundUp(c.unix(e.Expires), 1e6) })
)

var exists = Command{
	Name: "exists", Group: "generic", Since: "1.0.0", Complexity: "O(N) in the number of keys", Flags: ReadOnly | Fast, Cost: Constant,
	Summary: "Counts the keys that exist.", KeyAccess: "RO", Tips: severalShards,
	Args:  []Arg{Key("key").Many()},
	Reply: "How many of them exist; a key named twice counts twice.",
	Run: func(c *Call) error {
		keys := c.Many()
		n, err := c.byKeys(keys, c.View.Count)
		return c.answerCount(len(keys), n, err)
	},
}

var touch = Command{
	Name: "touch", Group: "generic", Since: "3.2.1", Complexity: "O(N) in the number of keys", Flags: ReadOnly | Fast, Cost: Constant,
	Summary: "Counts the keys that exist, and uses them, as OBJECT IDLETIME shows.", KeyAccess: "RO", Tips: severalShards,
	Args:  []Arg{Key("key").Many()},
	Reply: "How many of them exist; a key named twice counts twice.",
	Run: func(c *Call) error {
		keys := c.Many()
		n, err := c.byKeys(keys, c.View.Touch)
		return c.answerCount(len(keys), n, err)
	},
}

// byKeys has something done to keys, so many at a time, and sums up to how many it was. Between them others have their turn; and if the
// client has gone, there is no need to go on.
func (c *Call) byKeys(keys [][]byte, do func(ctx context.Context, keys [][]byte) (int, error)) (sum int, err error) {
	for err == nil {
		var n int
		n, err = do(c.Context, keys[:min(len(keys), keysAStep)])
		sum += n
		if keys = keys[min(len(keys), keysAStep):]; len(keys) == 0 {
			break
		}
		if c.giveWay(); c.Context.Err() != nil && !c.inTransaction { // which is made whole, or not at all
			err = errStopped
		}
	}
	return sum, err
}

// answerCount answers how many of the keys were there.
func (c *Call) answerCount(keys, there int, err error) error {
	c.hits, c.misses = c.hits+int64(there), c.misses+int64(keys-there)
	c.Out.Int(int64(there))
	return err
}

var del = Command{
	Name: "del", Group: "generic", Since: "1.0.0", Complexity: "O(N) in the number of keys", Flags: Write, Cost: Constant,
	Summary: "Removes keys: a limiter starts afresh.", KeyAccess: "RM DELETE", Tips: severalShards,
	Args:  []Arg{Key("key").Many()},
	Reply: "How many keys were there.",
	Run:   remove,
}

var unlink = Command{
	Name: "unlink", Group: "generic", Since: "4.0.0", Complexity: "O(N) in the number of keys", Flags: Write | Fast, Cost: Constant,
	Summary: "Removes keys, as DEL does.", KeyAccess: "RM DELETE", Tips: severalShards,
	Args:  []Arg{Key("key").Many()},
	Reply: "How many keys were there.",
	Run:   remove,
}

func remove(c *Call) error {
	n, err := c.byKeys(c.Many(), c.View.Delete)
	c.Out.Int(int64(n))
	return err
}

var keyType = Command{
	Name: "type", Group: "generic", Since: "1.0.0", Complexity: "O(1)", Flags: ReadOnly | Fast, Cost: Constant,
	Summary: "Returns the type of what a key holds.", KeyAccess: "RO",
	Args:  []Arg{Key("key")},
	Reply: "string for a value and for a CL.THROTTLE key; cl.fixed, cl.sliding, cl.slidinglog, cl.lease; none if there is no such key.",
	Run: func(c *Call) error {
		e, err := c.View.Lookup(c.Context, c.Key())
		if err != nil {
			return err
		}
		c.found(e.Kind != store.None)
		c.Out.Status(typeName(e.Kind))
		return nil
	},
}

// typeName is what TYPE calls a kind. redis-cell's keys are strings, so ours are to whoever asks in Redis's words.
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

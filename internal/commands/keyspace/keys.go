package keyspace

import (
	"context"

	"cellserver/internal/command"
	"cellserver/internal/store"
)

// Redis's commands on keys, whatever they hold.

// What TTL and its like say of a key that is not there, and of one that does not expire.
const (
	ttlNoKey    = -2
	ttlNoExpiry = -1
)

// readingExpiry makes the rows that read a key's expiry.
func readingExpiry(row command.Command, read func(c *command.Call, e store.Entry) int64) command.Command {
	row.Group, row.Complexity, row.Flags, row.Cost = "generic", "O(1)", command.ReadOnly|command.Fast, command.Constant
	row.KeyAccess, row.Args = "RO ACCESS", []command.Arg{command.Key("key")}
	row.Run = func(c *command.Call) error {
		e, err := c.View.Lookup(c.Context, c.Key())
		if err != nil {
			return err
		}
		c.CountLookup(e.Kind != store.None)
		if e.Kind == store.None {
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

// keyCount is the work of a store on several keys, which returns how many of them it found.
type keyCount func(view store.View, ctx context.Context, keys [][]byte) (int, error)

// countingKeys completes the row of a command that counts which of its keys exist.
func countingKeys(row command.Command, count keyCount) command.Command {
	row.Group, row.Complexity = "generic", "O(N) in the number of keys"
	row.Flags, row.Cost = command.ReadOnly|command.Fast, command.Constant
	row.KeyAccess, row.Tips, row.Args = "RO", command.SeveralShards, []command.Arg{command.Key("key").Many()}
	row.Reply = "How many of them exist; a key named twice counts twice."
	row.Run = func(c *command.Call) error {
		keys := c.Many()
		n, err := byKeys(c, keys, count)
		c.Hits, c.Misses = c.Hits+int64(n), c.Misses+int64(len(keys)-n)
		c.Out.Int(int64(n))
		return err
	}
	return row
}

var (
	exists = countingKeys(command.Command{
		Name: "exists", Since: "1.0.0", Summary: "Counts the keys that exist.",
	}, store.View.Count)

	touch = countingKeys(command.Command{
		Name: "touch", Since: "3.2.1",
		Summary: "Counts the keys that exist, and sets their time of last use (OBJECT IDLETIME).",
	}, store.View.Touch)
)

// byKeys does a store's work on keys, at most command.KeysAStep at a time, and returns the sum of
// its counts. Between two such steps other clients have their turn; and if the client has gone, the
// rest is not done.
func byKeys(c *command.Call, keys [][]byte, do keyCount) (sum int, err error) {
	for err == nil {
		var n int
		n, err = do(c.View, c.Context, keys[:min(len(keys), command.KeysPerStep)])
		sum += n
		if keys = keys[min(len(keys), command.KeysPerStep):]; len(keys) == 0 {
			break
		}
		if c.Yield(); c.Context.Err() != nil && !c.InTransaction { // a transaction is made as a whole
			err = command.ErrStopped
		}
	}
	return sum, err
}

// removing completes the row of a command that removes keys.
func removing(row command.Command) command.Command {
	row.Group, row.Complexity = "generic", "O(N) in the number of keys"
	row.Flags, row.Cost = row.Flags|command.Write, command.Constant
	row.KeyAccess, row.Tips, row.Args = "RM DELETE", command.SeveralShards, []command.Arg{command.Key("key").Many()}
	row.Reply = "The number of keys that were removed."
	row.Run = func(c *command.Call) error {
		n, err := byKeys(c, c.Many(), store.View.Delete)
		c.Out.Int(int64(n))
		return err
	}
	return row
}

var (
	del    = removing(command.Command{Name: "del", Since: "1.0.0", Summary: "Removes keys; their limiters start afresh."})
	unlink = removing(command.Command{
		Name: "unlink", Since: "4.0.0", Flags: command.Fast, Summary: "Removes keys, as DEL does.",
	})
)

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
		c.CountLookup(e.Kind != store.None)
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

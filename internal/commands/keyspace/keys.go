package keyspace

import (
	"context"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// keyCount is a method of the store that handles several keys, and returns how many of them exist.
type keyCount func(keys store.Keys, ctx context.Context, names [][]byte) (int, error)

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
	}, store.Keys.Count)

	touch = countingKeys(command.Command{
		Name: "touch", Since: "3.2.1",
		Summary: "Counts the keys that exist, and sets their time of last use (OBJECT IDLETIME).",
	}, store.Keys.Touch)
)

// byKeys calls do for keys, at most command.KeysPerStep at a time, and returns the sum of its
// counts. Other calls may run between two steps. If the client disconnects, byKeys stops.
func byKeys(c *command.Call, keys [][]byte, do keyCount) (sum int, err error) {
	for err == nil {
		var n int
		n, err = do(c.View, c.Context, keys[:min(len(keys), command.KeysPerStep)])
		sum += n
		if keys = keys[min(len(keys), command.KeysPerStep):]; len(keys) == 0 {
			break
		}
		if c.Yield(); c.Context.Err() != nil && !c.InTransaction { // a transaction must be completed
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
		n, err := byKeys(c, c.Many(), store.Keys.Delete)
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
	Reply: "string for a value and for a CL.THROTTLE key; " + limit.List(limit.OfPolicies[1:], limit.Kind.String, "") +
		", cl.lease, cl.standing; none if there is no such key.",
	Run: func(c *command.Call) error {
		e, err := c.View.Lookup(c.Context, c.Key())
		if err != nil {
			return err
		}
		c.CountLookup(e.Kind != limit.None)
		c.Out.Status(typeName(e.Kind))
		return nil
	},
}

// typeName returns the type of a kind of key. That of CL.THROTTLE is a string, as in redis-cell.
func typeName(k limit.Kind) string {
	switch k {
	case limit.None:
		return "none"
	case limit.Throttle, limit.Integer, limit.Bytes:
		return "string"
	default:
		return k.String()
	}
}

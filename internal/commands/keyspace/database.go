package keyspace

import (
	"context"

	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// dbSizeWork is the work (see command.Call) of locking every shard, one after the other.
const dbSizeWork = 16 * command.CallWork

var dbSize = command.Command{
	Name: "dbsize", Group: "server", Category: "keyspace", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.ReadOnly | command.Fast, Cost: command.Constant, Traits: command.AnyKey,
	Effort:  &command.Effort{Fixed: func([][]byte) int { return dbSizeWork }},
	Summary: "Counts the keys of the database.",
	Tips:    []string{command.AllShards, "response_policy:agg_sum"},
	Reply:   "The number of keys; may include keys that have just expired.",
	Run: func(c *command.Call) error {
		c.Work += dbSizeWork
		n, err := c.View.Size(c.Context)
		c.Out.Int(int64(n))
		return err
	},
}

// flushMode is accepted for compatibility, and has no effect: the time of flushing does not depend
// on the number of keys.
var flushMode = command.OneOf("mode", "ASYNC", "SYNC")

func (k *Family) flushDB() *command.Command {
	return k.flushing(command.Command{Name: "flushdb", Summary: "Removes all keys of the database."},
		store.Keyspace.Flush)
}

func (k *Family) flushAll() *command.Command {
	return k.flushing(command.Command{Name: "flushall", Summary: "Removes all keys of all databases."},
		store.Keyspace.FlushAll)
}

// flushing completes the row of a command that removes all keys.
func (k *Family) flushing(row command.Command, flush func(store.Keyspace, context.Context) error) *command.Command {
	row.Group, row.Category, row.Since, row.Complexity = "server", "keyspace", "1.0.0", "O(1)"
	row.Flags, row.Traits = command.Write|command.Dangerous, command.AnyKey
	row.Tips = []string{command.AllShards, "response_policy:all_succeeded"}
	row.Args, row.Reply = []command.Arg{flushMode}, "OK."
	row.Run = func(c *command.Call) error {
		c.Out.Status("OK")
		defer k.OnFlush(c.View.Caller())
		return flush(c.View, c.Context)
	}
	return &row
}

func (k *Family) swapDB() *command.Command {
	return &command.Command{
		Name: "swapdb", Group: "server", Category: "keyspace", Since: "4.0.0", Complexity: "O(1)",
		Flags: command.Write | command.Fast | command.Dangerous, Cost: command.Constant,
		Traits:  command.AnyKey | command.SwapsDatabases | command.Needs(store.Swaps),
		Effort:  &command.Effort{Fixed: func([][]byte) int { return swapWork }},
		Summary: "Swaps two databases.",
		Args:    []command.Arg{command.Word("index1"), command.Word("index2")}, Reply: "OK.",
		Run: func(c *command.Call) error {
			var numbers [2]int
			for i, which := range []string{"first", "second"} {
				n, ok := resp.ParseInt(c.Word())
				if !ok {
					return command.Refusal("ERR invalid " + which + " DB index")
				}
				if numbers[i] = int(n); n < 0 || n >= int64(c.Server.Databases) {
					numbers[i] = -1
				}
			}
			if min(numbers[0], numbers[1]) < 0 {
				return command.ErrDatabase
			}
			c.Out.Status("OK")
			return k.swap(c, numbers[0], numbers[1])
		},
	}
}

// swapWork is the work of locking every key of all databases.
const swapWork = command.BoundedWork

// swap swaps two databases, and calls OnSwap in the same step.
func (k *Family) swap(c *command.Call, a, b int) error {
	if a == b {
		return nil
	}
	c.Work += swapWork
	defer k.OnFlush(c.View.Caller())
	return c.View.Atomically(c.Context, nil, true, func() error {
		k.OnSwap(c, a, b)
		return c.View.(store.Swapper).Swap(c.Context, a, b)
	})
}

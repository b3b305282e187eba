package value

import (
	"cellserver/internal/command"
	"cellserver/internal/store"
)

var mGet = command.Command{
	Name: "mget", Group: "string", Since: "1.0.0", Complexity: "O(N) in the number of keys",
	Flags: command.ReadOnly | command.Fast, Cost: command.Constant, Traits: command.ValueSized | command.SeveralSteps,
	Summary: "Returns the values of several keys.", KeyAccess: "RO ACCESS",
	Tips: []string{"request_policy:multi_shard"}, Args: []command.Arg{command.Key("key").Many()},
	Reply: "The values, in the order of the keys; nil for a key that is missing or holds no string. Up to 1024 keys are read at one instant.",
	Run: func(c *command.Call) error {
		keys, mark, most := c.Many(), c.Out.Mark(), command.MaxReply
		if view, ok := c.View.(store.ManyValues); ok && !c.InTransaction {
			return readMany(c, view, keys)
		}
		onLoop := c.Session != nil && !c.InTransaction
		if onLoop {
			most = command.TurnOutput
		}
		hits, misses := c.Hits, c.Misses
		c.Out.Array(len(keys))
		err := inBatches(c, keys, 1, func(keys [][]byte) error {
			for _, key := range keys {
				if err := writeValue(c, key); err == command.ErrWrongType {
					c.Out.Null()
				} else if err != nil {
					return err
				}
				if c.Out.Break(); c.Out.Len()-mark > most {
					return command.ErrReplyTooLong
				}
			}
			return nil
		})
		if err != command.ErrReplyTooLong || !onLoop {
			return err
		}
		c.Out.Rewind(mark)
		c.Hits, c.Misses = hits, misses
		c.Session.Offload()
		return nil
	},
}

// readMany writes the values of keys, or nil. It reads them without a transaction.
func readMany(c *command.Call, view store.ManyValues, keys [][]byte) error {
	mark := c.Out.Mark()
	c.Out.Array(len(keys))
	for len(keys) > 0 {
		n, before := min(len(keys), command.KeysPerStep), c.Out.Mark()
		values, err := view.ReadMany(c.Context, keys[:n])
		if err != nil {
			return err
		}
		for i, value := range values {
			c.CountLookup(value != nil)
			c.Work += len(value)
			bulkOrNull(c, value)
			values[i] = nil
			if c.Out.Break(); c.Out.Len()-mark > command.MaxReply {
				return command.ErrReplyTooLong
			}
		}
		if err := c.Reserve(c.Out.Mark() - before); err != nil {
			return err
		}
		if keys = keys[n:]; len(keys) > 0 {
			c.Yield()
		}
	}
	return nil
}

// inBatches calls step for the words of up to command.KeysPerStep keys at a time, with these keys locked.
// The first of every stride words is a key.
func inBatches(c *command.Call, words [][]byte, stride int, step func(words [][]byte) error) (err error) {
	for len(words) > 0 && err == nil {
		n, mark, counted := min(len(words), command.KeysPerStep*stride), c.Out.Mark(), c.Counts()
		err = c.View.Atomically(c.Context, keysIn(c, words[:n], stride), false, func() error {
			c.Out.Rewind(mark)
			c.ResetCounts(counted)
			return step(words[:n])
		})
		if grown := c.Out.Mark() - mark; err == nil && grown > 0 {
			err = c.Reserve(grown)
		}
		if words = words[n:]; len(words) > 0 {
			c.Yield()
		}
		c.Out.Break()
	}
	return err
}

// keysIn returns references to the keys in words: the first word of every stride is a key.
func keysIn(c *command.Call, words [][]byte, stride int) []store.KeyRef {
	keys := make([]store.KeyRef, 0, len(words)/stride)
	for i := 0; i < len(words); i += stride {
		keys = append(keys, store.KeyRef{Database: c.View.Selected(), Key: words[i]})
	}
	return keys
}

var mSet = command.Command{
	Name: "mset", Group: "string", Since: "1.0.1", Complexity: "O(N) in the number of keys",
	Flags: command.Write | command.DenyOOM, Cost: command.Constant, Traits: command.SeveralSteps,
	Summary: "Sets the values of several keys.", KeyAccess: "OW UPDATE",
	Tips:   []string{"request_policy:multi_shard", "response_policy:all_succeeded"},
	Events: command.Events{Change: "set"},
	Args:   []command.Arg{command.Key("key").With("value")},
	Reply:  "OK. Up to 1024 keys are set in one step.",
	Run: func(c *command.Call) error {
		pairs := c.Many()
		if err := checkMarks(pairs); err != nil {
			return err
		}
		c.Out.Status("OK")
		if view, ok := c.View.(store.ManyValues); ok && !c.InTransaction {
			return view.WriteMany(c.Context, pairs)
		}
		return inBatches(c, pairs, 2, func(pairs [][]byte) error { return writeAll(c, pairs) })
	},
}

// writeAll sets all pairs of a key and a value.
func writeAll(c *command.Call, words [][]byte) error {
	for i := 0; i < len(words); i += 2 {
		if err := c.View.Write(c.Context, words[i], asValue(words[i+1]), store.Never); err != nil {
			return err
		}
	}
	return nil
}

var mSetNX = command.Command{
	Name: "msetnx", Group: "string", Since: "1.0.1", Complexity: "O(N) in the number of keys",
	Flags: command.Write | command.DenyOOM, Cost: command.Constant, Traits: command.SeveralSteps,
	Summary: "Sets the values of several keys, if none of them exists.", KeyAccess: "OW INSERT",
	Tips: []string{"request_policy:multi_shard", "response_policy:agg_min"}, Events: command.Events{Change: "set"},
	Args:  []command.Arg{command.Key("key").With("value")},
	Reply: "1 if all were set, 0 if none was. At most 1024 keys.",
	Run: func(c *command.Call) error {
		words := c.Many()
		if len(words) > 2*command.KeysPerStep {
			return command.Refusal("ERR MSETNX takes up to 1024 keys")
		}
		if err := checkMarks(words); err != nil {
			return err
		}
		done := false
		err := inBatches(c, words, 2, func(words [][]byte) error {
			for i := 0; i < len(words); i += 2 {
				if n, err := c.View.Count(c.Context, words[i:i+1]); err != nil || n > 0 {
					return err
				}
			}
			done = true
			return writeAll(c, words)
		})
		c.WriteBool(done)
		return err
	},
}

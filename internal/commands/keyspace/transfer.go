package keyspace

import (
	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// Commands that bring what a key holds to another place, with its expiry.

// inSelected is a key of the selected database.
func inSelected(c *command.Call, key []byte) store.KeyRef {
	return store.KeyRef{Database: c.View.Selected(), Key: key}
}

// renaming makes RENAME and RENAMENX.
func renaming(row command.Command, replace bool, answer func(c *command.Call, done bool)) command.Command {
	row.Group, row.Complexity, row.Flags, row.Traits, row.KeyAccess = "generic", "O(1)", command.Write, command.ValueSized,
		"RW ACCESS DELETE, OW UPDATE"
	if !replace {
		row.KeyAccess = "RW ACCESS DELETE, OW INSERT"
		row.Flags, row.Cost = row.Flags|command.Fast, command.Constant // as Redis has it
	}
	row.Events = command.Events{Change: "rename_to", Removal: "rename_from"}
	row.Args = []command.Arg{command.Key("key"), command.Key("newkey")}
	row.Run = func(c *command.Call) error {
		from, to := inSelected(c, c.Key()), inSelected(c, c.Key())
		c.Work += command.BoundedUnits * command.BytesPerUnit // it may be a log of a hundred thousand entries
		done := false
		err := c.View.Atomically(c.Context, []store.KeyRef{from, to}, false, func() (err error) {
			done = false
			e, err := c.View.Lookup(c.Context, from.Key)
			if err == nil && e.Kind == store.None {
				err = command.ErrNoKey
			}
			if err == nil {
				done, err = c.View.Transfer(c.Context, from, to, store.Transfer{Replace: replace})
			}
			return err
		})
		if err != nil {
			return err
		}
		answer(c, done)
		return nil
	}
	return row
}

var (
	rename = renaming(command.Command{
		Name: "rename", Since: "1.0.0", Summary: "Renames a key.", Reply: "OK.",
	},
		true, func(c *command.Call, _ bool) { c.Out.Status("OK") })
	renameNX = renaming(command.Command{
		Name: "renamenx", Since: "1.0.0", Summary: "Renames a key, if the new name is not in use.",
		Reply: "1 if it was renamed, else 0.",
	}, false, (*command.Call).WriteBool)
)

var copyKey = command.Command{
	Name: "copy", Group: "generic", Since: "6.2.0",
	Complexity: "O(N) in the size of what the key holds", Flags: command.Write | command.DenyOOM,
	Traits:  command.ValueSized | command.AnyKey,
	Summary: "Copies a key with its expiry to another.", KeyAccess: "RO ACCESS, OW UPDATE",
	Events: command.Events{Change: "copy_to"},
	Args: []command.Arg{command.Key("source"), command.Key("destination"),
		command.Word("[DB destination-db] [REPLACE]").Optional().Many()},
	Reply: "1 if it was copied, else 0.",
	Run: func(c *command.Call) (err error) {
		from, to := inSelected(c, c.Key()), inSelected(c, c.Key())
		replace := false
		for words := c.Many(); len(words) > 0; {
			switch {
			case command.FoldEqual(words[0], "REPLACE"):
				replace, words = true, words[1:]
			case command.FoldEqual(words[0], "DB") && len(words) > 1:
				if to.Database, err = parseDatabase(c, words[1]); err != nil {
					return err
				}
				words = words[2:]
			default:
				return command.ErrSyntax
			}
		}
		c.Work += command.TurnUnits * command.BytesPerUnit // a log of 100,000 entries, or 10,000 leases
		return transfer(c, from, to, store.Transfer{Copy: true, Replace: replace})
	},
}

// parseDatabase reads the number of a database that there is.
func parseDatabase(c *command.Call, word []byte) (int, error) {
	n, err := command.ParseIndex(word)
	if err == nil && (n < 0 || n >= int64(c.Server.Databases)) {
		err = command.ErrDatabase
	}
	return int(n), err
}

func transfer(c *command.Call, from, to store.KeyRef, how store.Transfer) error {
	if from.Database == to.Database && string(from.Key) == string(to.Key) {
		return command.ErrSameObject
	}
	done, err := c.View.Transfer(c.Context, from, to, how)
	if err != nil {
		return err
	}
	c.WriteBool(done)
	return nil
}

var move = command.Command{
	Name: "move", Group: "generic", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.Write | command.Fast, Cost: command.Constant,
	Traits: command.ValueSized | command.AnyKey, Summary: "Moves a key to another database.",
	KeyAccess: "RW ACCESS UPDATE", Events: command.Events{Change: "move_to", Removal: "move_from"},
	Args:  []command.Arg{command.Key("key"), command.Word("db")},
	Reply: "1 if it was moved, 0 if it does not exist here, or exists there.",
	Run: func(c *command.Call) error {
		key, word := c.Key(), c.Word()
		db, ok := resp.ParseInt(word)
		if !ok {
			return command.ErrNotAnInteger
		}
		if db < 0 || db >= int64(c.Server.Databases) {
			return command.ErrDatabase
		}
		return transfer(c, inSelected(c, key), store.KeyRef{Database: int(db), Key: key}, store.Transfer{})
	},
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

// swapWork is what it counts of a turn to lock every key of all databases, in bytes that could be
// moved meanwhile.
const swapWork = command.BoundedUnits * command.BytesPerUnit

// swap is one step with what it means for those who watch.
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

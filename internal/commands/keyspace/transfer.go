package keyspace

import (
	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// inSelected refers to a key of the selected database.
func inSelected(c *command.Call, key []byte) store.KeyRef {
	return store.KeyRef{Database: c.View.Selected(), Key: key}
}

// renaming completes the rows of RENAME and RENAMENX.
func renaming(row command.Command, replace bool, answer func(c *command.Call, done bool)) command.Command {
	row.Group, row.Complexity, row.KeyAccess = "generic", "O(1)", "RW ACCESS DELETE, OW UPDATE"
	row.Flags, row.Traits = command.Write, command.ValueSized
	if !replace {
		row.KeyAccess = "RW ACCESS DELETE, OW INSERT"
		row.Flags, row.Cost = row.Flags|command.Fast, command.Constant // as in Redis
	}
	row.Events = command.Events{Change: "rename_to", Removal: "rename_from"}
	row.Args = []command.Arg{command.Key("key"), command.Key("newkey")}
	row.Run = func(c *command.Call) error {
		from, to := inSelected(c, c.Key()), inSelected(c, c.Key())
		c.Work += command.BoundedWork // the key may hold a log of 100,000 entries
		done := false
		err := c.View.Atomically(c.Context, []store.KeyRef{from, to}, false, func() (err error) {
			done = false
			e, err := c.View.Lookup(c.Context, from.Key)
			if err == nil && e.Kind == limit.None {
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
				if to.Database, err = parseDatabase(c, words[1]); err == nil && to.Database != from.Database {
					err = c.RefuseExternal(oneDatabase)
				}
				if err != nil {
					return err
				}
				words = words[2:]
			default:
				return command.ErrSyntax
			}
		}
		c.Work += command.TurnWork // the key may hold a log of 100,000 entries, or 10,000 leases
		if c.Server.Abilities&store.IsExternal != 0 {
			return transfer(c, from, to, store.Transfer{Copy: true, Replace: replace})
		}
		release, err := c.Allocate(2 * c.View.StateBytes(c.Context, from.Key)) // the copy, and one that is made for it
		if release == nil {
			return err
		}
		defer release()
		return transfer(c, from, to, store.Transfer{Copy: true, Replace: replace})
	},
}

// oneDatabase says why keys in another program are not moved between databases.
const oneDatabase = "a step touches keys of one database only"

// parseDatabase returns the number of a database, or an error if there is no such database.
func parseDatabase(c *command.Call, word []byte) (int, error) {
	n, err := command.ParseIndex(word)
	if err == nil && (n < 0 || n >= int64(c.Server.Databases)) {
		err = command.ErrDatabase
	}
	return int(n), err
}

// transfer copies or moves a key with its expiry; the reply is 1, or 0 if it could not.
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
	NotExternal: oneDatabase,
	KeyAccess:   "RW ACCESS UPDATE", Events: command.Events{Change: "move_to", Removal: "move_from"},
	Args:  []command.Arg{command.Key("key"), command.Word("db")},
	Reply: "1 if it was moved; 0 if there is no such key, or the other database has a key of that name.",
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

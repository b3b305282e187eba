package commands

import (
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// Commands that bring what a key holds to another place, with its expiry.

// here is a key of the selected database.
func (c *Call) here(key []byte) store.Place {
	return store.Place{Database: c.View.Selected(), Key: key}
}

// renaming makes RENAME and RENAMENX.
func renaming(row Command, replace bool, answer func(c *Call, done bool)) Command {
	row.Group, row.Complexity, row.Flags, row.Traits, row.KeyAccess = "generic", "O(1)", Write, ValueSized, "RW ACCESS DELETE, OW UPDATE"
	if !replace {
		row.KeyAccess = "RW ACCESS DELETE, OW INSERT"
		row.Flags, row.Cost = row.Flags|Fast, Constant // as Redis has it
	}
	row.Event, row.Taken = "rename_to", "rename_from"
	row.Args = []Arg{Key("key"), Key("newkey")}
	row.Run = func(c *Call) error {
		from, to := c.here(c.Key()), c.here(c.Key())
		c.moved += unhurried * fewBytes // it may be a log of a hundred thousand entries
		there, done := false, false
		var err error
		c.View.Atomically(c.Context, []store.Place{from, to}, false, func() {
			var e store.Entry
			if e, err = c.View.Lookup(c.Context, from.Key); err != nil || e.Kind == store.None {
				return
			}
			there = true
			done, err = c.View.Transfer(c.Context, from, to, store.Transfer{Replace: replace})
		})
		switch {
		case err != nil:
			return err
		case !there:
			return errNoKey
		}
		answer(c, done)
		return nil
	}
	return row
}

var (
	rename = renaming(Command{Name: "rename", Since: "1.0.0", Summary: "Gives a key another name.", Reply: "OK."},
		true, func(c *Call, _ bool) { c.Out.Status("OK") })
	renameNX = renaming(Command{Name: "renamenx", Since: "1.0.0", Summary: "Gives a key another name, if no key has that.",
		Reply: "1 if it was renamed, else 0."}, false, (*Call).oneIf)
)

var copyKey = Command{
	Name: "copy", Group: "generic", Since: "6.2.0", Complexity: "O(N) in the size of what the key holds", Flags: Write | DenyOOM, Traits: ValueSized | AnyKey,
	Summary: "Copies what a key holds, and when it expires, to another.", KeyAccess: "RO ACCESS, OW UPDATE", Event: "copy_to",
	Args:  []Arg{Key("source"), Key("destination"), Word("[DB destination-db] [REPLACE]").Optional().Many()},
	Reply: "1 if it was copied, else 0.",
	Run: func(c *Call) (err error) {
		from, to := c.here(c.Key()), c.here(c.Key())
		replace := false
		for words := c.Many(); len(words) > 0; {
			switch {
			case foldEqual(words[0], "REPLACE"):
				replace, words = true, words[1:]
			case foldEqual(words[0], "DB") && len(words) > 1:
				if to.Database, err = c.parseDatabase(words[1]); err != nil {
					return err
				}
				words = words[2:]
			default:
				return errSyntax
			}
		}
		c.moved += turn * fewBytes // it may be a log of a hundred thousand entries, or ten thousand leases
		return c.transfer(from, to, store.Transfer{Copy: true, Replace: replace})
	},
}

// parseDatabase reads the number of a database that there is.
func (c *Call) parseDatabase(word []byte) (int, error) {
	n, err := parseIndex(word)
	if err == nil && (n < 0 || n >= int64(c.Server.Databases)) {
		err = errDatabase
	}
	return int(n), err
}

func (c *Call) transfer(from, to store.Place, how store.Transfer) error {
	if from.Database == to.Database && string(from.Key) == string(to.Key) {
		return errSameObject
	}
	done, err := c.View.Transfer(c.Context, from, to, how)
	if err != nil {
		return err
	}
	c.oneIf(done)
	return nil
}

var move = Command{
	Name: "move", Group: "generic", Since: "1.0.0", Complexity: "O(1)", Flags: Write | Fast, Cost: Constant, Traits: ValueSized | AnyKey,
	Summary: "Moves a key to another database.", KeyAccess: "RW ACCESS UPDATE", Event: "move_to", Taken: "move_from",
	Args: []Arg{Key("key"), Word("db")}, Reply: "1 if it was moved, 0 if there is no such key here, or one there.",
	Run: func(c *Call) error {
		key, word := c.Key(), c.Word()
		db, ok := resp.ParseInt(word)
		if !ok {
			return errNotAnInteger
		}
		if db < 0 || db >= int64(c.Server.Databases) {
			return errDatabase
		}
		return c.transfer(c.here(key), store.Place{Database: int(db), Key: key}, store.Transfer{})
	},
}

func (k *Keyspace) swapDB() *Command {
	return &Command{
		Name: "swapdb", Group: "server", Category: "keyspace", Since: "4.0.0", Complexity: "O(1)", Flags: Write | Fast | Dangerous, Cost: Constant, Traits: AnyKey | SwapsDatabases,
		Effort:  &Effort{Fixed: func([][]byte) int { return swapWorth }},
		Summary: "Has two databases change their numbers.", Args: []Arg{Word("index1"), Word("index2")}, Reply: "OK.",
		Run: func(c *Call) error {
			var numbers [2]int
			for i, which := range []string{"first", "second"} {
				n, ok := resp.ParseInt(c.Word())
				if !ok {
					return refusal("ERR invalid " + which + " DB index")
				}
				if numbers[i] = int(n); n < 0 || n >= int64(c.Server.Databases) {
					numbers[i] = -1
				}
			}
			if min(numbers[0], numbers[1]) < 0 {
				return errDatabase
			}
			c.Out.Status("OK")
			return k.swap(c, numbers[0], numbers[1])
		},
	}
}

// swapWorth is what it counts of a turn to lock every key of all databases, in bytes that could be
// moved meanwhile.
const swapWorth = unhurried * fewBytes

// swap is one step with what it means for those who watch.
func (k *Keyspace) swap(c *Call, a, b int) (err error) {
	if a == b {
		return nil
	}
	c.moved += swapWorth
	defer k.Flushed(c.View.Signed())
	c.View.Atomically(c.Context, nil, true, func() {
		k.Swapping(c, a, b)
		err = c.View.Swap(c.Context, a, b)
	})
	return err
}

package value

import (
	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

var get = command.Command{
	Name: "get", Group: "string", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.ReadOnly | command.Fast, Cost: command.Constant, Traits: command.ValueSized,
	Summary: "Returns the value of a key.", KeyAccess: "RO ACCESS",
	Args:  []command.Arg{command.Key("key")},
	Reply: "The value, or nil if there is no such key. Of a CL.THROTTLE key: its TAT in Unix nanoseconds.",
	Run: func(c *command.Call) error {
		key := c.Key()
		if c.InTransaction {
			return writeValue(c, key)
		}
		if c.OneStep {
			return readWhole(c, key)
		}
		hits := c.Hits
		value, length, err := readPart(c, key, 0, maxKeptValue-1)
		switch {
		case err != nil:
			return err
		case length > len(value): // longer than the memory that the call keeps, so it is written without a copy
			c.Hits = hits
			return writeValue(c, key)
		}
		bulkOrNull(c, value)
		return nil
	},
}

// readWhole writes the string at a key, or nil, in one step.
func readWhole(c *command.Call, key []byte) error {
	value, err := read(c, key)
	if err == nil {
		bulkOrNull(c, value)
	}
	return err
}

// writeValue writes the string at a key, or nil, straight from the store, with the key locked. It is for
// large values, and for keys that are locked anyway.
func writeValue(c *command.Call, key []byte) error {
	mark, counted := c.Out.Mark(), c.Counts()
	return c.View.Edit(c.Context, key, func(e store.Entry, value []byte) (store.Change, error) {
		c.Out.Rewind(mark)
		c.ResetCounts(counted)
		value, err := asString(c, e, value)
		if err == nil {
			c.Work += len(value)
			bulkOrNull(c, value)
		}
		return store.Change{}, err
	})
}

// bulkOrNull writes a string, or nil.
func bulkOrNull(c *command.Call, value []byte) {
	if value == nil {
		c.Out.Null()
		return
	}
	c.Out.Bulk(value)
}

var getDel = command.Command{
	Name: "getdel", Group: "string", Since: "6.2.0", Complexity: "O(1)",
	Flags: command.Write | command.Fast, Cost: command.Constant, Traits: command.ValueSized,
	Summary: "Returns the value of a key, and removes it.", KeyAccess: "RW ACCESS DELETE",
	Args: []command.Arg{command.Key("key")}, Reply: "The value, or nil if there is no such key.",
	Run: func(c *command.Call) error {
		return getAndEdit(c, c.Key(), func(store.Entry) (store.Change, error) {
			return store.Change{Operation: store.Remove}, nil
		})
	},
}

// getAndEdit replies with the string at a key and, if the key exists, makes the change that edit
// returns.
func getAndEdit(c *command.Call, key []byte, edit func(e store.Entry) (store.Change, error)) error {
	before, counted := []byte(nil), c.Counts()
	err := c.View.Edit(c.Context, key, func(e store.Entry, old []byte) (change store.Change, err error) {
		before = nil
		c.ResetCounts(counted)
		if old, err = asString(c, e, old); err != nil || e.Kind == limit.None {
			return change, err
		}
		before = copied(c, old)
		return edit(e)
	})
	if err != nil {
		return err
	}
	bulkOrNull(c, before)
	return nil
}

var getEX = command.Command{
	Name: "getex", Group: "string", Since: "6.2.0", Complexity: "O(1)",
	Flags: command.Write | command.Fast, Cost: command.Constant, Traits: command.ValueSized,
	Summary: "Returns the value of a key, and sets its expiry.", KeyAccess: "RW ACCESS UPDATE",
	Events: command.Events{ChangeOf: expiryEvent},
	Args: []command.Arg{command.Key("key"), exOption, pxOption, exatOption, pxatOption,
		command.Flag("PERSIST").Again()},
	Reply: "The value, or nil if there is no such key.",
	Run: func(c *command.Call) error {
		key, life, persist := c.Key(), lifetime{c.Word(), c.Word(), c.Word(), c.Word()}, c.Flag()
		times := life.count()
		if times > 1 || times > 0 && persist {
			return command.ErrSyntax
		}
		return getAndEdit(c, key, func(e store.Entry) (store.Change, error) {
			expires, err := instant(c, life) // here, because Redis checks times of existing keys alone
			switch {
			case err != nil:
				return store.Change{}, err
			case times == 0 && !persist, persist && e.Expires == store.Never:
				return store.Change{}, nil
			case !e.Kind.IsValue():
				return store.Change{}, command.ErrOwnExpiry
			}
			return store.Change{Operation: store.SetExpiry, Expires: expires}, nil
		})
	},
}

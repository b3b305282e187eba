package value

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// Redis's commands on values. A throttle key reads as redis-cell's: a string that holds the TAT's
// digits.

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
		hits := c.Hits
		value, length, err := readPart(c, key, 0, maxKeptValue-1)
		switch {
		case err != nil:
			return err
		case length > len(value): // a copy of it all would be thrown away
			c.Hits = hits
			return writeValue(c, key)
		}
		bulkOrNull(c, value)
		return nil
	},
}

// writeValue writes a value, or that there is none, from where it stands, with the key locked: for
// large ones, and for keys that are locked anyway.
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

// bulkOrNull writes a string, or that there is none.
func bulkOrNull(c *command.Call, value []byte) {
	if value == nil {
		c.Out.Null()
		return
	}
	c.Out.Bulk(value)
}

// How an expiry is said in options.
var (
	exOption   = command.Word("seconds").After("EX").Again()
	pxOption   = command.Word("milliseconds").After("PX").Again()
	exatOption = command.Word("unix-time-seconds").After("EXAT").Again()
	pxatOption = command.Word("unix-time-milliseconds").After("PXAT").Again()
)

// setGets says whether a SET asks for the value that was.
func setGets(words [][]byte) bool {
	return slices.ContainsFunc(words[min(3, len(words)):],
		func(word []byte) bool { return command.FoldEqual(word, "GET") })
}

// setHasCondition says whether a SET compares the value that was.
func setHasCondition(words [][]byte) bool {
	return slices.ContainsFunc(words[min(3, len(words)):], func(word []byte) bool { return conditionNamed(word) != 0 })
}

var set = command.Command{
	Name: "set", Group: "string", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.Write | command.DenyOOM, Cost: command.Constant,
	Summary:   "Sets the value of a key, whatever it held.",
	KeyAccess: "RW ACCESS UPDATE VARIABLE_FLAGS",
	Keys: command.KeyRules{Access: func(words [][]byte) string {
		switch {
		case setGets(words):
			return "RW ACCESS UPDATE"
		case setHasCondition(words):
			return "RW UPDATE"
		}
		return "OW UPDATE"
	}},
	Events: command.Events{
		ChangeOf: func(c *command.Call) string { return "set " + expiryEvent(c) },
		Removal:  command.ExpiredEvent,
	},
	Effort: &command.Effort{Sized: func(words [][]byte) bool {
		return len(words) > 3 &&
			(setGets(words) || setHasCondition(words))
	}},
	Args: []command.Arg{command.Key("key"), command.Word("value"), command.Flag("NX").Again(), command.Flag("XX").Again(),
		command.OneOf("condition", conditionTokens...).WithEach("value").Again(), command.Flag("GET").Again(),
		exOption, pxOption, exatOption, pxatOption, command.Flag("KEEPTTL").Again()},
	Reply: `OK; nil if NX, XX or a condition prevented it. With GET: the old value, or nil, whether it was set or not. IFEQ and IFNE
compare the old value, IFDEQ and IFDNE its DIGEST; a missing key equals nothing.`,
	Run: func(c *command.Call) error {
		key, value := c.Key(), c.Word()
		how := setOptions{nx: c.Flag(), xx: c.Flag()}
		how.condition.kind, how.condition.operand = c.ChoiceOf()
		how.returnOld = c.Flag()
		life := lifetime{c.Word(), c.Word(), c.Word(), c.Word()}
		how.keepTTL = c.Flag()
		if !how.areCompatible(life.count()) {
			return command.ErrSyntax
		}
		expires, err := instant(c, life)
		switch {
		case err != nil:
			return err
		case !how.nx && !how.xx && !how.returnOld && !how.keepTTL && how.condition.kind == 0:
			c.Out.Status("OK")
			return c.View.Write(c.Context, key, asValue(value), expires)
		}
		return setIf(c, key, value, expires, how)
	},
}

// setOptions is what SET depends on, and what it answers.
type setOptions struct {
	nx, xx, returnOld, keepTTL bool
	condition                  valueCondition
}

// areCompatible says whether the options go together, with so many that say when the key expires.
func (how setOptions) areCompatible(times int) bool {
	if how.nx && how.xx || (how.nx || how.xx) && how.condition.kind != 0 {
		return false
	}
	return times == 0 || times == 1 && !how.keepTTL
}

// allows says whether a key may be set, and what it held where that matters.
func (how setOptions) allows(c *command.Call, e store.Entry, was []byte) (before []byte, ok bool, err error) {
	switch {
	case how.returnOld:
		was, err = asString(c, e, was)
		before = copied(c, was)
	case how.condition.kind != 0:
		was, err = text(c, e, was)
	}
	switch {
	case err != nil:
		return nil, false, err
	case how.nx && e.Kind != store.None, how.xx && e.Kind == store.None:
		return before, false, nil
	}
	ok, err = how.condition.matches(c, was)
	return before, ok, err
}

func setIf(c *command.Call, key, value []byte, expires int64, how setOptions) error {
	done, before, counted := false, []byte(nil), c.Counts()
	err := c.View.Edit(c.Context, key, func(e store.Entry, was []byte) (change store.Change, err error) {
		c.ResetCounts(counted)
		if before, done, err = how.allows(c, e, was); err != nil || !done {
			return change, err
		}
		change = store.Change{Operation: store.Put, Value: asValue(value), Expires: expires}
		c.Work += len(value)
		if how.keepTTL && e.Kind.IsValue() {
			change.Expires = e.Expires
		}
		return change, nil
	})
	switch {
	case err != nil:
		return err
	case how.returnOld:
		bulkOrNull(c, before)
	case done:
		c.Out.Status("OK")
	default:
		c.Out.Null()
	}
	return nil
}

// copied is a string of the call's own; nil stays nil, and an empty one empty.
func copied(c *command.Call, b []byte) []byte {
	if b == nil {
		return nil
	}
	c.Work += len(b)
	return append([]byte{}, b...)
}

var setNX = command.Command{
	Name: "setnx", Group: "string", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.Write | command.DenyOOM | command.Fast, Cost: command.Constant,
	Summary: "Sets the value of a key if it does not exist.", KeyAccess: "OW INSERT", Events: command.Events{Change: "set"},
	Args:  []command.Arg{command.Key("key"), command.Word("value")},
	Reply: "1 if it was set, else 0.",
	Run: func(c *command.Call) error {
		key, value := c.Key(), c.Word()
		return c.ChangeIf(key, func(e store.Entry) (store.Change, error) {
			if e.Kind != store.None {
				return store.Change{}, nil
			}
			return put(value, e), nil
		})
	},
}

// settingWithTTL makes SETEX and PSETEX.
func settingWithTTL(row command.Command, unit int64) command.Command {
	row.Group, row.Complexity, row.Flags, row.Cost, row.KeyAccess = "string", "O(1)", command.Write|command.DenyOOM,
		command.Constant, "OW UPDATE"
	row.Summary, row.Reply = "Sets the value of a key, and its time to live.", "OK."
	row.Events = command.Events{Change: "set expire", Removal: command.ExpiredEvent}
	row.Run = func(c *command.Call) error {
		key, life, value := c.Key(), c.Word(), c.Word()
		expires, err := c.Expiry(life, unit, true, true)
		if err != nil {
			return err
		}
		c.Out.Status("OK")
		return c.View.Write(c.Context, key, asValue(value), expires)
	}
	return row
}

var (
	setEX = settingWithTTL(command.Command{
		Name: "setex", Since: "2.0.0",
		Args: []command.Arg{command.Key("key"), command.Word("seconds"), command.Word("value")},
	}, 1000)
	pSetEX = settingWithTTL(command.Command{
		Name: "psetex", Since: "2.6.0",
		Args: []command.Arg{command.Key("key"), command.Word("milliseconds"), command.Word("value")},
	}, 1)
)

var getSet = command.Command{
	Name: "getset", Group: "string", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.Write | command.DenyOOM | command.Fast, Cost: command.Constant,
	Traits: command.ValueSized, Summary: "Sets the value of a key, and returns the old one.",
	KeyAccess: "RW ACCESS UPDATE", Events: command.Events{Change: "set"},
	Args: []command.Arg{command.Key("key"), command.Word("value")}, Reply: "The old value, or nil.",
	Run: func(c *command.Call) error {
		key, value := c.Key(), c.Word()
		return setIf(c, key, value, store.Never, setOptions{returnOld: true})
	},
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

// getAndEdit answers what a key reads as, and does something to it if it is there.
func getAndEdit(c *command.Call, key []byte, then func(e store.Entry) (store.Change, error)) error {
	before, counted := []byte(nil), c.Counts()
	err := c.View.Edit(c.Context, key, func(e store.Entry, was []byte) (change store.Change, err error) {
		before = nil
		c.ResetCounts(counted)
		if was, err = asString(c, e, was); err != nil || e.Kind == store.None {
			return change, err
		}
		before = copied(c, was)
		return then(e)
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
			expires, err := instant(c, life) // not before: of a key that is not there Redis reads no times
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

var strLen = command.Command{
	Name: "strlen", Group: "string", Since: "2.2.0", Complexity: "O(1)",
	Flags: command.ReadOnly | command.Fast, Cost: command.Constant,
	Summary: "Returns the length of a value, in bytes.", KeyAccess: "RO",
	Args: []command.Arg{command.Key("key")}, Reply: "The length; 0 if there is no such key.",
	Run: func(c *command.Call) error {
		_, length, err := readPart(c, c.Key(), 1, 0)
		c.Out.Int(int64(length))
		return err
	},
}

var appendTo = command.Command{
	Name: "append", Group: "string", Since: "2.0.0", Complexity: "O(N) in the bytes that are added",
	Flags: command.Write | command.DenyOOM | command.Fast, Cost: command.Constant,
	Summary: "Appends bytes to a value.", KeyAccess: "RW INSERT",
	Args:  []command.Arg{command.Key("key"), command.Word("value")},
	Reply: "The new length of the value.",
	Run: func(c *command.Call) error {
		key, more := c.Key(), c.Word()
		length := 0
		err := editValue(c, key, func(e store.Entry, was []byte) (store.Change, error) {
			length = len(was) + len(more)
			if err := checkLength(c, int64(length)); err != nil && e.Kind != store.None {
				return store.Change{}, err
			}
			return patch(was, len(was), more, e), nil
		})
		c.Out.Int(int64(length))
		return err
	},
}

// checkLength holds a value to what a client could send in one word.
func checkLength(c *command.Call, bytes int64) error {
	if bytes > int64(c.Server.Limits.Load().Bulk) {
		return command.Refusal("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
	}
	return nil
}

var setRange = command.Command{
	Name: "setrange", Group: "string", Since: "2.2.0",
	Complexity: "O(N) in the bytes that are written", Flags: command.Write | command.DenyOOM,
	Cost:      command.Constant,
	Summary:   "Overwrites a part of a value; zero bytes fill a gap before it.",
	KeyAccess: "RW UPDATE",
	Args:      []command.Arg{command.Key("key"), command.Int("offset"), command.Word("value")},
	Reply:     "The new length of the value.",
	Effort: &command.Effort{Creates: func(words [][]byte, longest int) int {
		if offset, ok := resp.ParseInt(words[2]); ok && offset > 0 && offset <= int64(longest-len(words[3])) {
			return int(offset)
		}
		return 0
	}},
	Run: func(c *command.Call) error {
		key, offset, part := c.Key(), c.Int(), c.Word()
		if offset < 0 {
			return command.Refusal("ERR offset is out of range")
		}
		length := 0
		err := editValue(c, key, func(e store.Entry, was []byte) (store.Change, error) {
			if length = len(was); len(part) == 0 {
				return store.Change{}, nil
			}
			if offset > command.MaxInt-int64(len(part)) {
				return store.Change{}, checkLength(c, command.MaxInt)
			}
			if err := checkLength(c, offset+int64(len(part))); err != nil {
				return store.Change{}, err
			}
			length = max(length, int(offset)+len(part))
			return patch(was, int(offset), part, e), nil
		})
		c.Out.Int(int64(length))
		return err
	},
}

// readingRange makes GETRANGE, and SUBSTR, its old name.
func readingRange(row command.Command) command.Command {
	row.Group, row.Complexity, row.KeyAccess = "string", "O(N) in the length of the part", "RO ACCESS"
	row.Flags, row.Cost, row.Traits, row.Effort = command.ReadOnly, command.Constant, command.ValueSized,
		&command.Effort{Reads: rangeLength}
	row.Summary, row.Reply = "Returns a part of a value.",
		"The bytes from start to end, both included; negative numbers count from the end."
	row.Args = []command.Arg{command.Key("key"), command.Int("start"), command.Int("end")}
	row.Run = func(c *command.Call) error {
		key, start, end := c.Key(), c.Int(), c.Int()
		part, _, err := readPart(c, key, start, end)
		if err != nil {
			return err
		}
		c.Out.Bulk(part)
		return nil
	}
	return row
}

// rangeLength is how many bytes a part of a value has at most.
func rangeLength(words [][]byte, size int) int {
	start, ok := resp.ParseInt(words[2])
	end, too := resp.ParseInt(words[3])
	switch {
	case !ok || !too || (start < 0) != (end < 0):
		return size
	case end < start:
		return 0
	}
	return int(min(uint64(end-start), uint64(size)))
}

var (
	getRange = readingRange(command.Command{Name: "getrange", Since: "2.4.0"})
	subStr   = readingRange(command.Command{Name: "substr", Since: "1.0.0"})
)

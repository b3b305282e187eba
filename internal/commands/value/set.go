package value

import (
	"slices"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// The options that set an expiry.
var (
	exOption   = command.Word("seconds").After("EX").Again()
	pxOption   = command.Word("milliseconds").After("PX").Again()
	exatOption = command.Word("unix-time-seconds").After("EXAT").Again()
	pxatOption = command.Word("unix-time-milliseconds").After("PXAT").Again()
)

// setGets reports whether a SET has the option GET.
func setGets(words [][]byte) bool {
	return slices.ContainsFunc(words[min(3, len(words)):],
		func(word []byte) bool { return command.FoldEqual(word, "GET") })
}

// setHasCondition reports whether a SET compares the old value.
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
	Args: []command.Arg{command.Key("key"), command.Word("value"), command.Flag("NX").Again(),
		command.Flag("XX").Again(),
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
		if err == nil {
			err = checkMark(value)
		}
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

// setOptions are the options of SET, except for the options about the expiry.
type setOptions struct {
	nx, xx, returnOld, keepTTL bool
	condition                  valueCondition
}

// areCompatible reports whether the options may be given together, with times options of the expiry.
func (how setOptions) areCompatible(times int) bool {
	if how.nx && how.xx || (how.nx || how.xx) && how.condition.kind != 0 {
		return false
	}
	return times == 0 || times == 1 && !how.keepTTL
}

// allows reports whether NX, XX and the condition allow a key to be set. It returns the old value if GET
// asks for it.
func (how setOptions) allows(c *command.Call, e store.Entry, old []byte) (before []byte, ok bool, err error) {
	switch {
	case how.returnOld:
		old, err = asString(c, e, old)
		before = copied(c, old)
	case how.condition.kind != 0:
		old, err = text(c, e, old)
	}
	switch {
	case err != nil:
		return nil, false, err
	case how.nx && e.Kind != limit.None, how.xx && e.Kind == limit.None:
		return before, false, nil
	}
	ok, err = how.condition.matches(c, old)
	return before, ok, err
}

// setIf sets a key if the options allow it. The reply depends on the options too.
func setIf(c *command.Call, key, value []byte, expires int64, how setOptions) error {
	done, before, counted := false, []byte(nil), c.Counts()
	err := c.View.Edit(c.Context, key, func(e store.Entry, old []byte) (change store.Change, err error) {
		c.ResetCounts(counted)
		if before, done, err = how.allows(c, e, old); err != nil || !done {
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

// copied returns a copy of a string of the store, nil for nil.
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
		if err := checkMark(value); err != nil {
			return err
		}
		return c.ChangeIf(key, func(e store.Entry) (store.Change, error) {
			if e.Kind != limit.None {
				return store.Change{}, nil
			}
			return put(value, e), nil
		})
	},
}

// settingWithTTL completes the rows of SETEX and PSETEX. unit is in milliseconds.
func settingWithTTL(row command.Command, unit int64) command.Command {
	row.Group, row.Complexity, row.Flags, row.Cost, row.KeyAccess = "string", "O(1)", command.Write|command.DenyOOM,
		command.Constant, "OW UPDATE"
	row.Summary, row.Reply = "Sets the value of a key, and its time to live.", "OK."
	row.Events = command.Events{Change: "set expire", Removal: command.ExpiredEvent}
	row.Run = func(c *command.Call) error {
		key, life, value := c.Key(), c.Word(), c.Word()
		expires, err := c.Expiry(life, unit, true, true)
		if err == nil {
			err = checkMark(value)
		}
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
		if err := checkMark(value); err != nil {
			return err
		}
		return setIf(c, key, value, store.Never, setOptions{returnOld: true})
	},
}

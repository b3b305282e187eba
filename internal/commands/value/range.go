package value

import (
	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

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
		length, room := 0, int64(0)
		defer func() { c.Server.Room.Release(room) }()
		err := editValue(c, key, func(e store.Entry, old []byte) (store.Change, error) {
			length = len(old) + len(more)
			if err := checkLength(c, int64(length)); err != nil && e.Kind != limit.None {
				return store.Change{}, err
			}
			return patch(old, len(old), more, e)
		})
		c.Out.Int(int64(length))
		return err
	},
}

// checkLength refuses a value that is longer than proto-max-bulk-len allows.
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
		length, room := 0, int64(0)
		defer func() { c.Server.Room.Release(room) }()
		err := editValue(c, key, func(e store.Entry, old []byte) (store.Change, error) {
			if length = len(old); len(part) == 0 {
				return store.Change{}, nil
			}
			if offset > command.MaxInt-int64(len(part)) {
				return store.Change{}, checkLength(c, command.MaxInt)
			}
			if err := checkLength(c, offset+int64(len(part))); err != nil {
				return store.Change{}, err
			}
			if gap := offset - int64(len(old)); gap > 0 && room == 0 {
				if room = 2 * offset; !c.Server.Room.Reserve(room, false) {
					room = 0
					return store.Change{}, store.ErrFull
				}
			}
			length = max(length, int(offset)+len(part))
			return patch(old, int(offset), part, e)
		})
		c.Out.Int(int64(length))
		return err
	},
}

// readingRange completes the rows of GETRANGE, and of SUBSTR, its old name.
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

// rangeLength is the Effort.Reads of GETRANGE: an upper bound of the length of the part, in bytes.
func rangeLength(words [][]byte, size int) int {
	start, okStart := resp.ParseInt(words[2])
	end, okEnd := resp.ParseInt(words[3])
	switch {
	case !okStart || !okEnd || (start < 0) != (end < 0):
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

package keyspace

import (
	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

var object = command.Container("object", "generic", "2.2.3", "Commands that show how a key is stored.",
	&objectEncoding, &objectFreq, &objectIdleTime, &objectRefCount, command.HelpOf("object", "6.2.0"))

// aboutObject completes the row of a subcommand of OBJECT. Its reply is nil if there is no such
// key.
func aboutObject(row command.Command, answer func(c *command.Call, key []byte, e store.Entry) error) command.Command {
	row.Group, row.Complexity, row.Flags, row.Tips = "generic", "O(1)", command.ReadOnly, command.Varying
	row.Traits |= command.ValueSized
	row.KeyAccess, row.Args = "RO", []command.Arg{command.Key("key")}
	row.Run = func(c *command.Call) error {
		key := c.Key()
		e, err := c.View.Lookup(c.Context, key)
		if err != nil {
			return err
		}
		if e.Kind == limit.None {
			c.Out.Null()
			return nil
		}
		return answer(c, key, e)
	}
	return row
}

var (
	objectEncoding = aboutObject(command.Command{
		Name: "object|encoding", Since: "2.2.3",
		Summary: "Returns how a value is encoded, in Redis's terms.",
		Reply:   "int, embstr or raw for a value, int for a CL.THROTTLE key, else the limiter's kind; nil if there is no such key.",
	}, func(c *command.Call, key []byte, e store.Entry) error {
		const longestEmbedded = 44 // bytes: a string that Redis keeps in its object
		name := e.Kind.String()
		switch e.Kind {
		case limit.Integer, limit.Throttle:
			name = "int"
		case limit.Bytes:
			length, err := inspectField(c, key, "bytes")
			if err != nil {
				return err
			}
			if name = "raw"; length <= longestEmbedded {
				name = "embstr"
			}
		}
		c.Out.BulkString(name)
		return nil
	})

	objectFreq = aboutObject(command.Command{
		Name: "object|freq", Since: "4.0.0", Summary: "Refused: the use of keys is not counted.",
		Reply: "An error; nil if there is no such key.",
	}, func(*command.Call, []byte, store.Entry) error {
		return command.Refusal("ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching " +
			"between policies at runtime LRU and LFU data will take some time to adjust.")
	})

	objectIdleTime = aboutObject(command.Command{
		Name: "object|idletime", Since: "2.2.3", Traits: command.Needs(store.TracksIdle),
		Summary: "Returns how long a key has not been used.",
		Reply:   "Seconds, accurate to about one; wraps to 0 after 104 days; nil if there is no such key.",
	}, func(c *command.Call, key []byte, _ store.Entry) error {
		idle, _, err := c.View.(store.IdleTracker).Idle(c.Context, key)
		c.Out.Int(int64(idle.Seconds()))
		return err
	})

	objectRefCount = aboutObject(command.Command{
		Name: "object|refcount", Since: "2.2.3",
		Summary: "Returns how many keys share a value, as Redis counts it.",
		Reply:   "1; 2147483647 for an integer from 0 to 9999, which Redis shares; nil if there is no such key.",
	}, func(c *command.Call, key []byte, e store.Entry) error {
		const shared = 10000
		count := int64(1)
		if e.Kind == limit.Integer {
			n, err := inspectField(c, key, "value")
			if err != nil {
				return err
			}
			if 0 <= n && n < shared {
				count = 1<<31 - 1
			}
		}
		c.Out.Int(count)
		return nil
	})
)

// inspectField returns a field of the state of a key, 0 if it has no such field. Unlike a read, it
// does not change the time at which the key was used last.
func inspectField(c *command.Call, key []byte, name string) (int64, error) {
	_, fields, err := c.View.Inspect(c.Context, key)
	for _, f := range fields {
		if f.Name == name {
			return f.Value, err
		}
	}
	return 0, err
}

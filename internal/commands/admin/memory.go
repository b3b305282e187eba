package admin

import (
	"runtime/debug"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

func (a *Admin) memory() *command.Command {
	return command.Container("memory", "server", "4.0.0", "Commands about memory.",
		&memoryDoctor, &memoryPurge, a.memoryStats(), &memoryUsage, command.HelpOf("memory", "4.0.0"))
}

var memoryUsage = command.Command{
	Name: "memory|usage", Group: "server", Category: "none", Since: "4.0.0", Complexity: "O(1)",
	Flags: command.ReadOnly, Traits: command.ValueSized,
	Summary: "Estimates the memory that a key takes.", KeyAccess: "RO",
	Args:  []command.Arg{command.Key("key"), command.Int("count").By(parseSamples).Or(5).After("SAMPLES").Again()},
	Reply: "The bytes of its record, its index entry, its value and its open holds; nil if there is no such key.",
	Run: func(c *command.Call) error {
		key := c.Key()
		e, fields, err := c.View.Inspect(c.Context, key)
		if err != nil {
			return err
		}
		if e.Kind == limit.None {
			c.Out.Null()
			return nil
		}
		c.Out.Int(int64(recordBytes + len(key) + stateBytes(fields)))
		return nil
	},
}

// recordBytes estimates the memory, in bytes, of a key in addition to its name and its value: the
// header of its record, and an entry in an index that is two thirds full.
const recordBytes = 13 + 8

// maxInstants is how many instants of refusals a standing has at most; more are only counted.
const maxInstants = 100

// stateBytes estimates the memory, in bytes, of a value from its fields: a string needs its length
// and a header, a log 16 bytes per entry, a lease about 48 per holder, an open hold about 64, a standing
// its reasons and the instants of its refusals.
func stateBytes(fields []store.Field) (bytes int) {
	for _, f := range fields {
		switch f.Name {
		case "entries":
			bytes += 16 * int(f.Value)
		case "holders":
			bytes += 48 * int(f.Value)
		case "holds":
			bytes += 64 * int(f.Value)
		case "bytes":
			bytes += 8 + int(f.Value)
		case "refusals":
			bytes += 8 + 8*int(min(f.Value, maxInstants))
		default:
			bytes += 8 + len(f.Text)
		}
	}
	return bytes
}

func parseSamples(word []byte) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, command.ErrNotAnInteger
	case n < 0:
		return 0, command.ErrSyntax
	}
	return n, nil
}

var memoryDoctor = command.Command{
	Name: "memory|doctor", Group: "server", Category: "none", Since: "4.0.0", Complexity: "O(1)",
	Tips:    []string{"nondeterministic_output", command.AllShards, "response_policy:special"},
	Summary: "Accepted for compatibility: memory problems are not diagnosed.",
	Reply:   "A text that says that there is nothing to report.",
	Run: func(c *command.Call) error {
		c.Out.Verbatim("txt", "Hi Sam, I can't find any memory issue in your instance. I can only account for what occurs on this base.\n")
		return nil
	},
}

var memoryPurge = command.Command{
	Name: "memory|purge", Group: "server", Category: "none", Since: "4.0.0",
	Complexity: "O(N) in the memory in use", Cost: command.Unbounded,
	Tips:    []string{command.AllShards, "response_policy:all_succeeded"},
	Summary: "Returns unused memory to the system.", Reply: "OK.",
	Run: func(c *command.Call) error {
		debug.FreeOSMemory()
		c.Out.Status("OK")
		return nil
	},
}

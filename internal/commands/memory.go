package commands

import (
	"runtime/debug"

	"cellserver/internal/command"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// MEMORY: what the server takes, and what a key takes.

var memory = command.Command{
	Name: "memory", Group: "server", Category: "none", Since: "4.0.0",
	Complexity: "Depends on the subcommand.", Min: 2, Summary: "Commands about memory.",
	AnyMore: true,
	Subs: []*command.Command{&memoryDoctor, &memoryPurge, &memoryStats, &memoryUsage,
		command.HelpOf("memory", "4.0.0")},
}

var memoryUsage = command.Command{
	Name: "memory|usage", Group: "server", Category: "none", Since: "4.0.0", Complexity: "O(1)",
	Flags: command.ReadOnly, Traits: command.ValueSized,
	Summary: "Estimates the memory that a key takes.", KeyAccess: "RO",
	Args:  []command.Arg{command.Key("key"), command.Int("count").By(parseSamples).Or(5).After("SAMPLES").Again()},
	Reply: "The bytes of its record, its index entry and its value; nil if there is no such key.",
	Run: func(c *command.Call) error {
		key := c.Key()
		e, fields, err := c.View.Inspect(c.Context, key)
		if err != nil {
			return err
		}
		if e.Kind == store.None {
			c.Out.Null()
			return nil
		}
		c.Out.Int(int64(recordBytes + len(key) + stateBytes(fields)))
		return nil
	},
}

// recordBytes is what a key takes beside its name and what it holds: the head of its record, the
// length, a place in the index that is two thirds full.
const recordBytes = 13 + 8

// stateBytes is about what a state takes, of which these are the fields: a value its length and
// that, the entries of a log are 16 bytes each, a lease some 48.
func stateBytes(fields []store.Field) (bytes int) {
	for _, f := range fields {
		switch f.Name {
		case "entries":
			bytes += 16 * int(f.Value)
		case "holders":
			bytes += 48 * int(f.Value)
		case "bytes":
			bytes += 8 + int(f.Value)
		default:
			bytes += 8
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

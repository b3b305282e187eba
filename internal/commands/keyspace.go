package commands

import (
	"context"
	"runtime"
	"strconv"
	"strings"

	"cellserver/internal/store"
)

// Commands on a whole database.

var dbSize = Command{
	Name: "dbsize", Group: "server", Category: "keyspace", Since: "1.0.0", Complexity: "O(1)", Flags: ReadOnly | Fast,
	Summary: "Counts the keys of the database.", Tips: []string{allShards, "response_policy:agg_sum"},
	Reply: "The number of keys; some that expired a moment ago may be among them.",
	Run: func(c *Call) error {
		n, err := c.View.Size(c.Context)
		c.Out.Int(int64(n))
		return err
	},
}

// flushMode is there for those who send it: either way takes no time that depends on what is stored.
var flushMode = OneOf("mode", "ASYNC", "SYNC")

var flushDB = Command{
	Name: "flushdb", Group: "server", Category: "keyspace", Since: "1.0.0", Complexity: "O(1)", Flags: Write | Dangerous,
	Summary: "Removes all keys of the database.", Tips: []string{allShards, "response_policy:all_succeeded"},
	Args: []Arg{flushMode}, Reply: "OK.",
	Run: func(c *Call) error {
		c.Out.Status("OK")
		return c.View.Flush(c.Context)
	},
}

var flushAll = Command{
	Name: "flushall", Group: "server", Category: "keyspace", Since: "1.0.0", Complexity: "O(1)", Flags: Write | Dangerous,
	Summary: "Removes all keys of all databases.", Tips: []string{allShards, "response_policy:all_succeeded"},
	Args: []Arg{flushMode}, Reply: "OK.",
	Run: func(c *Call) error {
		c.Out.Status("OK")
		return c.View.FlushAll(c.Context)
	},
}

var scan = Command{
	Name: "scan", Group: "generic", Since: "2.8.0", Flags: ReadOnly | Slow, // because of MATCH, on keys of any length
	Complexity: "O(count) for a call, O(N) for a whole round",
	Summary:    "Goes through the keys of the database, a piece at a time.",
	Tips:       []string{"nondeterministic_output", "request_policy:special"},
	Args: []Arg{Int("cursor").By(parseCursor), Pattern("pattern").After("MATCH").Again(),
		Int("count").Or(10).After("COUNT").By(parseCount).Again(), Word("type").After("TYPE").Again()},
	Reply: `Two elements: the cursor for the next call, 0 after the last; the keys of this piece. A key that is there from the
first call to the last is shown exactly once.`,
	Run: func(c *Call) error {
		cursor := uint64(c.Int())
		match := filter{pattern: c.Word()}
		count := int(min(c.Int(), maxScanCount))
		match.kind = c.Word()
		var found keyList
		next, err := c.View.Scan(c.Context, cursor, count, found.visit)
		if err != nil {
			return err
		}
		if err := found.keep(c.Context, match); err != nil {
			return err
		}
		c.Out.Array(2)
		c.Out.BulkString(strconv.FormatUint(next, 10))
		found.write(c)
		return nil
	},
}

// maxScanCount bounds the keys of one SCAN, whatever COUNT says: a COUNT is a hint, and a client must not make others wait.
// A thousand ordinary keys take about 0.1 ms.
const maxScanCount = 1000

// parseCursor takes what Redis's strtoul takes: a sign wraps, nothing is 0.
func parseCursor(word []byte) (int64, error) {
	const errCursor refusal = "ERR invalid cursor"
	digits, negative := word, false
	if len(word) > 0 && (word[0] == '-' || word[0] == '+') {
		digits, negative = word[1:], word[0] == '-'
	}
	if len(word) == 0 {
		return 0, nil
	}
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		return 0, errCursor
	}
	if negative {
		n = -n
	}
	return int64(n), nil
}

func parseCount(word []byte) (int64, error) {
	count := Int("count")
	n, err := count.integer(word, false)
	if err == nil && n < 1 {
		err = errSyntax
	}
	return n, err
}

// filter says which keys are asked for; a nil part asks for all.
type filter struct{ pattern, kind []byte }

func (f filter) passes(key []byte, k store.Kind) bool {
	return (f.kind == nil || strings.EqualFold(typeName(k), string(f.kind))) && (f.pattern == nil || glob(f.pattern, key, false))
}

// keyList collects keys end to end: one piece of memory for all of them.
type keyList struct {
	bytes []byte
	ends  []int
	kinds []store.Kind // of those that no filter has seen yet
}

// visit adds a key. It is called under a lock, so it does nothing else: filters come later.
func (l *keyList) visit(key []byte, e store.Entry) {
	l.bytes = append(l.bytes, key...)
	l.ends = append(l.ends, len(l.bytes))
	l.kinds = append(l.kinds, e.Kind)
}

// keep drops the keys that do not pass, of those that were visited since the last keep. To match one long key may take a tenth
// of a second, so it asks at each whether the client is still there.
func (l *keyList) keep(ctx context.Context, f filter) error {
	old := len(l.ends) - len(l.kinds)
	start := 0
	if old > 0 {
		start = l.ends[old-1]
	}
	to, kept := start, old
	for i, kind := range l.kinds {
		if ctx.Err() != nil {
			return errStopped
		}
		end := l.ends[old+i]
		if key := l.bytes[start:end]; f.passes(key, kind) {
			to += copy(l.bytes[to:], key)
			l.ends[kept] = to
			kept++
		}
		start = end
	}
	l.bytes, l.ends, l.kinds = l.bytes[:to], l.ends[:kept], l.kinds[:0]
	return nil
}

func (l *keyList) write(c *Call) {
	c.Out.Array(len(l.ends))
	start := 0
	for _, end := range l.ends {
		c.Out.Bulk(l.bytes[start:end])
		start = end
	}
}

// Pattern is a glob-style pattern. Its length is bounded, because the time to match grows with it and with the key's.
func Pattern(name string) Arg { return Word(name).Longest(1024) }

var keys = Command{
	Name: "keys", Group: "generic", Since: "1.0.0", Complexity: "O(N) in the number of keys", Flags: ReadOnly | Dangerous | Slow,
	Summary: "Returns the keys that match a pattern.", Tips: []string{allShards, "nondeterministic_output_order"},
	Args:  []Arg{Pattern("pattern")},
	Reply: "The keys, in no order. Each was there at some time during the call.",
	Run: func(c *Call) error {
		var found keyList
		match := filter{pattern: c.Word()}
		for cursor, more := uint64(0), true; more; more = cursor != 0 {
			var err error
			if cursor, err = c.View.Scan(c.Context, cursor, maxScanCount, found.visit); err != nil {
				return err
			}
			if err := found.keep(c.Context, match); err != nil {
				return err
			}
			runtime.Gosched() // event loops first
		}
		found.write(c)
		return nil
	},
}

var randomKey = Command{
	Name: "randomkey", Group: "generic", Since: "1.0.0", Complexity: "O(1), O(N) if most keys have just expired",
	Flags: ReadOnly | Slow, Summary: "Returns some key of the database.",
	Tips:  []string{allShards, "nondeterministic_output"},
	Reply: "A key, or nil if there is none.",
	Run: func(c *Call) error {
		key, ok, err := c.View.Random(c.Context, nil)
		if err != nil {
			return err
		}
		if !ok {
			c.Out.Null()
			return nil
		}
		c.Out.Bulk(key)
		return nil
	},
}

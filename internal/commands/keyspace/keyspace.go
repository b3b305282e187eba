// Package keyspace is Redis's commands on keys and databases, whatever the keys hold.
package keyspace

import (
	"context"
	"strconv"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/match"
	"cellserver/internal/store"
)

// Family is the commands on keys and databases, whatever they hold. Others want to know what
// becomes of whole databases.
type Family struct {
	// Every key of a database has gone or changed, by a client; called when none is locked.
	OnFlush func(by int64)
	OnSwap  func(c *command.Call, a, b int) // two databases are to change their numbers; called with every key locked
}

// Commands lists the family in reading order.
func (k *Family) Commands() []*command.Command {
	return []*command.Command{
		&exists, &del, &unlink, &touch, &keyType, &rename, &renameNX, &copyKey, &move,
		&expire, &pExpire, &expireAt, &pExpireAt, &persist, &ttl, &pttl, &expireTime, &pExpireTime, &object,
		&keys, &scan, &randomKey, &dbSize, k.flushDB(), k.flushAll(), k.swapDB(),
	}
}

// Commands on a whole database.

// dbSizeWork is what it counts of a turn to lock every shard, in bytes that could be moved
// meanwhile.
const dbSizeWork = 16 * command.BytesPerUnit

var dbSize = command.Command{
	Name: "dbsize", Group: "server", Category: "keyspace", Since: "1.0.0", Complexity: "O(1)",
	Flags: command.ReadOnly | command.Fast, Cost: command.Constant, Traits: command.AnyKey,
	Effort:  &command.Effort{Fixed: func([][]byte) int { return dbSizeWork }},
	Summary: "Counts the keys of the database.",
	Tips:    []string{command.AllShards, "response_policy:agg_sum"},
	Reply:   "The number of keys; may include keys that have just expired.",
	Run: func(c *command.Call) error {
		c.Work += dbSizeWork
		n, err := c.View.Size(c.Context)
		c.Out.Int(int64(n))
		return err
	},
}

// flushMode is there for those who send it: either way takes no time that depends on what is
// stored.
var flushMode = command.OneOf("mode", "ASYNC", "SYNC")

func (k *Family) flushDB() *command.Command {
	return k.flushing(command.Command{Name: "flushdb", Summary: "Removes all keys of the database."},
		store.View.Flush)
}

func (k *Family) flushAll() *command.Command {
	return k.flushing(command.Command{Name: "flushall", Summary: "Removes all keys of all databases."},
		store.View.FlushAll)
}

// flushing completes the row of a command that removes all keys.
func (k *Family) flushing(row command.Command, flush func(store.View, context.Context) error) *command.Command {
	row.Group, row.Category, row.Since, row.Complexity = "server", "keyspace", "1.0.0", "O(1)"
	row.Flags, row.Traits = command.Write|command.Dangerous, command.AnyKey
	row.Tips = []string{command.AllShards, "response_policy:all_succeeded"}
	row.Args, row.Reply = []command.Arg{flushMode}, "OK."
	row.Run = func(c *command.Call) error {
		c.Out.Status("OK")
		defer k.OnFlush(c.View.Caller())
		return flush(c.View, c.Context)
	}
	return &row
}

var scan = command.Command{
	Name: "scan", Group: "generic", Since: "2.8.0", Flags: command.ReadOnly, Cost: command.Unbounded,
	Traits:     command.AnyKey, // because of MATCH, on keys of any length
	Complexity: "O(count) for a call, O(N) for a whole round",
	Summary:    "Iterates over the keys of the database.",
	Tips:       []string{"nondeterministic_output", "request_policy:special"},
	Args: []command.Arg{command.Int("cursor").By(parseCursor), command.Pattern("pattern").After("MATCH").Again(),
		command.Int("count").Or(10).After("COUNT").By(parseCount).Again(), command.Word("type").After("TYPE").Again()},
	Reply: `Two elements: the cursor for the next call, 0 after the last; and some keys. A key that exists from the
first call to the last is returned exactly once.`,
	Run: func(c *command.Call) error {
		search := search{cursor: uint64(c.Int())}
		search.match.pattern = c.Word()
		count := int(min(c.Int(), maxScanCount))
		search.match.kind = c.Word()
		for more := true; more && count > 0; more = search.cursor != 0 {
			if err := search.next(c, min(count, keysPerPiece)); err != nil {
				return err
			}
			count -= keysPerPiece
		}
		c.Out.Array(2)
		c.Out.BulkString(strconv.FormatUint(search.cursor, 10))
		search.write(c)
		return nil
	},
}

// maxScanCount bounds the keys of one SCAN, whatever COUNT says: a COUNT is a hint, and a client
// must not make others wait. A thousand ordinary keys take about 0.1 ms.
const maxScanCount = 1000

// parseCursor takes what Redis's strtoul takes: a sign wraps, nothing is 0.
func parseCursor(word []byte) (int64, error) {
	const errCursor command.Refusal = "ERR invalid cursor"
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
	count := command.Int("count")
	n, err := count.Integer(word, false)
	if err == nil && n < 1 {
		err = command.ErrSyntax
	}
	return n, err
}

// filter says which keys are asked for; a nil part asks for all.
type filter struct{ pattern, kind []byte }

func (f filter) matches(key []byte, k store.Kind) bool {
	return (f.kind == nil || strings.EqualFold(typeName(k), string(f.kind))) &&
		(f.pattern == nil || command.Glob(f.pattern, key, false))
}

// matchesIn is passes; in a transaction, whose keys are locked, in a bounded number of steps.
func (f filter) matchesIn(c *command.Call, key []byte, k store.Kind) (ok bool, err error) {
	if !c.InTransaction || f.pattern == nil {
		return f.matches(key, k), nil
	}
	if ok, c.PatternSteps = match.GlobWithin(f.pattern, key, false, c.PatternSteps); c.PatternSteps == 0 {
		return false, command.ErrTooManySteps
	}
	return ok && filter{kind: f.kind}.matches(key, k), nil
}

// search goes through a database's keys for those that pass.
type search struct {
	cursor     uint64
	match      filter
	piece      keyList   // what the store has shown last
	sinceYield int       // bytes of keys, since it gave way
	found      []keyList // a piece each, so that what was found is never moved
}

// keysPerPiece is how many keys are looked at in one go. The store shows them under its locks, where
// nothing may take long, and to find room for a long list does; so they are few, and those that
// pass are added to the list afterwards.
const keysPerPiece = 128

// bytesPerYield is after how many bytes of keys a search gives way to others: about 1000 ordinary
// keys, a third of a millisecond. Fewer would make it wait more than work where every core is busy.
// (To match one key of 64 KiB may take a tenth of a second.)
const (
	bytesPerYield = 64 << 10
	keyOverhead   = 48 // bytes that a key counts beside its own
)

// next looks at about so many keys more. To match one long key may take a tenth of a second, so it
// asks at each whether the client is still there.
func (s *search) next(c *command.Call, count int) (err error) {
	s.piece.reset()
	if s.cursor, err = c.View.Scan(c.Context, s.cursor, count, s.piece.visit); err != nil {
		return err
	}
	for i, kind := range s.piece.kinds {
		if c.Context.Err() != nil {
			return command.ErrStopped
		}
		if s.sinceYield += keyOverhead + len(s.piece.key(i)); s.sinceYield > bytesPerYield {
			s.sinceYield = 0
			c.Yield()
		}
		key := s.piece.key(i)
		passes, err := s.match.matchesIn(c, key, kind)
		if err == nil && passes {
			err = s.find(c, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *search) find(c *command.Call, key []byte) error {
	const full = 256 << 10 // bytes
	last := len(s.found) - 1
	if last < 0 || len(s.found[last].bytes) >= full {
		if last >= 0 {
			if err := c.Reserve(s.found[last].size()); err != nil {
				return err
			}
		}
		s.found = append(s.found, keyList{})
		last++
	}
	s.found[last].add(key)
	return nil
}

// write writes what was found, and forgets it on the way.
func (s *search) write(c *command.Call) {
	count := 0
	for i := range s.found {
		count += len(s.found[i].ends)
	}
	c.Out.Array(count)
	for i := range s.found {
		for n := range s.found[i].ends {
			c.Out.Bulk(s.found[i].key(n))
			c.Out.Break()
		}
		s.found[i] = keyList{}
		c.Yield() // event loops first
	}
}

// keyList collects keys end to end: one piece of memory for all of them.
type keyList struct {
	bytes []byte
	ends  []int
	kinds []store.Kind // of those that were visited
}

func (l *keyList) add(key []byte) {
	l.bytes = append(l.bytes, key...)
	l.ends = append(l.ends, len(l.bytes))
}

// size is the memory that the list takes.
func (l *keyList) size() int { return cap(l.bytes) + 8*cap(l.ends) }

// visit adds a key of the store's.
func (l *keyList) visit(key []byte, e store.Entry) {
	l.add(key)
	l.kinds = append(l.kinds, e.Kind)
}

func (l *keyList) reset() { l.bytes, l.ends, l.kinds = l.bytes[:0], l.ends[:0], l.kinds[:0] }

func (l *keyList) key(i int) []byte {
	start := 0
	if i > 0 {
		start = l.ends[i-1]
	}
	return l.bytes[start:l.ends[i]]
}

var keys = command.Command{
	Name: "keys", Group: "generic", Since: "1.0.0", Complexity: "O(N) in the number of keys",
	Flags: command.ReadOnly | command.Dangerous, Cost: command.Unbounded,
	Traits: command.AnyKey | command.WalksKeys, Summary: "Returns the keys that match a pattern.",
	Tips:  []string{command.AllShards, "nondeterministic_output_order"},
	Args:  []command.Arg{command.Pattern("pattern")},
	Reply: "The keys, in no order. Each existed at some time during the call.",
	Run: func(c *command.Call) error {
		search := search{match: filter{pattern: c.Word()}}
		for more := true; more; more = search.cursor != 0 {
			if err := search.next(c, keysPerPiece); err != nil {
				return err
			}
		}
		search.write(c)
		return nil
	},
}

var randomKey = command.Command{
	Name: "randomkey", Group: "generic", Since: "1.0.0",
	Complexity: "O(1), O(N) if most keys have just expired", Flags: command.ReadOnly,
	Cost: command.Unbounded, Traits: command.AnyKey,
	Summary: "Returns a random key of the database.",
	Tips:    []string{command.AllShards, "nondeterministic_output"},
	Reply:   "A key, or nil if there is none.",
	Run: func(c *command.Call) error {
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

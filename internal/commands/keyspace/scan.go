package keyspace

import (
	"strconv"
	"strings"

	"cellserver/internal/command"
	"cellserver/internal/limit"
	"cellserver/internal/match"
	"cellserver/internal/store"
)

var scan = command.Command{
	Name: "scan", Group: "generic", Since: "2.8.0", Flags: command.ReadOnly,
	Traits:     command.AnyKey,
	Cost:       command.Unbounded, // because MATCH may take long on long keys
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

// maxScanCount bounds the keys that one SCAN reads, so that other clients do not wait for long: COUNT
// is a hint. A thousand ordinary keys take about 0.1 ms.
const maxScanCount = 1000

// parseCursor accepts what strtoul accepts in Redis: a negative number wraps, and an empty word is 0.
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

// filter selects keys by a pattern and by the name of a type; nil selects all.
type filter struct{ pattern, kind []byte }

func (f filter) matches(key []byte, k limit.Kind) bool {
	return (f.kind == nil || strings.EqualFold(typeName(k), string(f.kind))) &&
		(f.pattern == nil || command.Glob(f.pattern, key, false))
}

// matchesIn is like matches, but bounds the steps of matching in a transaction, because its keys
// are locked.
func (f filter) matchesIn(c *command.Call, key []byte, k limit.Kind) (ok bool, err error) {
	if !c.InTransaction || f.pattern == nil {
		return f.matches(key, k), nil
	}
	if ok, c.PatternSteps = match.GlobWithin(f.pattern, key, false, c.PatternSteps); c.PatternSteps == 0 {
		return false, command.ErrTooManySteps
	}
	return ok && filter{kind: f.kind}.matches(key, k), nil
}

// search collects the keys of a database that match a filter.
type search struct {
	cursor     uint64
	match      filter
	piece      keyList   // the keys that the store has returned last
	sinceYield int       // bytes of keys that were matched since the call yielded
	found      []keyList // several lists, so that a full list is not copied
}

// keysPerPiece is the number of keys that a search requests from the store at once. The store
// visits them with its locks held, and growing a long list would hold them too long. So a piece is
// short, and its matching keys are added to the list of results afterwards.
const keysPerPiece = 128

// bytesPerYield is the number of bytes of keys after which a search yields: about 1000 ordinary
// keys, which take a third of a millisecond. With fewer, a search would wait longer than it works
// while every core is busy. (Matching one key of 64 KiB may take a tenth of a second.)
const (
	bytesPerYield = 64 << 10
	keyOverhead   = 48 // bytes that are counted for each key in addition to its length
)

// next reads and matches about count more keys. Matching a long key may take a tenth of a second,
// so next checks before each key whether the client is still connected.
func (s *search) next(c *command.Call, count int) (err error) {
	s.piece.reset()
	if err := s.read(c, count); err != nil {
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

// read reads about count more keys.
func (s *search) read(c *command.Call, count int) (err error) {
	if view, ok := c.View.(store.PatternScanner); ok {
		s.cursor, err = view.ScanMatching(c.Context, s.cursor, s.match.pattern, s.match.kind != nil, count,
			s.piece.visit)
		return err
	}
	s.cursor, err = c.View.Scan(c.Context, s.cursor, count, s.piece.visit)
	return err
}

// find adds a key that matches.
func (s *search) find(c *command.Call, key []byte) error {
	const full = 256 << 10 // bytes of a list, after which the next one begins
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

// write writes the keys that were found, and frees each list when it is written.
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
		c.Yield() // to the event loops
	}
}

// keyList is a list of keys in one piece of memory, end to end.
type keyList struct {
	bytes []byte
	ends  []int
	kinds []limit.Kind // of the keys that visit has added
}

func (l *keyList) add(key []byte) {
	l.bytes = append(l.bytes, key...)
	l.ends = append(l.ends, len(l.bytes))
}

// size returns the memory that the list takes, in bytes.
func (l *keyList) size() int { return cap(l.bytes) + 8*cap(l.ends) }

// visit adds a key that the store visits.
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

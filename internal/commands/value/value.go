// Package value implements Redis's commands on strings and counters. A CL.THROTTLE key reads as in
// redis-cell: as a string with the digits of its theoretical arrival time (TAT).
package value

import (
	"strconv"

	"cellserver/internal/command"
	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// Commands returns the rows of the family, in reading order.
func Commands() []*command.Command {
	return []*command.Command{
		&incr, &incrBy, &decr, &decrBy, &incrByFloat, &incrEX,
		&get, &set, &setNX, &setEX, &pSetEX, &getSet, &getDel, &getEX, &mGet, &mSet, &mSetNX, &mSetEX,
		&digestOf, &delEX,
		&appendTo, &strLen, &getRange, &setRange, &subStr,
	}
}

// asValue returns a word as the store keeps it: integers in Redis's notation as integers.
func asValue(word []byte) store.Value {
	if n, ok := resp.ParseInt(word); ok {
		return store.Value{Integer: n, IsInteger: true}
	}
	return store.Value{Bytes: word}
}

// errMarked refuses values that RESTORE and a start of the server would read as limiters.
const errMarked command.Refusal = `ERR a value must not begin with "\x00cl", which marks the state of a limiter: use RESTORE`

// checkMark refuses a value that begins with the mark of a limiter's state.
func checkMark(value []byte) error {
	if len(value) > 0 && value[0] == 0 && form.Marked(value) {
		return errMarked
	}
	return nil
}

// checkMarks is checkMark for the values in pairs of a key and a value.
func checkMarks(pairs [][]byte) error {
	for i := 1; i < len(pairs); i += 2 {
		if err := checkMark(pairs[i]); err != nil {
			return err
		}
	}
	return nil
}

// read returns the string at a key, nil if there is no such key. It is in memory of the call, and valid
// until the call reads again.
func read(c *command.Call, key []byte) (value []byte, err error) {
	var e store.Entry
	c.Value, e, err = c.View.Read(c.Context, key, c.Value[:0])
	if err != nil {
		return nil, err
	}
	c.Work += len(c.Value)
	value, err = asString(c, e, c.Value)
	if cap(c.Value) > maxKeptValue {
		c.Value = nil
	}
	return value, err
}

// readPart is like read for a part of the string. It also returns the length of the whole string.
func readPart(c *command.Call, key []byte, start, end int64) (part []byte, length int, err error) {
	part, length, e, err := c.View.ReadPart(c.Context, key, c.Value[:0], start, end)
	if err != nil {
		return nil, 0, err
	}
	if c.Value = part; cap(part) > maxKeptValue {
		c.Value = nil
	}
	c.Work += len(part)
	part, err = asString(c, e, part)
	if e.Kind == limit.Throttle {
		length = len(part)
		part = store.Part(part, start, end)
	}
	return part, length, err
}

// maxKeptValue bounds the memory for a value that a session keeps between calls, in bytes.
const maxKeptValue = 4 << 10

// asString returns the string that a client sees at a key, given the value if there is one, and
// counts the key as read.
func asString(c *command.Call, e store.Entry, value []byte) ([]byte, error) {
	c.CountLookup(e.Kind != limit.None)
	return text(c, e, value)
}

// text is like asString, but does not count the key as read.
func text(c *command.Call, e store.Entry, value []byte) ([]byte, error) {
	switch {
	case e.Kind == limit.None:
		return nil, nil
	case e.Kind.IsValue() && value == nil:
		return []byte{}, nil // an empty string; nil is for no such key
	case e.Kind.IsValue():
		return value, nil
	case e.Kind == limit.Throttle:
		return appendInt(c.Unix(e.Expires)), nil
	}
	return nil, command.ErrWrongType
}

// editValue is like View.Edit, but refuses keys of other kinds than values.
func editValue(c *command.Call, key []byte, edit func(e store.Entry, value []byte) (store.Change, error)) error {
	counted := c.Counts()
	return c.View.Edit(c.Context, key, func(e store.Entry, value []byte) (store.Change, error) {
		c.ResetCounts(counted)
		if e.Kind != limit.None && !e.Kind.IsValue() {
			return store.Change{}, command.ErrWrongType
		}
		change, err := edit(e, value)
		c.Work += 2 * len(change.Value.Bytes) // copied here, and again into the store
		if change.Operation == store.Patch {
			c.Work += max(change.Offset-len(value), 0)
		}
		return change, err
	})
}

// put returns the change that writes a value. It keeps the expiry that a value had.
func put(value []byte, e store.Entry) store.Change {
	c := store.Change{Operation: store.Put, Value: asValue(value), Expires: store.Never}
	if e.Kind.IsValue() {
		c.Expires = e.Expires
	}
	return c
}

// patch returns the change that writes bytes over a part of a value, or after its end. A short
// value is written as a whole, because it may have become an integer.
func patch(old []byte, at int, part []byte, e store.Entry) (store.Change, error) {
	const few = 64
	length := max(len(old), at+len(part))
	if len(old) > few && length > few {
		change := store.Change{Operation: store.Patch, Offset: at, Value: store.Value{Bytes: part}, Expires: e.Expires}
		if at >= few {
			return change, nil
		}
		return change, checkMark(overlay(old, at, part, few))
	}
	whole := overlay(old, at, part, length)
	return put(whole, e), checkMark(whole)
}

// overlay returns the first length bytes of a value, or zeros after its end, with a part
// overwritten.
func overlay(old []byte, at int, part []byte, length int) []byte {
	whole := make([]byte, length)
	copy(whole, old)
	if at < length {
		copy(whole[at:], part)
	}
	return whole
}

// lifetime holds the arguments of a call's options EX, PX, EXAT and PXAT; nil for options that are
// missing.
type lifetime struct{ ex, px, exat, pxat []byte }

// count returns how many of the options are given.
func (l lifetime) count() int {
	n := 0
	for _, word := range [][]byte{l.ex, l.px, l.exat, l.pxat} {
		if word != nil {
			n++
		}
	}
	return n
}

// instant returns the instant at which a value expires, store.Never without such an option. As in
// Redis, a time must be above 0.
func instant(c *command.Call, l lifetime) (int64, error) {
	var err error
	expires := store.Never
	for _, o := range []struct {
		word     []byte
		unit     int64 // milliseconds
		relative bool
	}{{l.ex, 1000, true}, {l.px, 1, true}, {l.exat, 1000, false}, {l.pxat, 1, false}} {
		if o.word != nil {
			expires, err = c.Expiry(o.word, o.unit, o.relative, true)
		}
	}
	return expires, err
}

func appendInt(n int64) []byte { return strconv.AppendInt(nil, n, 10) }

// expiryEvent returns the keyspace event of the option that changes the expiry, or nothing if there is
// none.
func expiryEvent(c *command.Call) string {
	switch {
	case c.HasOption("EX", "PX", "EXAT", "PXAT"):
		return "expire"
	case c.HasOption("PERSIST"):
		return "persist"
	}
	return ""
}

package transfer

import (
	"math"
	"strconv"

	"cellserver/internal/form"
	"cellserver/internal/hold"
	"cellserver/internal/limit"
	"cellserver/internal/match"
	"cellserver/internal/rdb"
	"cellserver/internal/resp"
)

// item is a key to be written. Its slices are valid until the next item.
type item struct {
	database int
	key      []byte
	value    []byte      // the string, or the digits of an integer
	state    *form.State // a limiter's state, in Unix time; nil for a string
	holds    *hold.Book  // nil, unless the item is the open holds of the key instead of its content
	expires  int64       // Unix milliseconds, or rdb.Never
}

// reader converts records to items.
type reader struct {
	match      pattern // the keys to be copied
	asThrottle pattern // the keys whose integers are TATs; "" for none
	state      form.State
	digits     [20]byte
}

// read returns the item of a record. If cellserver does not support the record's type, why names
// the type.
func (r *reader) read(rec *rdb.Record) (it item, why string) {
	switch {
	case rec.Type == rdb.Field:
		it = item{database: rec.Database, key: rec.Key, holds: new(hold.Book), expires: rec.Expires}
		if it.holds.Read(rec.Bytes) != nil {
			return it, "key whose open holds cannot be read"
		}
		return it, ""
	case rec.Type == rdb.Module:
		return it, "value of the module " + rec.Module
	case rec.Type != rdb.String:
		return it, rec.Type.String()
	}
	it = item{database: rec.Database, key: rec.Key, value: rec.Bytes, expires: rec.Expires}
	if rec.IsInteger {
		it.value = strconv.AppendInt(r.digits[:0], rec.Integer, 10)
	}
	if form.Marked(it.value) {
		if err := r.state.Read(it.value, 0); err != nil {
			return it, "limiter whose state cannot be read: " + err.Error()
		}
		it.setState(&r.state)
	} else if tat, ok := r.tat(&it); ok {
		r.state = form.State{Kind: limit.Throttle, TAT: tat}
		it.setState(&r.state)
	}
	return it, ""
}

func (it *item) setState(state *form.State) {
	it.state, it.value, it.expires = state, nil, form.Milliseconds(state.Expires())
}

// tat returns the TAT of a string that redis-cell or redis_rate has written.
func (r *reader) tat(it *item) (tat int64, ok bool) {
	tat, ok = form.ParseTAT(it.value)
	if ok && (isTAT(tat, it.expires) || r.asThrottle != "" && r.asThrottle.has(it.key)) {
		return tat, true
	}
	tat, ok = parseRateTAT(it.value)
	return tat, ok && isTAT(tat, it.expires)
}

// parseRateTAT parses a value of redis_rate, a library for Go: the TAT in seconds since the beginning of
// 2017, in decimal digits, usually with a fraction. It rounds up to a nanosecond.
func parseRateTAT(value []byte) (tat int64, ok bool) {
	const beginning, end = 1483228800, 7e9 // in Unix seconds, and in seconds after that
	if len(value) > 32 {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(string(value), 64)
	if err != nil || !(seconds > 0 && seconds < end) {
		return 0, false
	}
	return beginning*1e9 + int64(math.Ceil(seconds*1e9)), true
}

// isTAT reports whether a TAT, in nanoseconds, is the expiry of its key, so that the key belongs to a
// limiter. A difference of 2 seconds is tolerated: redis-cell sets the expiry relative to a time that
// it has read a little earlier, and versions before 0.2 set it in whole seconds, as redis_rate does.
func isTAT(tat, expires int64) bool {
	const tolerance = 2000 // milliseconds
	difference := form.Milliseconds(tat) - expires
	return expires != rdb.Never && -tolerance <= difference && difference <= tolerance
}

// pattern is a glob-style pattern for names of keys. The empty pattern matches all names.
type pattern string

func (p pattern) has(key []byte) bool { return p == "" || match.Glob([]byte(p), key, false) }

// payload returns the payload of RESTORE for the item.
func (it *item) payload() []byte {
	if n, ok := resp.ParseInt(it.value); ok {
		return rdb.AppendIntegerDump(nil, n)
	}
	return rdb.AppendDump(nil, it.appendContent(nil))
}

// appendContent appends the value of the key, or the form of its limiter.
func (it *item) appendContent(dst []byte) []byte {
	if it.state != nil {
		return form.Append(dst, it.state)
	}
	return append(dst, it.value...)
}

package transfer

import (
	"strconv"

	"cellserver/internal/form"
	"cellserver/internal/match"
	"cellserver/internal/rdb"
	"cellserver/internal/resp"
)

// item is a key to be written. Its slices are valid until the next item.
type item struct {
	database int
	key      []byte
	value    []byte      // of a string; the digits of an integer
	state    *form.State // of a limiter, in Unix time; otherwise nil
	expires  int64       // Unix milliseconds, or rdb.Never
}

// reader converts records to items.
type reader struct {
	asThrottle string // the pattern of keys whose integers are TATs; "" for none
	state      form.State
	digits     [20]byte
}

// read returns the item of a record. If cellserver does not support the type of the record, why
// names it.
func (r *reader) read(rec *rdb.Record) (it item, why string) {
	switch {
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
	} else if tat, ok := form.ParseTAT(it.value); ok && (isTAT(tat, rec.Expires) || r.isSelected(rec.Key)) {
		r.state = form.State{Kind: form.Throttle, TAT: tat}
		it.setState(&r.state)
	}
	return it, ""
}

func (it *item) setState(state *form.State) {
	it.state, it.value, it.expires = state, nil, form.Milliseconds(state.Expires())
}

// isTAT reports whether an integer was written by redis-cell: its value, in nanoseconds, is its
// expiry. A difference of 2 seconds is tolerated: redis-cell sets the expiry relative to a time
// that it has read a little earlier, and versions before 0.2 set it in whole seconds.
func isTAT(tat, expires int64) bool {
	const tolerance = 2000 // milliseconds
	difference := form.Milliseconds(tat) - expires
	return expires != rdb.Never && -tolerance <= difference && difference <= tolerance
}

// isSelected reports whether the user has declared integers at such keys as TATs.
func (r *reader) isSelected(key []byte) bool {
	return r.asThrottle != "" && match.Glob([]byte(r.asThrottle), key, false)
}

// payload returns the payload of RESTORE for the item.
func (it *item) payload() []byte {
	if n, ok := resp.ParseInt(it.value); ok {
		return rdb.AppendIntegerDump(nil, n)
	}
	return rdb.AppendDump(nil, it.appendContent(nil))
}

// appendContent appends what a string that stands for the key contains.
func (it *item) appendContent(dst []byte) []byte {
	if it.state != nil {
		return form.Append(dst, it.state)
	}
	return append(dst, it.value...)
}

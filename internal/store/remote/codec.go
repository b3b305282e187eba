package remote

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strconv"

	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/store"
)

// errMarked refuses values that would be taken for the state of a limiter.
var errMarked = &store.RefusedError{
	Reply: `ERR a value must not begin with "\x00cl", which marks the state of a limiter: use RESTORE`,
}

// errUnreadable refuses a value that begins with the mark of a form that this version does not know. The
// error names the mark.
func errUnreadable(err error) error {
	return &store.RefusedError{Reply: "ERR the key does not hold the state of a limiter that can be read: " + err.Error()}
}

// errConflict says that a transaction was not committed.
var errConflict = &store.RefusedError{
	Reply: "ERR nothing was changed: other processes changed the keys at each try",
}

// parseInteger parses a value that is the decimal form of an integer.
func parseInteger(value []byte) (n int64, ok bool) {
	if tat, ok := form.ParseTAT(value); ok {
		return tat, true
	}
	const longest = 20
	if len(value) == 0 || len(value) > longest || value[0] != '-' && value[0] != '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	var digits [longest]byte
	return n, err == nil && bytes.Equal(strconv.AppendInt(digits[:0], n, 10), value)
}

// readTAT returns the TAT of a throttle key; 0 if the key does not exist. Any integer is a TAT; a TAT
// of 0 or less has no effect.
func readTAT(value []byte, now int64) (int64, error) {
	if value == nil {
		return 0, nil
	}
	if n, ok := parseInteger(value); ok {
		return max(n, 0), nil
	}
	if !form.Marked(value) {
		return 0, store.ErrWrongKind
	}
	var state form.State
	switch err := state.Read(value, 0); {
	case err != nil:
		return 0, errUnreadable(err)
	case state.Kind == limit.Throttle:
		return state.TAT, nil
	case state.Expires() > now:
		return 0, store.ErrWrongKind
	}
	return 0, nil // the backend has not removed it yet
}

// expiryError is the largest difference, in nanoseconds, between the TAT of a throttle key and the
// expiry of the key, without the margin that a store adds. redis-cell sets it in milliseconds from the
// time at which it writes.
const expiryError = int64(1e9)

// margin is how long a key stays in the backend after the state of its limiter has ended, in
// nanoseconds.
type margin int64

// longestMargin is the margin of a process with the longest timeout that can be set.
const longestMargin = margin(60e9)

// after returns the expiry of a key whose limiter's state ends at an instant.
func (m margin) after(end int64) int64 {
	if end >= store.Never-int64(m) {
		return store.Never
	}
	return end + int64(m)
}

// looksLikeTAT reports whether an integer with an expiry is shown as a throttle key. A process with
// another margin may have written it.
func looksLikeTAT(n, expires int64) bool {
	return expires != store.Never && expires > n-expiryError && expires-expiryError < longestMargin.after(n)
}

// hasJustPassed reports whether an integer is the TAT of a throttle key that has ended, and that the
// backend has not removed yet.
func (m margin) hasJustPassed(n, now int64) bool { return n <= now && n > now-expiryError-int64(m) }

// appendState appends the value of a key that holds a state.
func appendState(dst []byte, state *form.State) []byte {
	if state.Kind == limit.Throttle {
		return form.AppendTAT(dst, state.TAT)
	}
	begin := len(dst)
	dst = form.Append(dst, state)
	form.SetVersion(dst[begin:], newVersion())
	return dst
}

// newVersion returns a version that no other write has.
func newVersion() uint64 { return rand.Uint64N(math.MaxUint64) + 1 }

// appendValue appends a value as the backend holds it.
func appendValue(dst []byte, v store.Value) []byte {
	if v.IsInteger {
		return strconv.AppendInt(dst, v.Integer, 10)
	}
	return append(dst, v.Bytes...)
}

// asValue returns bytes as a value of the store.
func asValue(value []byte) store.Value {
	if n, ok := parseInteger(value); ok {
		return store.Value{Integer: n, IsInteger: true}
	}
	return store.Value{Bytes: value}
}

// compared returns the Change.Compared of a value.
func compared(value []byte) int {
	if n := identity(value); n < len(value) {
		return n
	}
	return 0
}

// identity returns how many of the first bytes of a value identify it.
func identity(value []byte) int {
	if len(value) > holdsIdentity && bytes.HasPrefix(value, []byte(holdsMark)) {
		return holdsIdentity
	}
	return form.Identity(value)
}

// same reports whether a key holds what it held before.
func same(before, now []byte) bool {
	if before == nil || now == nil {
		return before == nil && now == nil
	}
	if n := identity(before); n < len(before) {
		return bytes.HasPrefix(now, before[:n])
	}
	return bytes.Equal(before, now)
}

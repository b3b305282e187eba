package command

import (
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// How instants and durations of the store are told to clients.

// RoundUp is n nanoseconds in whole units; quota.Never stays what it is.
func RoundUp(n, unit int64) int64 {
	if n <= 0 {
		return n
	}
	return (n-1)/unit + 1
}

// WholeUnits is n nanoseconds in whole seconds, or milliseconds. (To divide by a constant costs a
// third of dividing by a variable.)
func WholeUnits(n int64, ms bool) int64 {
	if ms {
		return RoundUp(n, 1e6)
	}
	return RoundUp(n, 1e9)
}

// Unix is an instant in Unix nanoseconds by the wall clock of this moment, held to what an int64
// can say.
func (c *Call) Unix(instant int64) int64 {
	offset := c.Server.Clock.Offset()
	if offset > 0 && instant > MaxInt-offset {
		return MaxInt
	}
	return instant + offset
}

// ExpiresIn is the milliseconds that a key has left, rounded up as Redis's are.
func (c *Call) ExpiresIn(e store.Entry) int64 { return RoundUp(e.Expires-c.View.Now(), 1e6) }

// InSeconds rounds milliseconds to the nearest second, as Redis's TTL does.
func InSeconds(ms int64) int64 { return ms/1000 + (ms%1000+500)/1000 }

// Expiry reads a time, and says which instant it is. A value's expiry is bounded by what Redis's
// milliseconds hold; beyond the year 2262, which is as far as our nanoseconds go, it is then.
func (c *Call) Expiry(word []byte, unit int64, relative, positive bool) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, ErrNotAnInteger
	case positive && n <= 0, n > MaxInt/unit, n < MinInt/unit:
		return 0, c.errExpiry()
	}
	n *= unit
	if relative {
		now := c.Unix(c.View.Now())
		if n > MaxInt-now/1e6 {
			return 0, c.errExpiry()
		}
		return after(c.View.Now()-now%1e6, n), nil // of a whole millisecond, so that two times compare as in Redis
	}
	return after(-c.Server.Clock.Offset(), n), nil
}

func (c *Call) errExpiry() error {
	return Refusal("ERR invalid expire time in '" + c.Row.Name + "' command")
}

// after is so many milliseconds after an instant: never Never, and held to what an int64 can say.
func after(instant, ms int64) int64 {
	const longest = MaxInt / 1_000_000
	switch {
	case ms > longest, ms > 0 && instant > MaxInt-1-ms*1_000_000:
		return store.Never - 1
	case ms < -longest, ms < 0 && instant < MinInt-ms*1_000_000:
		return 0
	}
	return instant + ms*1_000_000
}

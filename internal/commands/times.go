package commands

import (
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// How instants and durations of the store are told to clients.

// roundUp is n nanoseconds in whole units; quota.Never stays what it is.
func roundUp(n, unit int64) int64 {
	if n <= 0 {
		return n
	}
	return (n-1)/unit + 1
}

// wholeUnits is n nanoseconds in whole seconds, or milliseconds. (To divide by a constant costs a third of dividing by a variable.)
func wholeUnits(n int64, ms bool) int64 {
	if ms {
		return roundUp(n, 1e6)
	}
	return roundUp(n, 1e9)
}

// unix is an instant in Unix nanoseconds by the wall clock of this moment, held to what an int64 can say.
func (c *Call) unix(instant int64) int64 {
	offset := c.Server.Clock.Offset()
	if offset > 0 && instant > maxInt-offset {
		return maxInt
	}
	return instant + offset
}

// expiresIn is the milliseconds that a key has left, rounded up as Redis's are.
func (c *Call) expiresIn(e store.Entry) int64 { return roundUp(e.Expires-c.View.Now(), 1e6) }

// inSeconds rounds milliseconds to the nearest second, as Redis's TTL does.
func inSeconds(ms int64) int64 { return ms/1000 + (ms%1000+500)/1000 }

// expiry reads a time, and says which instant it is. A value's expiry is bounded by what Redis's milliseconds hold; beyond the
// year 2262, which is as far as our nanoseconds go, it is then.
func (c *Call) expiry(word []byte, unit int64, relative, positive bool) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, errNotAnInteger
	case positive && n <= 0, n > maxInt/unit, n < minInt/unit:
		return 0, c.errExpiry()
	}
	n *= unit
	if relative {
		now := c.unix(c.View.Now())
		if n > maxInt-now/1e6 {
			return 0, c.errExpiry()
		}
		return after(c.View.Now()-now%1e6, n), nil // of a whole millisecond, so that two times compare as in Redis
	}
	return after(-c.Server.Clock.Offset(), n), nil
}

func (c *Call) errExpiry() error {
	return refusal("ERR invalid expire time in '" + c.row.Name + "' command")
}

// after is so many milliseconds after an instant: never Never, and held to what an int64 can say.
func after(instant, ms int64) int64 {
	const longest = maxInt / 1_000_000
	switch {
	case ms > longest, ms > 0 && instant > maxInt-1-ms*1_000_000:
		return store.Never - 1
	case ms < -longest, ms < 0 && instant < minInt-ms*1_000_000:
		return 0
	}
	return instant + ms*1_000_000
}

package command

import (
	"cellserver/internal/resp"
	"cellserver/internal/store"
)

// The instants and durations of the store, as clients read and write them.

// RoundUp returns n in whole units, rounded up. A number that is not positive, such as quota.Never,
// is not changed.
func RoundUp(n, unit int64) int64 {
	if n <= 0 {
		return n
	}
	return (n-1)/unit + 1
}

// WholeUnits returns n nanoseconds in whole seconds, or in whole milliseconds, rounded up.
// (Dividing by a constant takes a third of the time of dividing by a variable.)
func WholeUnits(n int64, ms bool) int64 {
	if ms {
		return RoundUp(n, 1e6)
	}
	return RoundUp(n, 1e9)
}

// Now returns the present instant on the clock of the store, for what concerns no key.
func (c *Call) Now() int64 {
	if c.Server.Abilities&store.HasKeyClocks != 0 {
		return c.Server.Clock.Now()
	}
	return c.View.Now()
}

// Unix returns an instant of the store in Unix nanoseconds, by the wall clock of this moment. It is
// bounded by the largest int64.
func (c *Call) Unix(instant int64) int64 {
	offset := c.Server.Clock.Offset()
	if offset > 0 && instant > MaxInt-offset {
		return MaxInt
	}
	return instant + offset
}

// ExpiresIn returns the milliseconds until a key expires, rounded up as in Redis.
func (c *Call) ExpiresIn(e store.Entry) int64 { return RoundUp(e.Expires-c.View.Now(), 1e6) }

// InSeconds rounds milliseconds to the nearest second, as Redis's TTL does.
func InSeconds(ms int64) int64 { return ms/1000 + (ms%1000+500)/1000 }

// Expiry parses a time, in units of unit milliseconds, that counts from now if relative is set, and
// otherwise from 1970 on. It refuses a time that does not fit in Redis's 64 bits of milliseconds
// and, if positive is set, a time that is not above 0. The store's nanoseconds end in the year 2262:
// a later time becomes the last instant.
func (c *Call) Expiry(word []byte, unit int64, relative, positive bool) (int64, error) {
	n, ok := resp.ParseInt(word)
	switch {
	case !ok:
		return 0, ErrNotAnInteger
	case positive && n <= 0, n > MaxInt/unit, n < MinInt/unit:
		return 0, c.errExpiry()
	}
	n *= unit
	if err := c.beginAtKey(); err != nil {
		return 0, err
	}
	if relative {
		now := c.Unix(c.View.Now())
		if n > MaxInt-now/1e6 {
			return 0, c.errExpiry()
		}
		// counted from a whole millisecond, so that expiries compare as in Redis
		return after(c.View.Now()-now%1e6, n), nil
	}
	return after(-c.Server.Clock.Offset(), n), nil
}

// beginAtKey makes the instant of the call one on the clock of its first key. All of its keys are on one
// clock, if they must be changed in one step.
func (c *Call) beginAtKey() error {
	view, ok := c.View.(store.KeyClocks)
	if !ok {
		return nil
	}
	keys := c.Row.TouchedKeys(nil, c.Words, c.Snapshot)
	if len(keys) == 0 {
		return nil
	}
	return view.BeginAt(c.Context, keys[0])
}

func (c *Call) errExpiry() error {
	return Refusal("ERR invalid expire time in '" + c.Row.Name + "' command")
}

// after returns the instant that is ms milliseconds after another, limited to the range from 0 to
// the instant before store.Never if it would overflow.
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

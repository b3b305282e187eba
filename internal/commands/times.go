package commands

import "cellserver/internal/store"

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

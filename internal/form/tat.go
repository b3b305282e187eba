package form

import (
	"math"
	"strconv"
)

// AppendTAT appends a throttle key's value as redis-cell writes it: the TAT, in decimal digits of
// Unix nanoseconds.
func AppendTAT(dst []byte, tat int64) []byte { return strconv.AppendInt(dst, tat, 10) }

// ParseTAT parses a value that redis-cell wrote. It accepts only the digits that AppendTAT writes
// for a TAT above 0, so that AppendTAT restores the same value.
func ParseTAT(value []byte) (tat int64, ok bool) {
	if len(value) == 0 || value[0] == '0' {
		return 0, false
	}
	for _, c := range value {
		if c < '0' || c > '9' || tat > (math.MaxInt64-int64(c-'0'))/10 {
			return 0, false
		}
		tat = 10*tat + int64(c-'0')
	}
	return tat, true
}

// Milliseconds converts an instant from nanoseconds to milliseconds, for an expiry. It rounds up,
// so that a key does not expire while its state still has an effect. The result is not negative.
func Milliseconds(at int64) int64 {
	at = max(at, 0)
	ms := at / 1e6
	if at%1e6 > 0 {
		ms++
	}
	return ms
}

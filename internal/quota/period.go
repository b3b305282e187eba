package quota

import (
	"math"
	"time"
)

// Period is the length of a period, as an argument of a command gives it: seconds if it is positive,
// and microseconds if it is negative. Whole seconds are always positive. Zero is no period.
type Period int64

// Seconds returns a period of whole seconds, or no period if n is not positive.
func Seconds(n int64) Period { return Period(max(n, 0)) }

// A period is written as a number with at most three decimals, and one of these units.
var periodUnits = []struct {
	name   string
	micros uint64
}{{"ms", 1e3}, {"s", 1e6}, {"m", 60e6}, {"h", 3600e6}, {"d", 86400e6}}

// minPeriod is the shortest period, in microseconds.
const minPeriod = 1000

// longestPeriod bounds the length of a period in bytes: a word may be as long as a client sends it.
const longestPeriod = 32

// ParsePeriod reads a period with a unit, such as 250ms, 2.5s, 5m, 12h, or 30d. It is at least 1 ms.
func ParsePeriod(word []byte) (p Period, ok bool) {
	if len(word) > longestPeriod {
		return 0, false
	}
	for _, unit := range periodUnits {
		digits := len(word) - len(unit.name)
		if digits <= 0 || string(word[digits:]) != unit.name {
			continue
		}
		if thousandths, ok := parseThousandths(word[:digits]); ok {
			return newPeriod(thousandths, unit.micros)
		}
	}
	return 0, false
}

// parseThousandths reads a number with at most three decimals, and returns it in thousandths.
func parseThousandths(digits []byte) (n uint64, ok bool) {
	const most = (math.MaxUint64 - 9) / 10
	decimals := -1 // no point yet
	for i, c := range digits {
		if c == '.' && i > 0 && decimals < 0 {
			decimals = 0
			continue
		}
		if c < '0' || c > '9' || n > most || decimals == 3 {
			return 0, false
		}
		n = 10*n + uint64(c-'0')
		if decimals >= 0 {
			decimals++
		}
	}
	for range 3 - max(decimals, 0) {
		if n > most {
			return 0, false
		}
		n *= 10
	}
	return n, decimals != 0 && len(digits) > 0
}

func newPeriod(thousandths, unit uint64) (p Period, ok bool) {
	if thousandths > math.MaxInt64/unit {
		return 0, false
	}
	micros := thousandths * unit / 1000
	switch {
	case micros < minPeriod:
		return 0, false
	case micros%1e6 == 0:
		return Period(micros / 1e6), true
	}
	return -Period(micros), true
}

// Split returns a period as seconds and nanoseconds, which are less than a second.
func (p Period) Split() (seconds, nanoseconds int64) {
	if p > 0 {
		return int64(p), 0
	}
	return int64(-p / 1e6), int64(-p % 1e6 * 1e3)
}

// In returns the length of a period in a unit that divides a second, rounded up; or math.MaxInt64 if that is less.
func (p Period) In(unit time.Duration) int64 {
	seconds, nanoseconds := p.Split()
	perSecond := int64(time.Second / unit)
	if seconds >= math.MaxInt64/perSecond {
		return math.MaxInt64
	}
	return seconds*perSecond + (nanoseconds+int64(unit)-1)/int64(unit)
}

// Nanoseconds returns the length of a period that is not longer than most seconds. ok is false if it is
// longer, or no period.
func (p Period) Nanoseconds(most int64) (n int64, ok bool) {
	seconds, nanoseconds := p.Split()
	if p == 0 || seconds > most || seconds == most && nanoseconds > 0 {
		return 0, false
	}
	return seconds*int64(time.Second) + nanoseconds, true
}

// Package calendar computes the windows of calendar quotas: the hours, days, weeks, months and years
// of a time zone.
//
// The wall clock of a zone gives each instant a label, such as 2026-10-25 for a day. A window is all
// the time of one label. It begins and ends where the label changes, which need not be midnight:
// on 2024-03-10, clocks in Havana went from 24:00 to 1:00. An hour that comes twice, because clocks are
// set back, is one window of two hours. If clocks are set back to an earlier label, the present label
// stays, so labels never go back.
//
// Zones come from the IANA time zone database that is a part of the program, so that all servers
// of a version agree, whatever is installed on their machines. Use chooses a newer one.
package calendar

import (
	"math"
	"time"
)

// Unit is a unit of the calendar.
type Unit uint8

const (
	Hour Unit = iota
	Day
	Week // begins on Monday, as in ISO 8601
	Month
	Year
)

var unitNames = [...]string{"HOUR", "DAY", "WEEK", "MONTH", "YEAR"}

func (u Unit) String() string { return unitNames[u] }

// ParseUnit returns the unit with a name, in upper or lower case.
func ParseUnit(name []byte) (u Unit, ok bool) {
	for i, known := range unitNames {
		if len(name) == len(known) && equalFold(name, known) {
			return Unit(i), true
		}
	}
	return 0, false
}

// equalFold reports whether a word is equal to one in upper case, if the case of ASCII letters does not
// count. Both have the same length.
func equalFold(word []byte, upper string) bool {
	for i, c := range word {
		if 'a' <= c && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != upper[i] {
			return false
		}
	}
	return true
}

// A zone's offset from UTC is less than maxOffset. If clocks are set back, they show labels again that
// they have shown less than twice as long ago.
const maxOffset = int64(27 * time.Hour / time.Second)

// Window returns the window of a zone that contains an instant: its first second, and the first second
// after it. Instants are Unix seconds.
func (z *Zone) Window(u Unit, now int64) (start, end int64) {
	at := z.span(now)
	label := u.floor(now + at.offset)
	for before := at; before.from > now-2*maxOffset; { // clocks may have been set back from a later label
		before = z.span(before.from - 1)
		label = max(label, u.floor(before.to-1+before.offset))
	}
	return z.firstAt(label, at), z.firstAfter(u.next(label), at)
}

// firstAt returns the first instant in a span, or before it, at which the wall clock shows a local time
// or a later one.
func (z *Zone) firstAt(local int64, s span) int64 {
	first := int64(math.MaxInt64)
	for {
		if t := max(local-s.offset, s.from); t < s.to {
			first = t
		}
		if s.from <= local-maxOffset { // all earlier instants show earlier times
			return first
		}
		s = z.span(s.from - 1)
	}
}

// firstAfter returns the first instant in a span, or after it, at which the wall clock shows a local
// time or a later one.
func (z *Zone) firstAfter(local int64, s span) int64 {
	for {
		if t := max(local-s.offset, s.from); t < s.to {
			return t
		}
		s = z.span(s.to)
	}
}

// floor returns the beginning of the unit that contains a local time. Local times are seconds since
// 1970-01-01 00:00 on the wall clock.
func (u Unit) floor(local int64) int64 {
	const hour, day = 3600, 24 * 3600
	switch u {
	case Hour:
		return local - mod(local, hour)
	case Day:
		return local - mod(local, day)
	case Week:
		const thursday = 3 * day // 1970-01-01 is the fourth day of its week
		return local - mod(local+thursday, 7*day)
	}
	year, month, _ := time.Unix(local, 0).UTC().Date()
	if u == Year {
		month = time.January
	}
	return time.Date(year, month, 1, 0, 0, 0, 0, time.UTC).Unix()
}

// next returns the beginning of the next unit after the unit that begins at a local time.
func (u Unit) next(local int64) int64 {
	t := time.Unix(local, 0).UTC()
	switch u {
	case Hour:
		return local + 3600
	case Day:
		return t.AddDate(0, 0, 1).Unix()
	case Week:
		return t.AddDate(0, 0, 7).Unix()
	case Month:
		return t.AddDate(0, 1, 0).Unix()
	default:
		return t.AddDate(1, 0, 0).Unix()
	}
}

func mod(a, b int64) int64 { return (a%b + b) % b }

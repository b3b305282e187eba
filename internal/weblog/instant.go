package weblog

import (
	"bytes"
	"strings"
	"time"
)

// instant is a time as a log has it.
type instant struct {
	unix  int64 // nanoseconds
	whole bool  // it has no fraction of a second
}

// The times that logs may have.
const (
	earliest = 0               // 1970
	latest   = 7_258_118_400e9 // 2200
	second   = int64(time.Second)
)

// parseInstant reads a time in one of the forms of logs: 10/Oct/2000:13:55:36 -0700, 2000-10-10T13:55:36.123Z, or the
// number of seconds, milli-, micro- or nanoseconds since 1970. zone is for times without an offset.
func parseInstant(text []byte, zone *time.Location) (t instant, ok bool) {
	text = bytes.TrimSpace(text)
	switch {
	case len(text) >= 20 && text[2] == '/':
		t, ok = parseCommon(text, zone)
	case len(text) >= 19 && text[4] == '-':
		t, ok = parseISO(text, zone)
	default:
		t, ok = parseUnix(text)
	}
	return t, ok && t.unix >= earliest && t.unix < latest
}

const months = "JanFebMarAprMayJunJulAugSepOctNovDec"

func parseCommon(text []byte, zone *time.Location) (t instant, ok bool) {
	month := strings.Index(months, string(text[3:6]))
	if month%3 != 0 || text[6] != '/' || text[11] != ':' { // -1 % 3 is -1
		return t, false
	}
	var d date
	if !digits(text[0:2], &d.day) || !digits(text[7:11], &d.year) || !d.setTime(text[12:20]) {
		return t, false
	}
	d.month = month/3 + 1
	return d.instant(text[20:], zone)
}

func parseISO(text []byte, zone *time.Location) (t instant, ok bool) {
	var d date
	if text[7] != '-' || text[10] != 'T' && text[10] != ' ' || !digits(text[0:4], &d.year) ||
		!digits(text[5:7], &d.month) || !digits(text[8:10], &d.day) || !d.setTime(text[11:19]) {
		return t, false
	}
	return d.instant(text[19:], zone)
}

// date is a time of the calendar.
type date struct{ year, month, day, hour, minute, second int }

func (d *date) setTime(text []byte) bool {
	return text[2] == ':' && text[5] == ':' && digits(text[0:2], &d.hour) && digits(text[3:5], &d.minute) &&
		digits(text[6:8], &d.second)
}

// instant returns the instant of a date, given what follows it: a fraction of a second, and an offset.
func (d *date) instant(rest []byte, zone *time.Location) (t instant, ok bool) {
	if d.month < 1 || d.month > 12 || d.day < 1 || d.day > 31 || d.hour > 23 || d.minute > 59 || d.second > 60 {
		return t, false
	}
	fraction, rest := cutFraction(rest)
	t.unix, t.whole = max(fraction, 0), fraction < 0
	rest = bytes.TrimLeft(rest, " ")
	var seconds int64
	if len(rest) == 0 {
		seconds = time.Date(d.year, time.Month(d.month), d.day, d.hour, d.minute, d.second, 0, zone).Unix()
	} else {
		offset, known := parseOffset(rest)
		if !known {
			return t, false
		}
		seconds = d.unix() - int64(offset)
	}
	t.unix += seconds * second
	return t, true
}

// unix returns the Unix time of a date in UTC, in seconds. Years begin in March here, so that the day that a leap year
// adds is their last.
func (d *date) unix() int64 {
	year, month := d.year, d.month-3
	if month < 0 {
		year, month = year-1, month+12
	}
	days := 365*year + year/4 - year/100 + year/400 + (153*month+2)/5 + d.day - 719_469
	return int64(days)*86_400 + int64(d.hour*3600+d.minute*60+d.second)
}

// cutFraction returns the nanoseconds of a fraction such as .123 or ,123; -1 if there is none.
func cutFraction(text []byte) (ns int64, rest []byte) {
	if len(text) < 2 || text[0] != '.' && text[0] != ',' || !isDigit(text[1]) {
		return -1, text
	}
	unit := second
	for text = text[1:]; len(text) > 0 && isDigit(text[0]); text = text[1:] {
		unit /= 10
		ns += unit * int64(text[0]-'0')
	}
	return ns, text
}

// parseOffset reads Z, +hhmm and +hh:mm, in seconds.
func parseOffset(text []byte) (offset int, ok bool) {
	if string(text) == "Z" || string(text) == "UTC" {
		return 0, true
	}
	if len(text) == 6 && text[3] == ':' {
		text = append(text[:3:3], text[4:]...)
	}
	var hours, minutes int
	if len(text) != 5 || !digits(text[1:3], &hours) || !digits(text[3:5], &minutes) || hours > 23 || minutes > 59 {
		return 0, false
	}
	switch offset = hours*3600 + minutes*60; text[0] {
	case '+':
		return offset, true
	case '-':
		return -offset, true
	}
	return 0, false
}

// parseUnix reads a time since 1970. Its unit follows from its size: seconds have at most 11 digits, milliseconds three
// more, and so on.
func parseUnix(text []byte) (t instant, ok bool) {
	end := 0
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	if end == 0 || end > 19 {
		return t, false
	}
	for _, c := range text[:end] {
		digit := int64(c - '0')
		if t.unix > (1<<63-1-digit)/10 {
			return t, false
		}
		t.unix = 10*t.unix + digit
	}
	fraction, rest := cutFraction(text[end:])
	if len(rest) > 0 {
		return t, false
	}
	switch {
	case end <= 11:
		if t.unix >= latest/second {
			return t, false
		}
		return instant{t.unix*second + max(fraction, 0), fraction < 0}, true
	case end <= 14:
		t.unix *= 1e6
	case end <= 17:
		t.unix *= 1e3
	}
	return t, true
}

// seconds reads a number of seconds, such as 0.123, as nanoseconds.
func seconds(text []byte) (ns int64, ok bool) {
	t, ok := parseUnix(text)
	return t.unix, ok && t.unix < 1e9*second
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digits reads a number without a sign.
func digits(text []byte, n *int) bool {
	*n = 0
	for _, c := range text {
		if !isDigit(c) {
			return false
		}
		*n = 10**n + int(c-'0')
	}
	return true
}

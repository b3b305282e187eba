package form

import (
	"encoding/binary"
	"math"
	"time"

	"cellserver/internal/calendar"
	"cellserver/internal/standing"
)

// reader reads the parts of a form. After an error, its methods return zeros.
type reader struct {
	value []byte
	at    int
	err   error
}

func (r *reader) fail(at int, reason string) {
	if r.err == nil {
		r.err = &Error{at, reason}
	}
}

// bytes returns the next n bytes, without copying them.
func (r *reader) bytes(n int64) []byte {
	if r.err != nil {
		return nil
	}
	if n > int64(len(r.value)-r.at) {
		r.fail(len(r.value), "it is cut off")
		return nil
	}
	r.at += int(n)
	return r.value[r.at-int(n) : r.at]
}

func (r *reader) word() uint64 {
	p := r.bytes(8)
	if p == nil {
		return 0
	}
	return binary.BigEndian.Uint64(p)
}

func (r *reader) instant() int64 {
	begin := r.at
	at := r.word()
	if at > math.MaxInt64 {
		r.fail(begin, "an instant is negative")
		return 0
	}
	return int64(at)
}

func (r *reader) count() int64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Uvarint(r.value[r.at:])
	switch {
	case size == 0:
		r.fail(len(r.value), "it is cut off")
		return 0
	case size < 0 || n > math.MaxInt64:
		r.fail(r.at, "a count is more than 2^63-1")
		return 0
	case size > 1 && r.value[r.at+size-1] == 0:
		r.fail(r.at, "a count is longer than it need be")
		return 0
	}
	r.at += size
	return int64(n)
}

func (r *reader) cycle() (c calendar.Cycle) {
	begin := r.at
	if period := r.count(); r.err != nil || period > 0 {
		if period%1000 != 0 {
			r.fail(begin, "a period is not in whole microseconds")
		}
		return calendar.Every(time.Duration(period))
	}
	begin = r.at
	unit := r.count()
	if unit > int64(calendar.Year) {
		r.fail(begin, "there is no such unit of the calendar")
		return 0
	}
	begin = r.at
	c, ok := calendar.Restore(calendar.Unit(unit), r.bytes(r.count()))
	if !ok {
		r.fail(begin, "the name of a time zone is invalid, or too many are unknown")
	}
	return c
}

// standing reads the bytes of package standing, which are the rest of the form.
func (r *reader) standing() standing.State {
	if r.err != nil {
		return standing.State{}
	}
	s, err := standing.Read(r.value[r.at:])
	if err != nil {
		r.err = err
		return s
	}
	r.at = len(r.value)
	return s
}

// after reads an instant that is encoded as the duration since another instant.
func (r *reader) after(from int64) int64 {
	begin := r.at
	d := r.count()
	if d > math.MaxInt64-from {
		r.fail(begin, "an instant is more than 2^63-1")
		return 0
	}
	return from + d
}

func (r *reader) end() {
	if r.at < len(r.value) {
		r.fail(r.at, "more follows the state")
	}
}

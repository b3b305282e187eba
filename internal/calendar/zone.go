package calendar

import (
	"math"
	"time"
)

// Zone is a time zone. Its methods are safe for concurrent use.
type Zone struct {
	name     string
	location *time.Location
}

// span is a time during which the offset of a zone does not change: the seconds from from to to, without
// to.
type span struct{ from, to, offset int64 }

// span returns the span of an instant.
func (z *Zone) span(now int64) span {
	t := time.Unix(now, 0).In(z.location)
	_, offset := t.Zone()
	s := span{math.MinInt64 / 2, math.MaxInt64 / 2, int64(offset)}
	from, to := t.ZoneBounds()
	if !from.IsZero() {
		s.from = from.Unix()
	}
	if !to.IsZero() {
		s.to = to.Unix()
	}
	if s.to <= now { // go1.26 ends the span of December 31 of leap years where that day begins
		s.to = time.Date(t.UTC().Year()+1, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return s
}

package window

import (
	"math"

	"cellserver/internal/quota"
)

// Calendar is the state of a calendar quota: a count in a window whose end the calendar says. Its
// end, and the instants of its steps, are Unix time by the wall clock, unlike the instants of all other
// limiters. What divides time into windows is not known here; package calendar computes them.
type Calendar struct {
	Used int64
	End  int64 // ns: when the window ends and the key expires
}

// NewCalendarLimit makes the limit of a calendar quota from the argument of a call. It has no
// period.
func NewCalendarLimit(limit int64) (Limit, error) {
	if limit < 0 {
		return Limit{}, &quota.ArgumentError{Name: "limit", Lo: 0, Hi: math.MaxInt64}
	}
	return Limit{size: limit}, nil
}

// StepCalendar decides a call at the instant now on a key with the state s, and returns the state
// to store. If the key does not exist, s has the end of the present window, and nothing used.
//
// If next.Used == s.Used, nothing need be stored; if next.Used is 0, the key can be removed. The
// only error is quota.ErrQuantity, for a forced count that does not fit in an int64; then nothing
// must be stored.
//
// A window that has ended need not be passed. A window ends at its end and not before, so one that
// lies ahead, because the wall clock was set back, is the present one.
func (l Limit) StepCalendar(now int64, s Calendar, quantity int64,
	mode quota.Mode) (d quota.Decision, next Calendar, err error) {
	if l.Blocks(quantity, mode) {
		return quota.Blocked(), s, nil
	}
	v := l.decide(l.remainingAfter(s.Used), quantity, mode)
	next = s
	if next.Used, err = add(s.Used, v.taken); err != nil {
		return quota.Decision{}, s, err
	}
	left := max(s.End-instant(now), 1)
	d = quota.Decision{
		Limited: v.limited, Limit: l.size, Remaining: max(l.remainingAfter(next.Used), 0), RetryAfter: quota.Never,
		Taken: next.Used - s.Used, // a refund is limited to what was used
	}
	if next.Used > 0 {
		d.ResetAfter = left
	}
	if l.canFitLater(v) {
		d.RetryAfter = left // the next window starts then
	}
	if mode == quota.Peek {
		next = s
	}
	return d, next, nil
}

package window

import "cellserver/internal/quota"

// Fixed is the state of a fixed window counter: the algorithm of every INCR that is followed by an EXPIRE, as Redis's own
// documentation of INCR gives it. Its zero value says that there is no window.
type Fixed struct {
	Start int64 // ns: when the first quantity was taken
	Used  int64
	End   int64 // ns: when the key expires
}

// StepFixed decides a call made at now on a key whose state is s, and returns the state to keep.
//
// next == s says that there is nothing to store; the zero Fixed, that the key is as if never used. The only error is
// quota.ErrQuantity, for a forced count that no int64 can hold; it too stores nothing.
//
// Every int64 has an answer. At an instant before its start the window counts as just begun, and the caller waits longer.
func (l Limit) StepFixed(now int64, s Fixed, quantity int64, mode quota.Mode) (d quota.Decision, next Fixed, err error) {
	now = instant(now)
	w := l.readFixed(now, s)

	v := l.decide(l.roomBeside(w.Used), quantity, mode)
	used, err := add(w.Used, v.taken)
	if err != nil {
		return quota.Decision{}, s, err
	}
	changed := used != w.Used
	if changed { // and only then: who is refused does not move the expiry
		w.Used, w.End = used, w.Start+l.period
	}

	d = quota.Decision{
		Limited: v.limited, Limit: l.size, Remaining: max(l.roomBeside(used), 0), RetryAfter: quota.Never, Taken: v.taken,
	}
	if used > 0 {
		d.ResetAfter = w.End - now
	}
	if l.waits(v) {
		d.RetryAfter = w.End - now // then the count starts again
	}
	switch {
	case !changed || mode == quota.Peek:
		return d, s, nil
	case used == 0:
		return d, Fixed{}, nil
	}
	return d, w, nil
}

// readFixed is the window as a call sees it at now: up to its own period from the start, but no further than the stored
// end, where the key will be gone. A window that has ended is one that would begin now.
func (l Limit) readFixed(now int64, s Fixed) Fixed {
	start := instant(s.Start)
	end := min(start+l.period, s.End)
	if now >= end || s.Used <= 0 {
		return Fixed{Start: now, End: now}
	}
	return Fixed{Start: start, Used: s.Used, End: end}
}

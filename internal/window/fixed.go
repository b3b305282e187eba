package window

import "cellserver/internal/quota"

// Fixed is the state of a fixed window counter: the algorithm of every INCR that is followed by an
// EXPIRE, as Redis's own documentation of INCR gives it. Its zero value says that there is no
// window.
type Fixed struct {
	Start int64 // ns: when the first quantity was taken
	Used  int64
	End   int64 // ns: when the window ends, and the key with it
}

// StepFixed decides a call made at now on a key whose state is s, and returns the state to keep.
//
// next == s says that there is nothing to store; the zero Fixed, that the key is as if never used.
// The only error is quota.ErrQuantity, for a forced count that no int64 can hold; it too stores
// nothing.
//
// Every int64 has an answer. At an instant before its start the window counts as just begun, and
// the caller waits longer.
func (l Limit) StepFixed(now int64, s Fixed, quantity int64,
	mode quota.Mode) (d quota.Decision, next Fixed, err error) {
	if l.Blocks(quantity, mode) {
		return quota.Blocked(), s, nil
	}
	now = instant(now)
	w := readFixed(now, s)

	v := l.decide(l.roomBeside(w.Used), quantity, mode)
	used, err := add(w.Used, v.taken)
	if err != nil {
		return quota.Decision{}, s, err
	}
	came := used - w.Used           // less than was given back, if there is less
	if w.Used = used; v.taken > 0 { // and only then: a call that takes nothing names no period
		w.End = max(w.End, w.Start+l.period)
	}

	d = quota.Decision{
		Limited: v.limited, Limit: l.size, Remaining: max(l.roomBeside(used), 0), RetryAfter: quota.Never, Taken: came,
	}
	if used > 0 {
		d.ResetAfter = w.End - now
	}
	if l.waits(v) {
		d.RetryAfter = w.End - now // then the count starts again
	}
	switch {
	case came == 0 || mode == quota.Peek:
		return d, s, nil
	case used == 0:
		return d, Fixed{}, nil
	}
	return d, w, nil
}

// readFixed is the window at now, whatever period a call names. One that has ended is one that
// would begin now.
func readFixed(now int64, s Fixed) Fixed {
	if now >= s.End || s.Used <= 0 {
		return Fixed{Start: now, End: now}
	}
	return Fixed{Start: instant(s.Start), Used: s.Used, End: s.End}
}

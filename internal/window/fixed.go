package window

import "cellserver/internal/quota"

// Fixed is the state of a fixed window counter, the algorithm of an INCR followed by an EXPIRE, as
// in Redis's documentation of INCR. The zero value means that there is no window.
type Fixed struct {
	Start int64 // ns: when the first quantity was taken
	Used  int64
	End   int64 // ns: when the window ends and the key expires
}

// StepFixed decides a call at the instant now on a key with the state s, and returns the state to
// store.
//
// If next == s, nothing need be stored; if next is the zero Fixed, the key can be removed. The only
// error is quota.ErrQuantity, for a forced count that does not fit in an int64; then nothing must
// be stored.
//
// Every int64 is valid. At an instant before its start a window counts as having just begun, and
// the client waits longer.
func (l Limit) StepFixed(now int64, s Fixed, quantity int64,
	mode quota.Mode) (d quota.Decision, next Fixed, err error) {
	if l.Blocks(quantity, mode) {
		return quota.Blocked(), s, nil
	}
	now = instant(now)
	w := readFixed(now, s)

	v := l.decide(l.remainingAfter(w.Used), quantity, mode)
	used, err := add(w.Used, v.taken)
	if err != nil {
		return quota.Decision{}, s, err
	}
	applied := used - w.Used // a refund is limited to what was used
	// Only a call that takes something extends the window.
	if w.Used = used; v.taken > 0 {
		w.End = max(w.End, w.Start+l.period)
	}

	d = quota.Decision{
		Limited: v.limited, Limit: l.size, Remaining: max(l.remainingAfter(used), 0), RetryAfter: quota.Never,
		Taken: applied,
	}
	if used > 0 {
		d.ResetAfter = w.End - now
	}
	if l.canFitLater(v) {
		d.RetryAfter = w.End - now // the next window starts then
	}
	switch {
	case applied == 0 || mode == quota.Peek:
		return d, s, nil
	case used == 0:
		return d, Fixed{}, nil
	}
	return d, w, nil
}

// readFixed returns the window at now, whatever period the call names. If it has ended, the result
// is a window that begins now.
func readFixed(now int64, s Fixed) Fixed {
	if now >= s.End || s.Used <= 0 {
		return Fixed{Start: now, End: now}
	}
	return Fixed{Start: instant(s.Start), Used: s.Used, End: s.End}
}

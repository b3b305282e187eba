package window

import (
	"math"
	"math/bits"
	"time"

	"cellserver/internal/quota"
)

// Sliding is the state of a sliding window counter, as Cloudflare described it in 2017 ("How we
// built rate limiting capable of scaling to millions of domains"): the counts of two adjacent
// windows. The older is weighted by the part that is still in view. The zero value means
// that nothing was counted.
//
// Windows start with the first call that takes something, not at round times of the clock, so that
// keys do not all end together.
type Sliding struct {
	Start    int64 // ns: of the current window
	Previous int64 // taken in the previous window
	Current  int64 // taken in the current window
	Until    int64 // ns: the stored period decides until then
	End      int64 // ns: when the key expires; the stored period follows from it
}

// windows is a Sliding without Until. A step works on this type, because Go keeps structs of four
// words in registers, and larger ones in memory.
type windows struct{ start, previous, current, end int64 }

func (s Sliding) windows() windows { return windows{s.Start, s.Previous, s.Current, s.End} }

func (w windows) state(until int64) Sliding {
	return Sliding{Start: w.start, Previous: w.previous, Current: w.current, Until: until, End: w.end}
}

// period returns the stored period: between start and end there are two windows if current is
// positive, otherwise one.
func (w windows) period() int64 {
	if w.current > 0 {
		return (w.end - instant(w.start)) / 2
	}
	return w.end - instant(w.start)
}

// StepSliding decides a call at the instant now on a key with the state s, and returns the state to
// store.
//
// If next == s, nothing need be stored; if next is the zero Sliding, the key can be removed. The
// only error is quota.ErrQuantity, for a forced count that does not fit in an int64; then nothing
// must be stored.
//
// Every int64 is valid. At an instant before its start the current window counts as having just
// begun, with all of the previous one in view, and the client waits longer.
func (l Limit) StepSliding(now int64, s Sliding, quantity int64,
	mode quota.Mode) (d quota.Decision, next Sliding, err error) {
	if l.Blocks(quantity, mode) {
		return quota.Blocked(), s, nil
	}
	now = instant(now)
	own, stored, until := l, s.windows(), s.Until
	l = own.deciding(now, stored.period(), min(until, stored.end))
	w := l.readSliding(now, stored, until)
	remaining := l.remainingSliding(now, w)
	v := l.decide(remaining, quantity, mode)
	after, err := w.add(v.taken)
	if err != nil {
		return quota.Decision{}, s, err
	}
	applied, stored := after.current-w.current+(after.previous-w.previous), stored
	if applied != 0 { // a call that takes nothing does not change the expiry
		after.end = l.slidingEnd(after)
		stored = after
	}
	switch {
	case applied > 0:
		if w.empty() {
			until = 0
		}
		remaining, until = remaining-applied, own.extendUntil(now, until, l)
	case applied < 0:
		remaining = l.remainingSliding(now, after)
	}
	d = quota.Decision{
		Limited: v.limited, Limit: l.size, Remaining: max(remaining, 0), RetryAfter: quota.Never, Taken: applied,
	}
	if !after.empty() {
		d.ResetAfter = after.end - now
	}
	if l.canFitLater(v) {
		at := l.fitsSlidingAt(after, v.wanted)
		if l != own && until <= at { // the call's own period decides by then
			at = own.fitsSlidingFrom(until, stored, v.wanted)
		}
		d.RetryAfter = at - now
	}
	switch {
	case applied == 0 || mode == quota.Peek:
		return d, s, nil
	case after.empty():
		return d, Sliding{}, nil
	}
	return d, after.state(until), nil
}

func (w windows) empty() bool { return w.previous == 0 && w.current == 0 }

// readSliding returns the windows at now. After one window has passed, the current count is the
// previous one; after two, nothing is left.
func (l Limit) readSliding(now int64, stored windows, until int64) windows {
	if now >= stored.end {
		return windows{start: now, end: now}
	}
	if period := stored.period(); l.period != period && 0 < period && period <= maxPeriod*int64(time.Second) {
		stored = l.convert(period, stored, instant(until))
	}
	w := windows{start: instant(stored.start), previous: max(stored.previous, 0), current: max(stored.current, 0)}
	if now-w.start >= l.period {
		w = windows{start: w.start + l.period, previous: w.current}
	}
	w.end = min(l.slidingEnd(w), stored.end)
	if now >= w.end || w.empty() {
		return windows{start: now, end: now}
	}
	return w
}

// convert converts the counts of a stored period to the period of l. Of a shorter one, several windows
// may have passed since the start, although something was taken a moment ago; in a longer one, what
// has left in part would return. Therefore all that was in view at until, when the stored period
// stopped deciding, counts as taken in the previous window.
func (l Limit) convert(period int64, stored windows, until int64) windows {
	before := Limit{size: l.size, period: period}
	w := before.readSliding(until, stored, until)
	inView := w.current + min(before.inView(until, w), math.MaxInt64-w.current)
	return windows{start: until, previous: inView, end: stored.end}
}

// slidingEnd returns the instant from which nothing of w is in view. What was taken in the current
// window leaves with the end of the next one.
func (l Limit) slidingEnd(w windows) int64 {
	if w.current > 0 {
		return w.start + 2*l.period
	}
	return w.start + l.period
}

// remainingSliding returns limit - current - previous * (period - elapsed) / period, with the last
// term rounded up. Counts are whole numbers, so this admits exactly what the fraction would: q <= n
// - x is equivalent to q <= n - ceil(x).
func (l Limit) remainingSliding(now int64, w windows) int64 {
	remaining := l.remainingAfter(w.current)
	if remaining == inDebt || w.previous == 0 {
		return remaining
	}
	return max(remaining-l.inView(now, w), inDebt)
}

// inView returns how much of the previous window's count is in view, rounded up.
func (l Limit) inView(now int64, w windows) int64 {
	inView := min(w.start+l.period-now, l.period) // more than the period only if the clock ran backwards
	return mulDivCeil(w.previous, inView, l.period)
}

// fitsSlidingAt returns the first instant at which a quantity of at most the limit will be allowed,
// if it is not now. While nothing is taken the weighted count only falls, across the end of a
// window too, so there is exactly one such instant:
//
//	in this window   previous * (period - elapsed) <= (limit - quantity - current) * period
//	in the next      current  * (period - elapsed) <= (limit - quantity) * period
//
// each solved for the smallest elapsed. Since the quantity is not allowed now, previous or current
// is positive, and both quotients are less than a period.
func (l Limit) fitsSlidingAt(w windows, quantity int64) int64 {
	others := l.size - quantity // the count that may be in view in addition to the quantity
	at := w.start + l.period
	if w.current <= others {
		at -= mulDiv(others-w.current, l.period, w.previous)
	} else {
		at += l.period - mulDiv(others, l.period, w.current)
	}
	return min(at, w.end)
}

// fitsSlidingFrom returns the first instant, not before at, at which a quantity is allowed in the
// stored state.
func (l Limit) fitsSlidingFrom(at int64, stored windows, quantity int64) int64 {
	w := l.readSliding(at, stored, at)
	if quantity <= l.remainingSliding(at, w) {
		return at
	}
	return l.fitsSlidingAt(w, quantity)
}

// add takes from the current window, or refunds: to the current window first, then to the previous
// one. The newest is refunded first because it would stay in view longest, and is most likely what
// the caller did not use.
func (w windows) add(taken int64) (windows, error) {
	if taken < -w.current {
		w.previous = max(w.previous+(w.current+taken), 0) // this order of operations cannot overflow
		w.current = 0
		return w, nil
	}
	current, err := add(w.current, taken)
	w.current = current
	return w, err
}

// mulDiv returns a * b / c, rounded down. No argument may be negative, and the quotient must fit in
// an int64; the product has up to 123 bits.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quotient, _ := bits.Div64(hi, lo, uint64(c))
	return int64(quotient)
}

// mulDivCeil is mulDiv, rounded up.
func mulDivCeil(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quotient, remainder := bits.Div64(hi, lo, uint64(c))
	if remainder > 0 {
		quotient++
	}
	return int64(quotient)
}

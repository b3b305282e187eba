package window

import (
	"math"
	"math/bits"
	"time"

	"cellserver/internal/quota"
)

// Sliding is the state of a sliding window counter, as Cloudflare described it in 2017 ("How we
// built rate limiting capable of scaling to millions of domains"): the counts of two adjacent
// windows, the older one weighted by how much of it is still in view. Its zero value says that
// nothing was counted.
//
// Windows follow the first call that took something, not the clock's round numbers: so no two keys
// end together.
type Sliding struct {
	Start    int64 // ns: of the current window
	Previous int64 // taken in the window before
	Current  int64 // taken in this one
	Until    int64 // ns: until then the period that is kept decides
	End      int64 // ns: when the key expires, which says what the period is
}

// windows are the counts of a Sliding. A step works on these: Go keeps four words in registers, and
// five in memory.
type windows struct{ start, previous, current, end int64 }

func (s Sliding) windows() windows { return windows{s.Start, s.Previous, s.Current, s.End} }

func (w windows) state(until int64) Sliding {
	return Sliding{Start: w.start, Previous: w.previous, Current: w.current, Until: until, End: w.end}
}

// period is the one that is kept: one window lies between the start and the end, or two.
func (w windows) period() int64 {
	if w.current > 0 {
		return (w.end - instant(w.start)) / 2
	}
	return w.end - instant(w.start)
}

// StepSliding decides a call made at now on a key whose state is s, and returns the state to keep.
//
// next == s says that there is nothing to store; the zero Sliding, that the key is as if never
// used. The only error is quota.ErrQuantity, for a forced count that no int64 can hold; it too
// stores nothing.
//
// Every int64 has an answer. At an instant before its start the window counts as just begun, with
// all of the one before in view, and the caller waits longer.
func (l Limit) StepSliding(now int64, s Sliding, quantity int64,
	mode quota.Mode) (d quota.Decision, next Sliding, err error) {
	if l.Blocks(quantity, mode) {
		return quota.Blocked(), s, nil
	}
	now = instant(now)
	own, kept, until := l, s.windows(), s.Until
	l = own.by(now, kept.period(), min(until, kept.end))
	w := l.readSliding(now, kept, until)
	room := l.roomInSliding(now, w)
	v := l.decide(room, quantity, mode)
	after, err := w.add(v.taken)
	if err != nil {
		return quota.Decision{}, s, err
	}
	came, left := after.current-w.current+(after.previous-w.previous), kept
	if came != 0 { // and only then: a call that takes nothing does not move the expiry
		after.end = l.endOfSliding(after)
		left = after
	}
	switch {
	case came > 0:
		if w.empty() {
			until = 0
		}
		room, until = room-came, own.named(now, until, l)
	case came < 0:
		room = l.roomInSliding(now, after)
	}
	d = quota.Decision{
		Limited: v.limited, Limit: l.size, Remaining: max(room, 0), RetryAfter: quota.Never, Taken: came,
	}
	if !after.empty() {
		d.ResetAfter = after.end - now
	}
	if l.waits(v) {
		at := l.fitsSlidingAt(after, v.wanted)
		if l != own {
			at = handOver(at, until, own.fitsSlidingFrom(until, left, v.wanted))
		}
		d.RetryAfter = at - now
	}
	switch {
	case came == 0 || mode == quota.Peek:
		return d, s, nil
	case after.empty():
		return d, Sliding{}, nil
	}
	return d, after.state(until), nil
}

func (w windows) empty() bool { return w.previous == 0 && w.current == 0 }

// readSliding is what a call sees at now. Where a window has passed the current count becomes the
// previous one; where two have, nothing is left. A longer period reads the counts as they stand:
// how they were spread is not known.
func (l Limit) readSliding(now int64, kept windows, until int64) windows {
	if now >= kept.end {
		return windows{start: now, end: now}
	}
	if period := kept.period(); l.period < period && period <= maxPeriod*int64(time.Second) {
		kept = l.handedOver(period, kept, instant(until))
	}
	w := windows{start: instant(kept.start), previous: max(kept.previous, 0), current: max(kept.current, 0)}
	if now-w.start >= l.period {
		w = windows{start: w.start + l.period, previous: w.current}
	}
	w.end = min(l.endOfSliding(w), kept.end)
	if now >= w.end || w.empty() {
		return windows{start: now, end: now}
	}
	return w
}

// handedOver is the counts for a period that is shorter than the one that they were kept by.
// Windows of that length may all have passed since the start, and what was taken a moment ago with
// them. So what was in view when the kept period had decided for the last time counts as taken in
// the window before.
func (l Limit) handedOver(period int64, kept windows, until int64) windows {
	long := Limit{size: l.size, period: period}
	w := long.readSliding(until, kept, until)
	return windows{start: until, previous: w.current + min(long.inView(until, w), math.MaxInt64-w.current), end: kept.end}
}

// endOfSliding is when nothing of w is in view any more. What was taken in this window leaves with
// the end of the next.
func (l Limit) endOfSliding(w windows) int64 {
	if w.current > 0 {
		return w.start + 2*l.period
	}
	return w.start + l.period
}

// roomInSliding is limit - current - previous * (period - elapsed) / period, the last rounded up.
// Counts are whole, so this admits exactly what the fraction would: q <= n - x says the same as q
// <= n - ceil(x).
func (l Limit) roomInSliding(now int64, w windows) int64 {
	room := l.roomBeside(w.current)
	if room == inDebt || w.previous == 0 {
		return room
	}
	return max(room-l.inView(now, w), inDebt)
}

// inView is how much of the window before is in view, rounded up.
func (l Limit) inView(now int64, w windows) int64 {
	inView := min(w.start+l.period-now, l.period) // more than the period only if the clock ran back
	return mulDivCeil(w.previous, inView, l.period)
}

// fitsSlidingAt is the first instant at which a quantity of at most the limit fits, if it does not
// fit now. The weighted count only ever falls while nothing is taken, across the end of a window
// too, so there is one such instant:
//
//	in this window   previous * (period - elapsed) <= (limit - quantity - current) * period
//	in the next      current  * (period - elapsed) <= (limit - quantity) * period
//
// each solved for the least elapsed. It does not fit now, so previous, or current, is above 0, and
// both quotients are less than a period.
func (l Limit) fitsSlidingAt(w windows, quantity int64) int64 {
	others := l.size - quantity // what may be in view beside it
	at := w.start + l.period
	if w.current <= others {
		at -= mulDiv(others-w.current, l.period, w.previous)
	} else {
		at += l.period - mulDiv(others, l.period, w.current)
	}
	return min(at, w.end)
}

// fitsSlidingFrom is the first instant from at on where a quantity fits, in the state that is kept.
func (l Limit) fitsSlidingFrom(at int64, kept windows, quantity int64) int64 {
	w := l.readSliding(at, kept, at)
	if quantity <= l.roomInSliding(at, w) {
		return at
	}
	return l.fitsSlidingAt(w, quantity)
}

// add takes from this window, or gives back: to this window first, then to the one before. The
// newest goes first because it would stay in view longest, and is the likeliest to be what the
// caller did not use.
func (w windows) add(taken int64) (windows, error) {
	if taken < -w.current {
		w.previous = max(w.previous+(w.current+taken), 0) // in this order no sum overflows
		w.current = 0
		return w, nil
	}
	current, err := add(w.current, taken)
	w.current = current
	return w, err
}

// mulDiv is a * b / c, rounded down. None is negative, and the quotient must fit; the product has
// up to 123 bits.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quotient, _ := bits.Div64(hi, lo, uint64(c))
	return int64(quotient)
}

// mulDivCeil is mulDiv, rounded up.
func mulDivCeil(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quotient, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}

package window

import (
	"math"
	"math/bits"
	"time"

	"cellserver/internal/quota"
)

// Sliding is the state of a sliding window counter, as Cloudflare described it in 2017 ("How we built rate limiting
// capable of scaling to millions of domains"): the counts of two adjacent windows, the older one weighted by how much of
// it is still in view. Its zero value says that nothing was counted.
//
// Windows follow the first call that took something, not the clock's round numbers: so no two keys end together.
type Sliding struct {
	Start    int64 // ns: of the current window
	Previous int64 // taken in the window before
	Current  int64 // taken in this one
	Until    int64 // ns: until then the period that is kept decides
	End      int64 // ns: when the key expires, which says what the period is
}

// period is the one that is kept: one window lies between the start and the end, or two.
func (s Sliding) period() int64 {
	if s.Current > 0 {
		return (s.End - instant(s.Start)) / 2
	}
	return s.End - instant(s.Start)
}

// StepSliding decides a call made at now on a key whose state is s, and returns the state to keep.
//
// next == s says that there is nothing to store; the zero Sliding, that the key is as if never used. The only error is
// quota.ErrQuantity, for a forced count that no int64 can hold; it too stores nothing.
//
// Every int64 has an answer. At an instant before its start the window counts as just begun, with all of the one before
// in view, and the caller waits longer.
func (l Limit) StepSliding(now int64, s Sliding, quantity int64, mode quota.Mode) (d quota.Decision, next Sliding, err error) {
	if l.Blocks(quantity, mode) {
		return quota.Blocked(), s, nil
	}
	now = instant(now)
	own := l
	l = own.by(now, s.period(), min(s.Until, s.End))
	w := l.readSliding(now, s)

	v := l.decide(l.roomInSliding(now, w), quantity, mode)
	after, err := w.add(v.taken)
	if err != nil {
		return quota.Decision{}, s, err
	}
	came := after.Current - w.Current + (after.Previous - w.Previous)
	next = s
	if came != 0 { // and only then: a call that takes nothing does not move the expiry
		after.End = l.endOfSliding(after)
		if came > 0 {
			after.Until = own.named(now, w.Until, l)
		}
		next = after
	}

	d = quota.Decision{
		Limited: v.limited, Limit: l.size, Remaining: max(l.roomInSliding(now, after), 0),
		RetryAfter: quota.Never, Taken: came,
	}
	if !after.empty() {
		d.ResetAfter = after.End - now
	}
	if l.waits(v) {
		at := l.fitsSlidingAt(after, v.wanted)
		if l != own {
			at = handOver(at, next.Until, own.fitsSlidingFrom(next.Until, next, v.wanted))
		}
		d.RetryAfter = at - now
	}
	switch {
	case mode == quota.Peek:
		return d, s, nil
	case after.empty() && came != 0:
		return d, Sliding{}, nil
	}
	return d, next, nil
}

func (s Sliding) empty() bool { return s.Previous == 0 && s.Current == 0 }

// readSliding is what a call sees at now. Where a window has passed the current count becomes the previous one; where
// two have, nothing is left. A longer period reads the counts as they stand: how they were spread is not known.
func (l Limit) readSliding(now int64, s Sliding) Sliding {
	if now >= s.End {
		return Sliding{Start: now, End: now}
	}
	if kept := s.period(); l.period < kept && kept <= maxPeriod*int64(time.Second) {
		s = l.handedOver(kept, s)
	}
	w := Sliding{Start: instant(s.Start), Previous: max(s.Previous, 0), Current: max(s.Current, 0)}
	if now-w.Start >= l.period {
		w = Sliding{Start: w.Start + l.period, Previous: w.Current}
	}
	w.Until, w.End = s.Until, min(l.endOfSliding(w), s.End)
	if now >= w.End || w.empty() {
		return Sliding{Start: now, End: now}
	}
	return w
}

// handedOver is s for a period that is shorter than the one that is kept. Windows of that length may all have passed since the
// start, and what was taken a moment ago with them. So what was in view when the kept period had decided for the last time counts
// as taken in the window before.
func (l Limit) handedOver(kept int64, s Sliding) Sliding {
	until := instant(s.Until)
	long := Limit{size: l.size, period: kept}
	w := long.readSliding(until, s)
	return Sliding{Start: until, Previous: w.Current + min(long.inView(until, w), math.MaxInt64-w.Current), Until: s.Until, End: s.End}
}

// endOfSliding is when nothing of w is in view any more. What was taken in this window leaves with the end of the next.
func (l Limit) endOfSliding(w Sliding) int64 {
	if w.Current > 0 {
		return w.Start + 2*l.period
	}
	return w.Start + l.period
}

// roomInSliding is limit - current - previous * (period - elapsed) / period, the last rounded up. Counts are whole, so
// this admits exactly what the fraction would: q <= n - x says the same as q <= n - ceil(x).
func (l Limit) roomInSliding(now int64, w Sliding) int64 {
	room := l.roomBeside(w.Current)
	if room == inDebt || w.Previous == 0 {
		return room
	}
	return max(room-l.inView(now, w), inDebt)
}

// inView is how much of the window before is in view, rounded up.
func (l Limit) inView(now int64, w Sliding) int64 {
	inView := min(w.Start+l.period-now, l.period) // more than the period only if the clock ran back
	return mulDivCeil(w.Previous, inView, l.period)
}

// fitsSlidingAt is the first instant at which a quantity of at most the limit fits, if it does not fit now. The weighted
// count only ever falls while nothing is taken, across the end of a window too, so there is one such instant:
//
//	in this window   previous * (period - elapsed) <= (limit - quantity - current) * period
//	in the next      current  * (period - elapsed) <= (limit - quantity) * period
//
// each solved for the least elapsed. It does not fit now, so previous, or current, is above 0, and both quotients are
// less than a period.
func (l Limit) fitsSlidingAt(w Sliding, quantity int64) int64 {
	others := l.size - quantity // what may be in view beside it
	at := w.Start + l.period
	if w.Current <= others {
		at -= mulDiv(others-w.Current, l.period, w.Previous)
	} else {
		at += l.period - mulDiv(others, l.period, w.Current)
	}
	return min(at, w.End)
}

// fitsSlidingFrom is the first instant from at on where a quantity fits, in the state that is kept.
func (l Limit) fitsSlidingFrom(at int64, s Sliding, quantity int64) int64 {
	w := l.readSliding(at, s)
	if quantity <= l.roomInSliding(at, w) {
		return at
	}
	return l.fitsSlidingAt(w, quantity)
}

// add takes from this window, or gives back: to this window first, then to the one before. The newest goes first because
// it would stay in view longest, and is the likeliest to be what the caller did not use.
func (s Sliding) add(taken int64) (Sliding, error) {
	if taken < -s.Current {
		s.Previous = max(s.Previous+(s.Current+taken), 0) // in this order no sum overflows
		s.Current = 0
		return s, nil
	}
	current, err := add(s.Current, taken)
	s.Current = current
	return s, err
}

// mulDiv is a * b / c, rounded down. None is negative, and the quotient must fit; the product has up to 123 bits.
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

// Package window implements the limiters that count what was taken in a period: the fixed window
// counter, the sliding window counter and the sliding window log. Like gcra it is pure arithmetic:
// state and instant go in, decision and state come out. The caller owns the clock and the state.
//
// The three differ in what they store, and so in how closely they enforce "at most limit in any
// period":
//
//	Fixed    one count        up to twice the limit, around the end of a window
//	Sliding  two counts       fewer than twice the limit; on random traffic a ninth more at most, from a limit of 100 on
//	Log      every instant    exact
//
// The rest they share. Each computes from its state the remaining quantity, from which one function
// decides for all; and each has its own computation of when a refused quantity will be allowed.
//
// The state of a key ends at an instant that belongs to the state (End); from then on the store
// treats the key as absent.
//
// The period is an argument of every call, so it may differ between calls, and a call must not make
// the limiter forget what calls with another period have counted. A fixed window lasts as long as
// the longest period of any call that took something in it. The other two store a period with the
// key. The stored period decides, whatever period a call names, until it has once elapsed since the
// last taking call that named it (Until); after that the period of the next call decides. Only
// calls that take something count as naming a period. When a shorter period takes over from a
// stored one, a sliding window counter converts what is in view at Until into the count of the
// previous window.
package window

import (
	"math"
	"time"

	"cellserver/internal/quota"
)

const (
	maxPeriod = 1_000_000_000 // seconds, 31 years

	// maxInstant is far enough from the largest int64 that two periods can be added to it without
	// overflow.
	maxInstant = math.MaxInt64 - 2*maxPeriod*int64(time.Second) // ns: in the year 2198
)

// Limit is a quota of size per period. Use NewLimit to make one; the zero Limit is invalid.
type Limit struct {
	size   int64
	period int64 // ns
}

// Size returns the largest quantity that can ever be allowed at once.
func (l Limit) Size() int64 { return l.size }

// Period returns the period.
func (l Limit) Period() time.Duration { return time.Duration(l.period) }

// NewLimit makes a limit from the arguments of a call; period is in seconds.
func NewLimit(limit, period int64) (Limit, error) {
	switch {
	case limit < 0:
		return Limit{}, &quota.ArgumentError{Name: "limit", Lo: 0, Hi: math.MaxInt64}
	case period < 1 || period > maxPeriod:
		return Limit{}, &quota.ArgumentError{Name: "period", Lo: 1, Hi: maxPeriod}
	}
	return Limit{size: limit, period: period * int64(time.Second)}, nil
}

// Blocks reports whether a call is limited whatever the state is, because the limit is 0.
func (l Limit) Blocks(quantity int64, mode quota.Mode) bool {
	return l.size == 0 && quantity > 0 && mode != quota.Force
}

// instant limits an instant to the years 1970 to 2198, so that every int64 has a result. At the
// last instant, time stands still and nothing becomes free.
func instant(ns int64) int64 { return min(max(ns, 0), maxInstant) }

// inDebt is the remaining quantity of a key that is beyond its limit. How far beyond matters only
// for the wait.
const inDebt = -1

// remainingAfter returns what is left of the limit if used has been taken.
func (l Limit) remainingAfter(used int64) int64 { return max(l.size-used, inDebt) } // neither is negative

// verdict is the result of decide.
type verdict struct {
	limited bool
	taken   int64 // to be added to the count; negative for a refund, which is limited to what was used
	wanted  int64 // the quantity that a limited caller waits for
}

// decide decides a quantity, given what remains of the limit. The mode matters only for positive
// quantities; 0 is limited only in debt, and refunds always apply.
func (l Limit) decide(remaining, quantity int64, mode quota.Mode) verdict {
	switch {
	case quantity < 0:
		return verdict{taken: quantity}
	case quantity > 0 && mode == quota.UpTo:
		taken := min(quantity, max(remaining, 0))
		return verdict{limited: taken == 0, taken: taken, wanted: 1}
	case quantity > 0 && mode == quota.Force:
		return verdict{limited: quantity > remaining, taken: quantity, wanted: 1}
	case quantity > remaining:
		return verdict{limited: true, wanted: quantity}
	default:
		return verdict{taken: quantity}
	}
}

// deciding returns the limit that decides a call at now: that of the call, but with the stored
// period before until.
func (l Limit) deciding(now, period, until int64) Limit {
	if now < until && 0 < period && period <= maxPeriod*int64(time.Second) {
		l.period = period
	}
	return l
}

// extendUntil returns the new Until after a call at now has taken something. The call extends it
// only if it named the period that decided.
func (l Limit) extendUntil(now, until int64, deciding Limit) int64 {
	if l.period != deciding.period {
		return until
	}
	return max(until, now+l.period)
}

// handOver returns the instant at which a refused call should be repeated if another period decides
// from until on. at is the result by the period that decides now, then the result by the call's
// own. Replies are rounded up to seconds, so an instant in the last second before until is returned
// only if the call would be admitted from then on.
func handOver(at, until, then int64) int64 {
	if at < until && then == until || at <= until-int64(time.Second) {
		return at
	}
	return then
}

// canFitLater reports whether a refused quantity will be allowed later. More than the limit never
// is.
func (l Limit) canFitLater(v verdict) bool { return v.limited && v.wanted <= l.size }

// add returns used + taken, at least 0, or an error if the sum does not fit in an int64. Only a
// forced quantity, which no limit bounds, can be that large.
func add(used, taken int64) (int64, error) {
	if taken > math.MaxInt64-used {
		return used, quota.ErrQuantity
	}
	return max(used+taken, 0), nil
}

// Package window implements the limiters that count what was taken in a period: the fixed window
// counter, the sliding window counter and the sliding window log. Like gcra it is pure arithmetic:
// state and instant go in, decision and state come out. The caller owns the clock and the state.
//
// The three differ in what they store, and so in how closely they enforce "at most limit in any
// period":
//
//	Fixed    one count        up to twice the limit, around the end of a window
//	Sliding  two counts       less than twice the limit; with random traffic and a limit from 100 on, 1/9 more at most
//	Log      every instant    exact
//
// They share the rest: each computes the remaining quantity from its state, and one function
// decides from that. Each computes in its own way when a refused quantity will be allowed.
//
// The state of a key ends at an instant that belongs to the state (End); from then on the store
// treats the key as absent.
//
// The period is an argument of every call, so it may differ between calls, and a call must not make
// the limiter forget what calls with another period have counted. A fixed window lasts as long as
// the longest period of any call that took something in it. The other two store a period with the
// key. The stored period decides calls with any period until the instant Until: one stored period
// after the last call that had this period and took something. From Until on, the period of the call
// decides about what was in view then: what has left does not return, however long the period is, so
// that what remains only grows while nothing is taken. A sliding window counter converts what is in
// view at Until into the count of the previous window.
package window

import (
	"math"
	"time"

	"cellserver/internal/quota"
)

const (
	maxPeriod = 1_000_000_000 // seconds, 31 years

	// MaxInstant is the last instant for which steps compute. It is far enough from the largest
	// int64 that two periods can be added to it without overflow.
	MaxInstant = math.MaxInt64 - 2*maxPeriod*int64(time.Second) // ns: in the year 2198
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

// Plus returns the limit with a larger size, which is at most the largest int64. more is not negative.
func (l Limit) Plus(more int64) Limit {
	l.size = min(l.size, math.MaxInt64-more) + more
	return l
}

// NewLimit makes a limit from the arguments of a call.
func NewLimit(limit int64, period quota.Period) (Limit, error) {
	ns, ok := period.Nanoseconds(maxPeriod)
	switch {
	case limit < 0:
		return Limit{}, &quota.ArgumentError{Name: "limit", Lo: 0, Hi: math.MaxInt64}
	case !ok:
		return Limit{}, &quota.ArgumentError{Name: "period", Lo: 1, Hi: maxPeriod}
	}
	return Limit{size: limit, period: ns}, nil
}

// Blocks reports whether a call is limited whatever the state is, because the limit is 0.
func (l Limit) Blocks(quantity int64, mode quota.Mode) bool {
	return l.size == 0 && quantity > 0 && mode != quota.Force
}

// instant limits an instant to the years 1970 to 2198, so that every int64 has a result. At the
// last instant, time stands still and nothing becomes free.
func instant(ns int64) int64 { return min(max(ns, 0), MaxInstant) }

// inDebt is the remaining quantity of every key that is beyond its limit. How far it is beyond
// matters only for the time to wait.
const inDebt = -1

// remainingAfter returns what is left of the limit if used has been taken.
func (l Limit) remainingAfter(used int64) int64 { return max(l.size-used, inDebt) } // neither is negative

// verdict is the result of decide.
type verdict struct {
	limited bool
	taken   int64 // to be added to the count; negative for a refund
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

// deciding returns the limit that decides a call at now: the limit of the call, with the stored
// period in place of its own before until.
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

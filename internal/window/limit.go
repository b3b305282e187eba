// Package window holds the limiters that count what was taken in a period: the fixed window
// counter, the sliding window counter and the sliding window log. Like gcra it is arithmetic alone:
// state and instant in, decision and state out. Who owns the clock and who keeps the state is for
// the caller to say.
//
// The three differ in what they remember, and so in how near they come to "at most limit in any
// period":
//
//	Fixed    one count        up to twice the limit, around the end of a window
//	Sliding  two counts       fewer than twice the limit; on random traffic a ninth more at most, from a limit of 100 on
//	Log      every instant    exact
//
// They share everything else. Each reads its state as a room, how much still fits; one decision is
// made for all of them from that; and each works out in its own way when a quantity that did not
// fit will.
//
// A key's state ends at an instant that belongs to it (End): the store takes it for absent from
// there on.
//
// The period comes with every call, so it may differ from one call to the next, and must not let a
// call forget what another has counted. A fixed window that is open lasts as long as the longest
// period that a taking call has named. Of the others a key keeps its period too: that one decides,
// whatever a call names, until it has once passed since a taking call named it last (Until); then
// the period of the next call does. Only calls that take name a period. A sliding window counter
// hands what is in view at Until to a shorter period as the count of its window before.
package window

import (
	"math"
	"time"

	"cellserver/internal/quota"
)

const (
	maxPeriod = 1_000_000_000 // seconds, 31 years

	// maxInstant leaves two periods between the last instant and the last int64: no sum of the two
	// can overflow.
	maxInstant = math.MaxInt64 - 2*maxPeriod*int64(time.Second) // ns: in the year 2198
)

// Limit is a quota of size in each period. NewLimit makes one; the zero Limit is invalid.
type Limit struct {
	size   int64
	period int64 // ns
}

// Size is the largest quantity that can ever be allowed at once.
func (l Limit) Size() int64 { return l.size }

// Period is what the size is counted over.
func (l Limit) Period() time.Duration { return time.Duration(l.period) }

// NewLimit translates a call's arguments; period is in seconds.
func NewLimit(limit, period int64) (Limit, error) {
	switch {
	case limit < 0:
		return Limit{}, &quota.ArgumentError{Name: "limit", Lo: 0, Hi: math.MaxInt64}
	case period < 1 || period > maxPeriod:
		return Limit{}, &quota.ArgumentError{Name: "period", Lo: 1, Hi: maxPeriod}
	}
	return Limit{size: limit, period: period * int64(time.Second)}, nil
}

// Blocks says whether nothing can ever be taken: then a call is limited, whatever the state is.
func (l Limit) Blocks(quantity int64, mode quota.Mode) bool {
	return l.size == 0 && quantity > 0 && mode != quota.Force
}

// instant makes an answer possible for every int64: what lies before 1970 counts as 1970, and what
// lies after 2198 as 2198. A clock that stands still frees nobody.
func instant(ns int64) int64 { return min(max(ns, 0), maxInstant) }

// inDebt is the room of a key that holds more than its limit. By how much is for its wait to say.
const inDebt = -1

// roomBeside is what fits beside used.
func (l Limit) roomBeside(used int64) int64 { return max(l.size-used, inDebt) } // neither is negative

// verdict is what a decision leaves to be done.
type verdict struct {
	limited bool
	taken   int64 // to be added to the count; below 0 it is given back, as far as there is something
	wanted  int64 // what a limited caller waits for
}

// decide says what becomes of a quantity where room is left. A mode says how a positive quantity is
// taken and has no part in the others: 0 asks about debt alone, and what is given back always
// applies.
func (l Limit) decide(room, quantity int64, mode quota.Mode) verdict {
	switch {
	case quantity < 0:
		return verdict{taken: quantity}
	case quantity > 0 && mode == quota.UpTo:
		taken := min(quantity, max(room, 0))
		return verdict{limited: taken == 0, taken: taken, wanted: 1}
	case quantity > 0 && mode == quota.Force:
		return verdict{limited: quantity > room, taken: quantity, wanted: 1}
	case quantity > room:
		return verdict{limited: true, wanted: quantity}
	default:
		return verdict{taken: quantity}
	}
}

// by is the limit of a call as it is decided at now: over the stored period, until that has passed
// since it was named.
func (l Limit) by(now, stored, until int64) Limit {
	if now < until && 0 < stored && stored <= maxPeriod*int64(time.Second) {
		l.period = stored
	}
	return l
}

// named is until when the period of a call, which has just taken, decides: unless another does,
// which it has not named.
func (l Limit) named(now, until int64, by Limit) int64 {
	if l.period != by.period {
		return until
	}
	return max(until, now+l.period)
}

// handOver is when a call is told to come back that would be admitted at an instant, by the period
// that decides now. From until on its own does, which would admit it then, and not before. Replies
// round up to a second: so within the last one before the hand-over a time is told only if it holds
// from there on.
func handOver(at, until, then int64) int64 {
	if at < until && then == until || at <= until-int64(time.Second) {
		return at
	}
	return then
}

// waits says whether there is something to wait for: more than the limit never fits.
func (l Limit) waits(v verdict) bool { return v.limited && v.wanted <= l.size }

// add is used after a verdict: never below empty, and an error where no int64 holds it. Only a
// forced quantity, which no limit bounds, can be that large.
func add(used, taken int64) (int64, error) {
	if taken > math.MaxInt64-used {
		return used, quota.ErrQuantity
	}
	return max(used+taken, 0), nil
}

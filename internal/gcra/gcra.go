// Package gcra implements the generic cell rate algorithm of ITU-T I.371 and the ATM Forum's
// Traffic Management 4.0, with the parameters of redis-cell: max_burst, count_per_period, period,
// quantity. It is pure arithmetic: state and instant go in, decision and state come out. The caller
// owns the clock and the state.
//
// The standards define the algorithm in two ways and show that both admit the same cells. Virtual
// scheduling keeps one instant, the theoretical arrival time (TAT): when the next cell is due if
// all are evenly spaced. The continuous-state leaky bucket keeps a level that every cell raises by
// the emission interval and that falls by one nanosecond per nanosecond. At any instant
//
//	level = max(TAT - now, 0)
//
// This package stores the TAT, because it is a single number that needs no upkeep, and decides by
// the level, because that is small and does not depend on the clock's epoch. Only Outcome converts
// between the two.
package gcra

import (
	"errors"
	"math"
	"math/bits"
	"time"

	"cellserver/internal/quota"
)

// maxTolerance bounds T to half of the range of int64. The other half is for the clock: until 2116
// the TAT of an allowed call fits in an int64, so only forced debts can be too large.
const maxTolerance = 1<<62 - 1 // ns

// Emission intervals below roundUpBelow are rounded up, the others down. Rounding down favours the
// client by less than 1 ns per token, which from 1000 ns on is under 0.1 %. For shorter intervals
// the error would be larger: 1.9 ns would count as 1, which is nearly twice the intended rate.
// These are rounded up, at the client's expense.
const roundUpBelow = 1000 // ns

// ErrRate and ErrSpan refuse arguments that are each in range but do not form a limit together.
var (
	ErrRate = errors.New("count_per_period is more than 1e9 per second")
	ErrSpan = errors.New("max_burst, count_per_period and period span more than 146 years")
)

// Limit is a quota in the terms of the algorithm. Use NewLimit to make one; the zero Limit is
// invalid.
//
// The standards write GCRA(I, L): a cell of cost I conforms if the level before it is at most L.
// Since quantities can be larger than one, this package compares the level after the call with I +
// L, which the standards call the bucket's capacity.
type Limit struct {
	size      int64 // max_burst + 1, the quantity that an unused key admits at once; 0 blocks all
	emission  int64 // E, the cost of one token in ns (I)
	tolerance int64 // T = E * size, the highest level allowed after a call, in ns (I + L)
}

// Size returns the largest quantity that can ever be allowed at once.
func (l Limit) Size() int64 { return l.size }

// EmissionInterval returns the time in which one token comes back.
func (l Limit) EmissionInterval() time.Duration { return time.Duration(l.emission) }

// Tolerance returns the time in which an exhausted bucket recovers fully.
func (l Limit) Tolerance() time.Duration { return time.Duration(l.tolerance) }

// Blocks reports whether a call is limited whatever the TAT is, because a max_burst of -1 allows no
// quantity.
func (l Limit) Blocks(quantity int64, mode quota.Mode) bool {
	return l.size == 0 && quantity > 0 && mode != quota.Force
}

// Memo caches the last limit. Most clients send the same arguments in every call, and comparing
// three numbers takes 50 instructions fewer than computing the limit, which needs a division of 128
// bits. The zero value is ready for use.
type Memo struct {
	arguments arguments
	limit     Limit
}

// arguments are the arguments of NewLimit.
type arguments struct{ maxBurst, countPerPeriod, period int64 }

// Limit is NewLimit with the number of a quota.Period. The result is valid until the next call. countPerPeriod must not
// be 0: a test would cost every call, and the row of CL.THROTTLE has refused such calls already.
func (m *Memo) Limit(maxBurst, countPerPeriod, period int64) (*Limit, error) {
	a := arguments{maxBurst, countPerPeriod, period}
	if m.arguments == a {
		return &m.limit, nil
	}
	return m.renew(a)
}

func (m *Memo) renew(a arguments) (*Limit, error) {
	limit, err := NewLimit(a.maxBurst, a.countPerPeriod, quota.Period(a.period))
	if err != nil {
		return nil, err
	}
	*m = Memo{a, limit}
	return &m.limit, nil
}

// NewLimit makes a limit from the arguments of a call.
func NewLimit(maxBurst, countPerPeriod int64, period quota.Period) (Limit, error) {
	seconds, nanoseconds := period.Split()
	if err := checkRanges(maxBurst, countPerPeriod, seconds|nanoseconds); err != nil {
		return Limit{}, err
	}
	return newLimit(maxBurst, countPerPeriod, seconds, nanoseconds)
}

// NewLimitOf is NewLimit for a period in seconds and nanoseconds (0 to 999,999,999), not both 0.
func NewLimitOf(maxBurst, countPerPeriod, seconds, nanoseconds int64) (Limit, error) {
	if err := checkRanges(maxBurst, countPerPeriod, max(seconds, 1)); err != nil {
		return Limit{}, err
	}
	if seconds < 0 || nanoseconds < 0 || nanoseconds >= int64(time.Second) || seconds+nanoseconds == 0 {
		return Limit{}, ErrSpan
	}
	return newLimit(maxBurst, countPerPeriod, seconds, nanoseconds)
}

func newLimit(maxBurst, countPerPeriod, seconds, nanoseconds int64) (Limit, error) {
	emission, err := emissionInterval(uint64(countPerPeriod), uint64(seconds), uint64(nanoseconds))
	if err != nil {
		return Limit{}, err
	}
	size := maxBurst + 1
	hi, tolerance := bits.Mul64(emission, uint64(size))
	if hi > 0 || max(tolerance, emission) > maxTolerance {
		return Limit{}, ErrSpan
	}
	return Limit{size: size, emission: int64(emission), tolerance: int64(tolerance)}, nil
}

func checkRanges(maxBurst, countPerPeriod, period int64) error {
	switch {
	case maxBurst < -1 || maxBurst == math.MaxInt64: // max_burst + 1 must be an int64 too
		return &quota.ArgumentError{Name: "max_burst", Lo: -1, Hi: math.MaxInt64 - 1}
	case countPerPeriod < 1:
		return &quota.ArgumentError{Name: "count_per_period", Lo: 1, Hi: math.MaxInt64}
	case period < 1:
		return &quota.ArgumentError{Name: "period", Lo: 1, Hi: math.MaxInt64}
	}
	return nil
}

// emissionInterval returns period / count in whole nanoseconds. The nanoseconds of a period take up
// to 93 bits; bits.Div64 costs no more than a plain division if they fit in 64.
func emissionInterval(count, seconds, nanoseconds uint64) (uint64, error) {
	hi, lo := bits.Mul64(seconds, uint64(time.Second))
	lo, carry := bits.Add64(lo, nanoseconds, 0)
	hi += carry
	if hi >= count { // the quotient has more than 64 bits
		return 0, ErrSpan
	}
	emission, remainder := bits.Div64(hi, lo, count)
	if emission == 0 {
		return 0, ErrRate
	}
	if emission < roundUpBelow && remainder > 0 {
		emission++
	}
	return emission, nil
}

// Step decides a call at the instant now on a key with the theoretical arrival time tat, and
// returns the TAT to store. Both are in nanoseconds of one clock that reads like Unix time; a tat
// of 0 means that the key has no state.
//
// If next == tat, nothing need be stored: the call was limited, was a peek, or refunded nothing. If
// next <= now, the quota is full and the key can be removed. The only error is quota.ErrQuantity,
// for a TAT that does not fit in an int64; then nothing must be stored.
//
// Every int64 is valid: an instant before 1970 counts as 1970. A clock that runs backwards only
// raises the level, so that clients wait longer and are never admitted more often.
func (l Limit) Step(now, tat, quantity int64, mode quota.Mode) (d quota.Decision, next int64, err error) {
	if l.Blocks(quantity, mode) {
		return quota.Blocked(), tat, nil
	}
	o, next, err := l.Outcome(now, tat, quantity, mode)
	if err != nil {
		return quota.Decision{}, next, err
	}
	return l.Decision(o), next, nil
}

// Outcome is Step without the parts of the decision that follow from the limit. The caller must
// have found that Blocks is false.
func (l Limit) Outcome(now, tat, quantity int64, mode quota.Mode) (o Outcome, next int64, err error) {
	now = max(now, 0)
	level := max(max(tat, 0)-now, 0)

	o, err = l.decide(level, quantity, mode)
	if err == nil && o.Level > math.MaxInt64-now {
		err = quota.ErrQuantity
	}
	if err != nil {
		return Outcome{}, tat, err
	}
	next = tat
	if o.Level != level && mode != quota.Peek {
		next = now + o.Level
	}
	return o, next, nil
}

// Outcome is a decision without the parts that follow from the limit. Its four words are passed in
// registers; passing a quota.Decision through memory from function to function made a call through
// a session a tenth slower.
type Outcome struct {
	Limited bool
	Level   int64 // in ns after the call: the time until the quota is full again
	Taken   int64
	Retry   int64 // ns, or quota.Never
}

// Decision converts an outcome to the type that all limiters return.
func (l Limit) Decision(o Outcome) quota.Decision {
	return quota.Decision{
		Limited: o.Limited, Limit: l.size, Remaining: l.remaining(o.Level),
		RetryAfter: o.Retry, ResetAfter: o.Level, Taken: o.Taken,
	}
}

// decide handles a call according to its quantity and mode. The mode matters only for positive
// quantities.
func (l Limit) decide(level, quantity int64, mode quota.Mode) (Outcome, error) {
	switch {
	case quantity < 0:
		return l.refund(level, quantity), nil
	case quantity > 0 && mode == quota.UpTo:
		return l.takeUpTo(level, quantity), nil
	case quantity > 0 && mode == quota.Force:
		return l.takeByForce(level, quantity)
	default:
		return l.take(level, quantity), nil
	}
}

// take takes all or nothing. A quantity above the limit is refused before any multiplication, so
// that every product is at most T and cannot overflow, as it does in redis-cell. A quantity of 0 is
// limited only in debt, after a forced quantity or a lowered limit.
func (l Limit) take(level, quantity int64) Outcome {
	if quantity > l.size {
		return Outcome{Limited: true, Level: level, Retry: quota.Never}
	}
	if wait := l.wait(level, quantity); wait > 0 {
		return Outcome{Limited: true, Level: level, Retry: wait}
	}
	return Outcome{Level: level + l.emission*quantity, Taken: quantity, Retry: quota.Never}
}

// takeUpTo takes as much as is allowed. A limit that does not block has a size of at least 1, so
// there is always a finite wait.
func (l Limit) takeUpTo(level, quantity int64) Outcome {
	taken := min(quantity, l.remaining(level))
	if taken == 0 {
		return Outcome{Limited: true, Level: level, Retry: l.wait(level, 1)}
	}
	return Outcome{Level: level + l.emission*taken, Taken: taken, Retry: quota.Never}
}

// takeByForce records work that has already been done. It can leave a level above T: a debt that
// time or a refund reduces. The quantity may exceed the size; the product has 128 bits, so that a
// debt which does not fit in an int64 is detected.
func (l Limit) takeByForce(level, quantity int64) (Outcome, error) {
	hi, cost := bits.Mul64(uint64(l.emission), uint64(quantity))
	if hi > 0 || cost > uint64(math.MaxInt64-level) {
		return Outcome{}, quota.ErrQuantity
	}
	after := level + int64(cost)
	switch {
	case l.size == 0:
		return Outcome{Limited: true, Level: after, Taken: quantity, Retry: quota.Never}, nil
	case after > l.tolerance:
		return Outcome{Limited: true, Level: after, Taken: quantity, Retry: l.wait(after, 1)}, nil
	}
	return Outcome{Level: after, Taken: quantity, Retry: quota.Never}, nil
}

// refund applies even in debt, and stops at an empty bucket: refunding more than was taken saves
// nothing for later. A token that has already come back in part cannot be refunded as a whole, and
// does not count in Taken.
func (l Limit) refund(level, quantity int64) Outcome {
	magnitude := -uint64(quantity) // exact for -2^63 too, which has no int64 of opposite sign
	hi, credit := bits.Mul64(uint64(l.emission), magnitude)
	if hi == 0 && credit <= uint64(level) {
		return Outcome{Level: level - int64(credit), Taken: quantity, Retry: quota.Never}
	}
	return Outcome{Taken: -(level / l.emission), Retry: quota.Never}
}

// wait returns the time until a quantity of at most the limit is allowed; it is allowed now if that
// is 0 or negative. Subtracting T first prevents overflow for every level.
func (l Limit) wait(level, quantity int64) int64 {
	return level - l.tolerance + l.emission*quantity
}

// remaining returns the number of whole tokens left; 0 in debt.
func (l Limit) remaining(level int64) int64 {
	if level >= l.tolerance {
		return 0
	}
	return int64(uint64(l.tolerance-level) / uint64(l.emission)) // both are positive, and unsigned division is faster
}

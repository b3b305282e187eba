// Package gcra is the generic cell rate algorithm of ITU-T I.371 and the ATM Forum's Traffic
// Management 4.0, in the terms that redis-cell gave it: max_burst, count_per_period, period,
// quantity. It is arithmetic alone: state and instant in, decision and state out. Who owns the
// clock and who keeps the state is for the caller to say.
//
// The standards give the algorithm twice and show that both admit the same cells. Virtual
// scheduling keeps one instant, the theoretical arrival time (TAT): when the next cell is due if
// all come evenly spaced. The continuous-state leaky bucket keeps a level that every cell raises by
// the emission interval and time lowers by one ns a ns. At any instant
//
//	level = max(TAT - now, 0)
//
// This package stores the first, because a single number that needs no upkeep is all a key has to
// hold, and decides in the second, because a level is small and has no epoch: only Step knows what
// time it is.
package gcra

import (
	"errors"
	"math"
	"math/bits"
	"time"

	"cellserver/internal/quota"
)

// maxTolerance bounds T to half of what an int64 holds. The other half is for the clock: until 2116
// the TAT of an allowed call is sure to fit, so only forced debts can be too large.
const maxTolerance = 1<<62 - 1 // ns

// roundUpBelow parts the emission intervals that are floored from those that are rounded up.
// Flooring lets the caller have less than 1 ns in E too much: from 1000 ns on that is under 0.1 %.
// Below, it would grow until 1.9 ns counted as 1, nearly twice the rate that was asked for, so
// there the error goes against the caller.
const roundUpBelow = 1000 // ns

// ErrRate and ErrSpan refuse arguments that each lie in their domain but make no limit together.
var (
	ErrRate = errors.New("count_per_period is more than 1e9 per second")
	ErrSpan = errors.New("max_burst, count_per_period and period span more than 146 years")
)

// Limit is a quota in the algorithm's own terms. NewLimit makes one; the zero Limit is invalid.
//
// The standards write GCRA(I, L): a cell of cost I conforms if the level before it is at most L.
// Quantities can be larger than one, so here the level after the call is compared, with I + L,
// which they call the bucket's capacity.
type Limit struct {
	size      int64 // max_burst + 1: what an unused key admits at once; 0 blocks
	emission  int64 // E, ns: what one token costs (I)
	tolerance int64 // T = E * size, ns: how high the level may be after a call (I + L)
}

// Size is the largest quantity that can ever be allowed at once.
func (l Limit) Size() int64 { return l.size }

// EmissionInterval is the time that brings one token back.
func (l Limit) EmissionInterval() time.Duration { return time.Duration(l.emission) }

// Tolerance is the time that fills an exhausted bucket again.
func (l Limit) Tolerance() time.Duration { return time.Duration(l.tolerance) }

// Blocks says whether nothing can ever be taken, as a max_burst of -1 has it: then a call is
// limited, whatever the TAT is.
func (l Limit) Blocks(quantity int64, mode quota.Mode) bool {
	return l.size == 0 && quantity > 0 && mode != quota.Force
}

// Memo is the limit that was asked for last. Most clients say the same one again and again: to
// compare three numbers takes 50 instructions fewer than to work it out, and no division of 128
// bits. The zero value is ready to use.
type Memo struct {
	asked asked
	limit Limit
}

// asked are NewLimit's arguments.
type asked struct{ maxBurst, countPerPeriod, period int64 }

// Limit is NewLimit. What it returns is valid until the next call.
func (m *Memo) Limit(maxBurst, countPerPeriod, period int64) (*Limit, error) {
	a := asked{maxBurst, countPerPeriod, period}
	if m.asked == a && period != 0 {
		return &m.limit, nil
	}
	return m.renew(a)
}

func (m *Memo) renew(a asked) (*Limit, error) {
	limit, err := NewLimit(a.maxBurst, a.countPerPeriod, a.period)
	if err != nil {
		return nil, err
	}
	*m = Memo{a, limit}
	return &m.limit, nil
}

// NewLimit translates a call's arguments; period is in seconds.
func NewLimit(maxBurst, countPerPeriod, period int64) (Limit, error) {
	if err := checkDomains(maxBurst, countPerPeriod, period); err != nil {
		return Limit{}, err
	}
	return newLimit(maxBurst, countPerPeriod, period, 0)
}

// NewLimitOf is NewLimit for a period of seconds and nanoseconds (0 to 999,999,999), one of which
// is not 0.
func NewLimitOf(maxBurst, countPerPeriod, seconds, nanoseconds int64) (Limit, error) {
	if err := checkDomains(maxBurst, countPerPeriod, max(seconds, 1)); err != nil {
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

func checkDomains(maxBurst, countPerPeriod, period int64) error {
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

// emissionInterval is period / count in whole ns. The ns of a period take up to 93 bits; bits.Div64
// costs no more than a plain division where they fit in 64.
func emissionInterval(count, seconds, nanoseconds uint64) (uint64, error) {
	hi, lo := bits.Mul64(seconds, uint64(time.Second))
	lo, carry := bits.Add64(lo, nanoseconds, 0)
	hi += carry
	if hi >= count { // the quotient has more than 64 bits
		return 0, ErrSpan
	}
	emission, rest := bits.Div64(hi, lo, count)
	if emission == 0 {
		return 0, ErrRate
	}
	if emission < roundUpBelow && rest > 0 {
		emission++
	}
	return emission, nil
}

// Step decides a call made at now on a key whose TAT is tat, and returns the TAT to keep. Both are
// ns of one clock that reads like Unix time; a tat of 0 says that the key has no state.
//
// next == tat says that there is nothing to store: the call was limited, asked without taking, or
// gave back to a bucket that held nothing. next <= now says that the key is as if never used. The
// only error is quota.ErrQuantity, for a TAT that no int64 can hold; it too stores nothing.
//
// Every int64 has an answer: an instant before 1970 counts as 1970. A clock that runs back only
// lets the level rise: the caller waits longer, and is let in no more often.
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

// Outcome is Step without what the limit itself says, for a call that it does not block: the caller
// has asked already.
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

// Outcome is a decision but for what follows from the limit. Its four words travel in registers; a
// whole quota.Decision, handed up through memory from function to function, made a call through a
// session a tenth slower.
type Outcome struct {
	Limited bool
	Level   int64 // after the call, ns: the time until the key is as if never used
	Taken   int64
	Retry   int64 // ns, or quota.Never
}

// Decision is an outcome in the words of all limiters.
func (l Limit) Decision(o Outcome) quota.Decision {
	return quota.Decision{
		Limited: o.Limited, Limit: l.size, Remaining: l.remaining(o.Level),
		RetryAfter: o.Retry, ResetAfter: o.Level, Taken: o.Taken,
	}
}

// decide routes a call by what it wants. A mode says how a positive quantity is taken and has no
// part in the others.
func (l Limit) decide(level, quantity int64, mode quota.Mode) (Outcome, error) {
	switch {
	case quantity < 0:
		return l.giveBack(level, quantity), nil
	case quantity > 0 && mode == quota.UpTo:
		return l.takeUpTo(level, quantity), nil
	case quantity > 0 && mode == quota.Force:
		return l.takeByForce(level, quantity)
	default:
		return l.take(level, quantity), nil
	}
}

// take is all or nothing. A quantity larger than the limit is refused before any product is formed:
// every product that is left is at most T, and redis-cell's wrapped answers cannot arise. A
// quantity of 0 is limited in debt alone, which a forced quantity or a lowered limit has left
// behind.
func (l Limit) take(level, quantity int64) Outcome {
	if quantity > l.size {
		return Outcome{Limited: true, Level: level, Retry: quota.Never}
	}
	if wait := l.wait(level, quantity); wait > 0 {
		return Outcome{Limited: true, Level: level, Retry: wait}
	}
	return Outcome{Level: level + l.emission*quantity, Taken: quantity, Retry: quota.Never}
}

// takeUpTo takes what fits. A limit that does not block has a size of 1 at least, so there is
// always a wait after which something does.
func (l Limit) takeUpTo(level, quantity int64) Outcome {
	taken := min(quantity, l.remaining(level))
	if taken == 0 {
		return Outcome{Limited: true, Level: level, Retry: l.wait(level, 1)}
	}
	return Outcome{Level: level + l.emission*taken, Taken: taken, Retry: quota.Never}
}

// takeByForce records work that has already happened, so it can leave a level above T: a debt, to
// be waited off or given back. No size bounds the quantity; 128 bits find the debts that no int64
// holds.
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

// giveBack applies whatever the debt, and stops at empty: who gives back more than was taken has
// not saved up for later. Of a token that has come back in part by itself no whole one comes back,
// and none is said to.
func (l Limit) giveBack(level, quantity int64) Outcome {
	magnitude := -uint64(quantity) // exact for -2^63 too, whose int64 has no opposite
	hi, credit := bits.Mul64(uint64(l.emission), magnitude)
	if hi == 0 && credit <= uint64(level) {
		return Outcome{Level: level - int64(credit), Taken: quantity, Retry: quota.Never}
	}
	return Outcome{Taken: -(level / l.emission), Retry: quota.Never}
}

// wait is the time until a quantity of at most the limit fits above level; it fits now if that is 0
// or less. Subtracting T first keeps the sum in range for every level.
func (l Limit) wait(level, quantity int64) int64 {
	return level - l.tolerance + l.emission*quantity
}

// remaining is how many whole tokens fit above level; none in debt.
func (l Limit) remaining(level int64) int64 {
	if level >= l.tolerance {
		return 0
	}
	return int64(uint64(l.tolerance-level) / uint64(l.emission)) // both positive; unsigned divides faster
}

package window

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/quota"
)

// The model implements the contract a second time, with integers of any size and without formulas
// for time: it computes what is in view at an instant as the contract defines it, and finds waits
// by trying. It shares no arithmetic with the code under test.

func n(i int64) *big.Int           { return big.NewInt(i) }
func plus(a, b *big.Int) *big.Int  { return new(big.Int).Add(a, b) }
func minus(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }
func times(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }

// modelOf describes a kind of state by the terms of the contract.
type modelOf[S any] struct {
	weigh  func(l Limit, s S, t int64) *big.Int // what is in view at t, times the period
	all    func(l Limit, s S, t int64) *big.Int // how much can be refunded at t
	stored func(s S) (period, until int64)      // the stored period, and until when it decides; a fixed window has none
	apply  func(l Limit, s S, now, taken int64) (S, *big.Int)
	name   func(own, l Limit, s S, now int64) S // the state after own has taken, and l has decided
}

// decides returns the limit whose period decides at t.
func (v modelOf[S]) decides(own Limit, s S, t int64) (l Limit, until int64) {
	if v.stored == nil {
		return own, 0
	}
	l = own
	period, until := v.stored(s)
	if t < until && period >= 1 && period <= 1e18 {
		l.period = period
	}
	return l, until
}

func (v modelOf[S]) step(own Limit, now int64, s S, quantity int64, mode quota.Mode) (quota.Decision, S, error) {
	now = min(max(now, 0), MaxInstant)
	if own.size == 0 && quantity > 0 && mode != quota.Force { // whatever the state is
		return quota.Decision{Limited: true, RetryAfter: quota.Never}, s, nil
	}
	l, _ := v.decides(own, s, now)
	limited, taken, wanted := v.admit(l, s, now, quantity, mode)
	after, taken, err := v.take(own, l, s, now, taken)
	if err != nil {
		return quota.Decision{}, s, err
	}
	d := quota.Decision{Limited: limited, Limit: l.size, RetryAfter: quota.Never, Taken: taken}
	if left := v.room(l, after, now); left.Sign() > 0 {
		d.Remaining = left.Int64()
	}
	d.ResetAfter = firstAt(now, func(t int64) bool { return v.weigh(l, after, t).Sign() == 0 }) - now
	if limited && wanted <= l.size {
		d.RetryAfter = v.retryAt(own, l, after, now, wanted) - now
	}
	if mode == quota.Peek {
		after = s
	}
	return d, after, nil
}

// room returns how much fits at t. It rounds down, as Div does for positive divisors.
func (v modelOf[S]) room(l Limit, s S, t int64) *big.Int {
	return new(big.Int).Div(minus(times(n(l.size), n(l.period)), v.weigh(l, s, t)), n(l.period))
}

func (v modelOf[S]) fits(l Limit, s S, t, quantity int64) bool {
	return n(quantity).Cmp(v.room(l, s, t)) <= 0
}

// admit returns whether a call is limited, how much it takes, and how much must fit before a retry.
func (v modelOf[S]) admit(l Limit, s S, now, quantity int64, mode quota.Mode) (limited bool, taken, wanted int64) {
	switch {
	case quantity < 0:
	case quantity > 0 && mode == quota.UpTo:
		taken = quantity
		if left := v.room(l, s, now); left.Sign() <= 0 {
			taken = 0
		} else if left.Cmp(n(quantity)) < 0 {
			taken = left.Int64()
		}
		return taken == 0, taken, 1
	case quantity > 0 && mode == quota.Force:
		return !v.fits(l, s, now, quantity), quantity, 1
	case !v.fits(l, s, now, quantity):
		return true, 0, quantity
	}
	return false, quantity, quantity
}

// take returns the state after a call, and how much the call has taken or refunded.
func (v modelOf[S]) take(own, l Limit, s S, now, quantity int64) (after S, taken int64, err error) {
	after, taken = s, quantity
	if all := v.all(l, s, now); taken < 0 && plus(all, n(taken)).Sign() < 0 {
		taken = -all.Int64() // a refund is limited to what there is
	}
	if taken != 0 {
		var largest *big.Int
		if after, largest = v.apply(l, s, now, taken); !largest.IsInt64() {
			return s, 0, quota.ErrQuantity
		}
	}
	if taken > 0 {
		after = v.name(own, l, after, now)
	}
	return after, taken, nil
}

// retryAt returns the instant at which wanted fits.
func (v modelOf[S]) retryAt(own, l Limit, after S, now, wanted int64) int64 {
	at := firstAt(now, func(t int64) bool { return v.fits(l, after, t, wanted) })
	if _, until := v.decides(own, after, now); l != own && at >= until { // another period has taken over by then
		at = firstAt(until, func(t int64) bool { return v.fits(own, after, t, wanted) })
	}
	return at
}

// firstAt returns the first instant from now on for which holds is true. It must be true for all
// later instants.
func firstAt(now int64, holds func(t int64) bool) int64 {
	if holds(now) {
		return now
	}
	early, late := now, int64(math.MaxInt64)
	for late-early > 1 {
		if middle := early + (late-early)/2; holds(middle) {
			late = middle
		} else {
			early = middle
		}
	}
	return late
}

var viewedFixed = modelOf[Fixed]{
	weigh: func(l Limit, s Fixed, t int64) *big.Int { return times(viewedFixedAll(l, s, t), n(l.period)) },
	all:   viewedFixedAll,
	apply: func(l Limit, s Fixed, now, taken int64) (Fixed, *big.Int) {
		if now >= s.End || s.Used <= 0 {
			s = Fixed{Start: now, End: now}
		}
		used := plus(n(s.Used), n(taken))
		if used.Sign() <= 0 {
			return Fixed{}, n(0)
		}
		return Fixed{Start: instant(s.Start), Used: used.Int64(), End: s.End}, used
	},
	name: func(own, _ Limit, s Fixed, _ int64) Fixed {
		if longest := s.Start + own.period; longest > s.End {
			s.End = longest
		}
		return s
	},
}

// viewedFixedAll returns the count of a window, which lasts as long as the longest period that was
// named.
func viewedFixedAll(_ Limit, s Fixed, t int64) *big.Int {
	if t >= s.End || s.Used < 0 {
		return n(0)
	}
	return n(s.Used)
}

func modelFixed(l Limit, now int64, s Fixed, quantity int64, mode quota.Mode) (quota.Decision, Fixed, error) {
	return viewedFixed.step(l, now, s, quantity, mode)
}

// handed converts to another period as the contract says: everything that the stored period had in
// view when it stopped deciding leaves together with one window of the other period.
func handed(l Limit, s Sliding, t int64) Sliding {
	kept, _ := storedSliding(s)
	if t >= s.End || l.period == kept || kept < 1 || kept > 1e18 {
		return s
	}
	stored, until := Limit{size: l.size, period: kept}, instant(s.Until)
	seen := new(big.Int).Div(plus(weighSliding(stored, s, until), n(kept-1)), n(kept))
	if !seen.IsInt64() {
		seen = n(math.MaxInt64)
	}
	return Sliding{Start: until, Previous: seen.Int64(), Until: s.Until, End: s.End}
}

// weighSliding returns the sum of both counts times the period, the older weighted by the part of
// its window in view.
func weighSliding(l Limit, s Sliding, t int64) *big.Int {
	s = rolled(l, s, t)
	e := max(t-s.Start, 0)
	return plus(times(n(s.Previous), n(l.period-e)), times(n(s.Current), n(l.period)))
}

// rolled moves the windows forward to t as the contract says, and keeps counts that have left.
func rolled(l Limit, s Sliding, t int64) Sliding {
	s = handed(l, s, t)
	s.Start, s.Previous, s.Current = instant(s.Start), max(s.Previous, 0), max(s.Current, 0)
	switch windows := new(big.Int).Quo(minus(n(t), n(s.Start)), n(l.period)).Int64(); {
	case t >= s.End || windows >= 2:
		return Sliding{Start: t}
	case windows == 1:
		s.Start, s.Previous, s.Current = s.Start+l.period, s.Current, 0
	}
	if s.Previous == 0 && s.Current == 0 {
		return Sliding{Start: t}
	}
	return s
}

var viewedSliding = modelOf[Sliding]{
	weigh: weighSliding,
	all: func(l Limit, s Sliding, t int64) *big.Int {
		s = rolled(l, s, t)
		return plus(n(s.Previous), n(s.Current))
	},
	stored: storedSliding,
	name: func(own, l Limit, s Sliding, now int64) Sliding {
		if own == l && s.Until < now+l.period {
			s.Until = now + l.period
		}
		return s
	},
	apply: func(l Limit, s Sliding, now, taken int64) (Sliding, *big.Int) {
		s = rolled(l, s, now)
		p, c := n(s.Previous), plus(n(s.Current), n(taken))
		if c.Sign() < 0 {
			p, c = plus(p, c), n(0)
		}
		switch {
		case c.Sign() > 0:
			return Sliding{s.Start, p.Int64(), c.Int64(), s.Until, s.Start + 2*l.period}, c
		case p.Sign() > 0:
			return Sliding{s.Start, p.Int64(), 0, s.Until, s.Start + l.period}, p
		}
		return Sliding{}, n(0)
	},
}

// storedSliding returns the period that follows from the start and the end.
func storedSliding(s Sliding) (period, until int64) {
	if s.Current > 0 { // the key then lasts for two windows
		return (s.End - instant(s.Start)) / 2, min(s.Until, s.End)
	}
	return s.End - instant(s.Start), min(s.Until, s.End)
}

func modelSliding(l Limit, now int64, s Sliding, quantity int64, mode quota.Mode) (quota.Decision, Sliding, error) {
	return viewedSliding.step(l, now, s, quantity, mode)
}

// quantities converts the running totals to quantities.
func (s logState) quantities() (quantities []int64) {
	before := s.Base
	for _, e := range s.entries {
		quantities = append(quantities, int64(e.Total-before))
		before = e.Total
	}
	return quantities
}

// inView reports whether an entry is in view at t: for less than a period, and if the stored period has
// stopped deciding, only if the entry was in view at the last instant before.
func (s logState) inView(l Limit, e Entry, t int64) bool {
	if t >= s.End || e.At <= t-l.period {
		return false
	}
	return t < s.Until || e.At > max(s.Until, 0)-1-s.period()
}

// viewedLogAll returns the sum of the entries in view.
func viewedLogAll(l Limit, s logState, t int64) *big.Int {
	sum := n(0)
	for i, quantity := range s.quantities() {
		if s.inView(l, s.entries[i], t) {
			sum = plus(sum, n(quantity))
		}
	}
	return sum
}

var viewedLog = modelOf[logState]{
	weigh: func(l Limit, s logState, t int64) *big.Int { return times(viewedLogAll(l, s, t), n(l.period)) },
	all:   viewedLogAll,
	stored: func(s logState) (period, until int64) {
		if len(s.entries) == 0 {
			return 0, 0
		}
		return s.End - s.entries[len(s.entries)-1].At, min(s.Until, s.End)
	},
	name: func(own, l Limit, s logState, now int64) logState {
		if own == l && s.Until < now+l.period {
			s.Until = now + l.period
		}
		return s
	},
	apply: func(l Limit, s logState, now, taken int64) (logState, *big.Int) {
		var at, held []int64
		base, sum := s.Base, n(taken)
		for i, quantity := range s.quantities() {
			if s.inView(l, s.entries[i], now) {
				at, held, sum = append(at, s.entries[i].At), append(held, quantity), plus(sum, n(quantity))
			} else {
				base += uint64(quantity)
			}
		}
		if len(at) == 0 {
			s.Until = 0 // no call has named a period
		}
		if taken > 0 {
			at, held = append(at, now), append(held, taken)
			// The entry joins the newest entry, at the later instant.
			if last := len(at) - 1; last > 0 && (at[last-1] >= now || last >= s.spare+3) {
				held[last-1] += taken
				at[last-1] = max(at[last-1], now)
				at, held = at[:last], held[:last]
			}
		}
		for last := len(at) - 1; taken < 0 && last >= 0; last-- {
			if held[last]+taken > 0 {
				held[last] += taken
				break
			}
			taken += held[last]
			at, held = at[:last], held[:last]
		}
		if len(at) == 0 {
			return logState{spare: s.spare}, n(0)
		}
		after := logState{Log: Log{Base: base, Until: s.Until, End: at[len(at)-1] + l.period}, spare: s.spare}
		for i := range at {
			base += uint64(held[i])
			after.entries = append(after.entries, Entry{At: at[i], Total: base})
		}
		return after, sum
	},
}

func modelLog(l Limit, now int64, s logState, quantity int64, mode quota.Mode) (quota.Decision, logState, error) {
	return viewedLog.step(l, now, s, quantity, mode)
}

// edgeCases are the int64s at which arithmetic is likely to fail.
var edgeCases = []int64{
	0, 1, -1, 2, -2, 999, 1000, 1001, 1e9 - 1, 1e9, 1e9 + 1, -1e9, 1e18 - 1, 1e18, 1e18 + 1, 2e18, 9223372036, 9223372037,
	1<<62 - 1, 1 << 62, 1<<62 + 1, -(1 << 62), math.MaxInt64 - 1, math.MaxInt64, math.MinInt64, math.MinInt64 + 1,
	epoch, epoch + 1, epoch - 1, MaxInstant - 1, MaxInstant, MaxInstant + 1,
}

func anyInt64() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.SampledFrom(edgeCases), rapid.Int64(), rapid.Int64Range(-20, 20))
}

// differs reports how step differs from the model for this call.
func differs[S any](step, model stepFunc[S], l Limit, now int64, s S, quantity int64, mode quota.Mode) error {
	d, next, err := step(l, now, s, quantity, mode)
	want, wantNext, wantErr := model(l, now, s, quantity, mode)
	if d != want || !same(next, wantNext) || !errors.Is(err, wantErr) {
		return fmt.Errorf("%+v now %d state %+v quantity %d mode %d:\n got %+v %+v %v\nwant %+v %+v %v",
			l, now, s, quantity, mode, d, next, err, want, wantNext, wantErr)
	}
	return nil
}

// outOfBounds reports results that no call may have, whatever its arguments.
func outOfBounds[S any](step stepFunc[S], l Limit, now int64, s S, quantity int64, mode quota.Mode) error {
	d, next, err := step(l, now, s, quantity, mode)
	switch {
	case err != nil && same(next, s) && d == quota.Decision{} && mode == quota.Force && quantity > 0:
		return nil
	case err != nil, d.Limit != l.size, d.Remaining < 0, d.Remaining > d.Limit, d.ResetAfter < 0,
		d.RetryAfter != quota.Never && (!d.Limited || d.RetryAfter <= 0 || d.RetryAfter > d.ResetAfter):
		return fmt.Errorf("%+v now %d state %+v quantity %d mode %d: %+v, next %+v, error %v", l, now, s, quantity, mode,
			d, next, err)
	}
	return nil
}

// FuzzStep passes any arguments that can arrive over the network, and states that no correct store
// has. The model covers any fixed or sliding state, and logs whose entries are in order.
func FuzzStep(f *testing.F) {
	for i, edge := range edgeCases {
		other, third := edgeCases[(i*7+3)%len(edgeCases)], edgeCases[(i*11+5)%len(edgeCases)]
		for mode := quota.Take; mode <= quota.Force; mode++ {
			f.Add(int64(4), int64(1), epoch, edge, other, third, epoch+5e8, int64(1), uint8(mode))
			f.Add(int64(4), int64(10), edge, epoch, int64(3), int64(2), epoch+2e10, other, uint8(mode))
			f.Add(edge, int64(1e9), epoch, epoch-1e9, other, third, third, edge, uint8(mode))
			f.Add(int64(math.MaxInt64), int64(1e9), edge, other, third, edge, int64(math.MaxInt64), other, uint8(mode))
			f.Add(edge, other, epoch, epoch, int64(1), int64(1), epoch, int64(1), uint8(mode))
		}
	}
	f.Fuzz(func(t *testing.T, limit, period, now, a, b, c, end, quantity int64, mode uint8) {
		l, err := NewLimit(limit, quota.Seconds(period))
		if limit < 0 || period < 1 || period > 1e9 {
			require.Error(t, err)
			return
		}
		m := quota.Mode(mode)
		atOnce := Fixed{a, b, end}
		until := b ^ c
		require.NoError(t, differs(Limit.StepFixed, modelFixed, l, now, atOnce, quantity, m))
		require.NoError(t, outOfBounds(Limit.StepFixed, l, now, atOnce, quantity, m))
		weighed := Sliding{a, b, c, until, end}
		require.NoError(t, differs(Limit.StepSliding, modelSliding, l, now, weighed, quantity, m))
		if (end-a)%2 == 0 { // two whole periods, as a step leaves them; of others retry_after may be 1 ns too long
			require.NoError(t, outOfBounds(Limit.StepSliding, l, now, weighed, quantity, m))
		}
		for spare := range 3 {
			disordered := logState{Log{uint64(c), until, end}, list{{a, uint64(b)}, {b, uint64(c)}, {c, uint64(a)}}, spare - 2}
			require.NoError(t, outOfBounds(stepLog, l, now, disordered, quantity, m))
		}
	})
}

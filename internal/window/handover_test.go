package window

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"cellserver/internal/quota"
)

// TestHandOverForgetsNothing checks that when another period takes over, no call is allowed more
// than a moment before, unless everything that was taken in its own period leaves so much. Of two
// calls that name different periods, the call that the stored period does not decide gets the
// result of the other.
func TestHandOverForgetsNothing(t *testing.T) {
	t.Run("fixed", func(t *testing.T) {
		checkHandOver(t, fixed, func(Fixed) int64 { return 0 }, fixedFaults["the window is read by the call's own period"])
	})
	t.Run("sliding", func(t *testing.T) {
		checkHandOver(t, sliding, func(s Sliding) int64 { return before(s.Until, s.End) },
			slidingFaults["the call's own period decides"], slidingFaults["another period reads counts as its own"])
	})
	t.Run("log", func(t *testing.T) {
		checkHandOver(t, log, func(s logState) int64 { return before(s.Until, s.End) },
			logFaults["the call's own period decides"])
	})
}

// before returns the instant at which another period takes over, or 0 if the key ends before that,
// so that there is nothing to convert.
func before(until, end int64) int64 {
	if until < end {
		return until
	}
	return 0
}

// taken is a record of the counting model: what was taken, and when.
type taken struct{ at, quantity int64 }

// since returns the sum of what was taken after an instant.
func since(all []taken, at int64) (sum int64) {
	for _, t := range all {
		if t.at > at {
			sum += t.quantity
		}
	}
	return sum
}

// checkHandOver makes calls with several periods. until returns when the stored period of a state
// stops deciding; 0 if never.
func checkHandOver[S any](t *testing.T, k kind[S], until func(S) int64, faults ...stepFunc[S]) {
	check := func(t *rapid.T, step stepFunc[S]) error {
		var s S
		var all []taken
		l, now := Limit{size: rapid.Int64Range(1, 12).Draw(t, "limit")}, epoch
		periods := rapid.SampledFrom([][]int64{{10e9, 60e9}, {60e9, 10e9}, {7e9, 60e9}, {1e9, 2e9, 3e9},
			{10e9, 11e9, 60e9}}).Draw(t, "periods")
		for range rapid.IntRange(1, 12).Draw(t, "calls") {
			l.period = rapid.SampledFrom(periods).Draw(t, "period")
			mode := rapid.SampledFrom([]quota.Mode{quota.Take, quota.UpTo, quota.Force}).Draw(t, "mode")
			d, next, err := step(l, now, s, rapid.Int64Range(0, l.size).Draw(t, "quantity"), mode)
			if err != nil {
				return err
			}
			s, all = next, append(all, taken{now, d.Taken})
			if err := checkPeriodsAt(l, step, s, all, now, until(s), periods); err != nil {
				return err
			}
			now += rapid.OneOf(rapid.Int64Range(0, 3e9), rapid.Int64Range(0, 70e9), rapid.Just(max(until(s)-now-1, 0))).Draw(t,
				"gap")
		}
		return nil
	}
	rapid.Check(t, func(t *rapid.T) { requireHolds(t, check(t, k.step)) })
	for _, faulty := range faults {
		requireCaught(t, func(t *rapid.T) error { return check(t, faulty) })
	}
}

// checkPeriodsAt compares the results of calls with all periods now, and just before and after
// another period takes over.
func checkPeriodsAt[S any](l Limit, step stepFunc[S], s S, all []taken, now, until int64, periods []int64) error {
	told := func(period, at int64) int64 {
		d, _, _ := step(Limit{size: l.size, period: period}, at, s, 0, quota.Peek)
		return d.Remaining
	}
	for _, period := range periods {
		if one, other := told(period, now), told(periods[0], now); (until == 0 || now < until) && one != other {
			return fmt.Errorf("of %+v at %d a period of %d is told %d, and %d %d", s, now, period, one, periods[0], other)
		}
		before, after, really := told(period, until-1), told(period, until), l.size-since(all, until-period)
		if now < until && after > max(before+1, really) {
			return fmt.Errorf("of %+v a period of %d is told %d, and then %d; %d are left", s, period, before, after, really)
		}
	}
	return nil
}

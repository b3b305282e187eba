package limit

import (
	"math"
	"math/bits"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// Rule is the rule of a limiter: its kind, and the limit for that kind.
type Rule struct {
	Kind     Kind            // Throttle, Fixed, Sliding, SlidingLog or Quota; in a store.LimitRequest also Lease
	Throttle gcra.Limit      // for Throttle
	Window   window.Limit    // for Fixed, Sliding and Quota
	Log      window.LogLimit // for SlidingLog
	Cycle    calendar.Cycle  // for Quota: its windows
}

// SetWindow makes the rule one of a kind whose limit is a size and a period. maxLog bounds the size of a log.
func (r *Rule) SetWindow(kind Kind, size int64, period quota.Period, maxLog int) (err error) {
	if r.Kind = kind; kind == SlidingLog {
		r.Log, err = window.NewLogLimit(size, period, maxLog)
	} else {
		r.Window, err = window.NewLimit(size, period)
	}
	return err
}

// Size returns the largest quantity that the limit can ever allow.
func (r *Rule) Size() int64 {
	switch r.Kind {
	case Throttle:
		return r.Throttle.Size()
	case SlidingLog:
		return r.Log.Size()
	default:
		return r.Window.Size()
	}
}

// Period returns the time in nanoseconds in which the whole limit comes back: the period of a window, or the time in
// which an exhausted bucket recovers. A quota per unit of the calendar comes back in the length of the unit at the
// instant unix, in Unix nanoseconds.
func (r *Rule) Period(unix int64) int64 {
	switch r.Kind {
	case Throttle:
		return int64(r.Throttle.Tolerance())
	case SlidingLog:
		return int64(r.Log.Period())
	case Quota:
		return int64(r.Cycle.Length(unix))
	default:
		return int64(r.Window.Period())
	}
}

// Times returns the rule with its limit multiplied by a factor. Of a throttle, it multiplies the burst and the rate. A
// limit that would become too large stays as it is; a limit above 0 does not become 0. maxLog bounds the size of a log.
func (r *Rule) Times(factor float64, maxLog int) Rule {
	size := r.Size()
	if n := math.Round(float64(size) * factor); size > 0 && n < math.MaxInt64/2 {
		size = max(int64(n), 1)
	}
	times, err := *r, error(nil)
	switch r.Kind {
	case Throttle:
		emission := max(int64(math.Round(float64(r.Throttle.EmissionInterval())/factor)), 1)
		times.Throttle, err = gcra.NewLimitOf(size-1, 1, emission/1e9, emission%1e9)
	case Quota:
		times.Window, err = window.NewCalendarLimit(size)
	case SlidingLog:
		err = times.SetWindow(r.Kind, min(size, int64(maxLog)), periodOf(r.Period(0)), maxLog)
	default:
		err = times.SetWindow(r.Kind, size, periodOf(r.Period(0)), maxLog)
	}
	if err != nil {
		return *r
	}
	return times
}

// periodOf returns a period of nanoseconds, which are whole microseconds.
func periodOf(ns int64) quota.Period {
	if ns%1e9 == 0 {
		return quota.Seconds(ns / 1e9)
	}
	return quota.Period(-ns / 1e3)
}

// LeastAhead is the smallest limit whose tokens may be taken ahead. A block would be a large part of a smaller
// limit.
const LeastAhead = 20

// NotAhead in place of a time says that no tokens are taken ahead.
const NotAhead int64 = -1

// MayTakeAhead reports whether tokens of the limit may be taken ahead. A process then decides further calls by these
// tokens, without asking the backend.
func (r *Rule) MayTakeAhead() bool { return r.Kind.TakesAhead() && r.Size() >= LeastAhead }

// Blocks reports whether a call is limited whatever its key holds, because the limit is 0. Such a call
// does not access the key.
func (r *Rule) Blocks(quantity int64, mode quota.Mode) bool {
	return r.Size() == 0 && quantity > 0 && mode != quota.Force
}

// Share returns time * quantity / size, rounded down and at most time. It is 0 if quantity or size is not positive.
func Share(time, quantity, size int64) int64 {
	if quantity <= 0 || size <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(time), uint64(min(quantity, size)))
	part, _ := bits.Div64(high, low, uint64(size))
	return int64(part)
}

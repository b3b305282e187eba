package limit

import (
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

// Period returns the time in nanoseconds in which the whole limit comes back: the period of a window, the time in which
// an exhausted bucket recovers, and of a quota per unit of the calendar the length of the unit at an instant, in Unix
// nanoseconds.
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

// Blocks reports whether a call is limited whatever its key holds. Such a call does not access the
// key.
func (r *Rule) Blocks(quantity int64, mode quota.Mode) bool {
	return r.Size() == 0 && quantity > 0 && mode != quota.Force
}

// Share returns the part of a time that a quantity is of a size: 0 if either is not positive, and at most all of it.
func Share(time, quantity, size int64) int64 {
	if quantity <= 0 || size <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(time), uint64(min(quantity, size)))
	part, _ := bits.Div64(high, low, uint64(size))
	return int64(part)
}

package window

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/quota"
)

// stepPeriods is StepCalendar as a store calls it, with windows that are as long as the limit's
// period. The first window began with the year 1970.
func stepPeriods(l Limit, now int64, s Calendar, quantity int64, mode quota.Mode) (quota.Decision, Calendar, error) {
	now = instant(now)
	present := s
	if s.Used <= 0 || now >= s.End {
		present = Calendar{End: now - now%l.period + l.period}
	}
	d, next, err := l.StepCalendar(now, present, quantity, mode)
	switch {
	case err != nil || next.Used == present.Used:
		return d, s, err
	case next.Used == 0:
		return d, Calendar{}, nil
	}
	return d, next, nil
}

var calendarKind = kind[Calendar]{
	step: stepPeriods,
	model: func(l Limit, now int64, s Calendar, quantity int64, mode quota.Mode) (quota.Decision, Calendar, error) {
		return viewedCalendar.step(l, now, s, quantity, mode)
	},
	decides: func(l Limit, _ int64, _ Calendar) Limit { return l },
	held:    func(_ Limit, now int64, s Calendar) int64 { return viewedCalendarAll(Limit{}, s, now).Int64() },
	bound:   func(l Limit) int64 { return 2 * l.size },
	faults:  faultsOf(stepPeriods),
}

var viewedCalendar = modelOf[Calendar]{
	weigh: func(l Limit, s Calendar, t int64) *big.Int { return times(viewedCalendarAll(l, s, t), n(l.period)) },
	all:   viewedCalendarAll,
	apply: func(l Limit, s Calendar, now, taken int64) (Calendar, *big.Int) {
		used := plus(viewedCalendarAll(l, s, now), n(taken))
		if used.Sign() <= 0 {
			return Calendar{}, n(0)
		}
		end := s.End
		if viewedCalendarAll(l, s, now).Sign() == 0 {
			ended := new(big.Int).Quo(n(now), n(l.period)) // windows
			end = times(plus(ended, n(1)), n(l.period)).Int64()
		}
		return Calendar{Used: used.Int64(), End: end}, used
	},
	name: func(_, _ Limit, s Calendar, _ int64) Calendar { return s },
}

// viewedCalendarAll returns the count of a window.
func viewedCalendarAll(_ Limit, s Calendar, t int64) *big.Int {
	if t >= s.End || s.Used < 0 {
		return n(0)
	}
	return n(s.Used)
}

// calendarFaults are for calendar quotas alone.
var calendarFaults = map[string]stepFunc[Calendar]{
	"a window begins with its first call": func(
		l Limit, now int64, s Calendar, quantity int64, mode quota.Mode,
	) (quota.Decision, Calendar, error) {
		d, next, err := stepPeriods(l, now, s, quantity, mode)
		if now >= s.End && next.Used > 0 {
			next.End = now + l.period
		}
		return d, next, err
	},
	"the latest call ends the window": func(
		l Limit, now int64, s Calendar, quantity int64, mode quota.Mode,
	) (quota.Decision, Calendar, error) {
		d, next, err := stepPeriods(l, now, s, quantity, mode)
		if d.Taken > 0 && next != s {
			next.End = instant(now) - instant(now)%l.period + l.period
		}
		return d, next, err
	},
	"a refund empties the window": func(
		l Limit, now int64, s Calendar, quantity int64, mode quota.Mode,
	) (quota.Decision, Calendar, error) {
		d, next, err := stepPeriods(l, now, s, quantity, mode)
		if d.Taken < 0 && next != s {
			next = Calendar{}
		}
		return d, next, err
	},
}

// The instants of these timelines count from an end of windows.
var calendarTimelines = []timeline{
	{"a window ends at a multiple of the period, whenever its first quantity was taken", `
		limit 5 10
		 3000 0 take -> 0 5     0   -1 0
		 3000 1 take -> 0 4  7000   -1 1
		 7000 4 take -> 0 0  3000   -1 4
		 7000 1 take -> 1 0  3000 3000 0
		 9999 1 take -> 1 0     1    1 0
		10000 1 take -> 0 4 10000   -1 1
		35000 1 take -> 0 4  5000   -1 1`},
	{"all or nothing, and more than the limit never", `
		limit 5 10
		4000 3 take -> 0 2 6000   -1 3
		4000 3 take -> 1 2 6000 6000 0
		4000 6 take -> 1 2 6000   -1 0
		4000 2 take -> 0 0 6000   -1 2`},
	{"twice the limit around the end of a window", `
		limit 5 10
		 9999 5 take -> 0 0     1 -1 5
		10000 5 take -> 0 0 10000 -1 5`},
	{"refunded: the window stays, and goes with the last of it", `
		limit 5 10
		   0  5 take -> 0 0 10000 -1  5
		1000 -2 take -> 0 2  9000 -1 -2
		2000 -9 take -> 0 5     0 -1 -3
		3000  1 take -> 0 4  7000 -1  1
		3000 -9223372036854775808 force -> 0 5 0 -1 -1
		3000 -1 take -> 0 5     0 -1  0`},
	{"as much as is allowed, and a peek", `
		limit 5 10
		2000 3 peek -> 0 2 8000   -1 3
		2000 3 upto -> 0 2 8000   -1 3
		2000 3 upto -> 0 0 8000   -1 2
		2000 3 upto -> 1 0 8000 8000 0
		2000 1 peek -> 1 0 8000 8000 0`},
	{"a forced debt ends with the window", `
		limit 5 10
		 1000  8 force -> 1 0 9000 9000  8
		 2000  0 take  -> 1 0 8000 8000  0
		 2000 -3 take  -> 0 0 8000   -1 -3
		 2000  0 take  -> 0 0 8000   -1  0
		10000  5 take  -> 0 0 10000  -1  5
		10000 9223372036854775807 force -> quantity is too large
		10000 9223372036854775802 force -> 1 0 10000 10000 9223372036854775802`},
	{"a changed limit is read against what was used", `
		limit 5 10
		5000 5 take -> 0 0 5000   -1 5
		limit 3 10
		5000 0 take -> 1 0 5000 5000 0
		limit 8 10
		5000 3 take -> 0 0 5000   -1 3`},
	{"to the ns", `
		limit 1 1
		   0.000001 1 take -> 0 0  999.999999       -1        1
		   0.5      1 take -> 1 0  999.5 999.5 0
		1000        1 take -> 0 0 1000       -1        1`},
	{"a limit of 0 blocks everything", `
		limit 0 1
		200 1 take  -> 1 0   0  -1 0
		200 1 upto  -> 1 0   0  -1 0
		200 0 take  -> 0 0   0  -1 0
		200 1 force -> 1 0 800  -1 1
		200 0 take  -> 1 0 800 800 0
		200 1 take  -> 1 0   0  -1 0
		200 1 peek  -> 1 0   0  -1 0`},
	{"the clock runs backwards: the window lies ahead, and is the present one", `
		limit 2 10
		15000 2 take -> 0 0  5000    -1 2
		 3000 1 take -> 1 0 17000 17000 0
		20000 1 take -> 0 1 10000    -1 1`},
	{"a window that was stored lasts until its end, whatever the period is", `
		limit 5 10
		 3000 4 take -> 0 1  7000   -1 4
		limit 5 100
		 5000 1 take -> 0 0  5000   -1 1
		 6000 1 take -> 1 0  4000 4000 0
		limit 5 1
		 9000 1 take -> 1 0  1000 1000 0
		10500 1 take -> 0 4   500   -1 1`},
}

func TestCalendar(t *testing.T) {
	checkKind(t, calendarKind, calendarFaults)
	t.Run("timelines", func(t *testing.T) { testTimelines(t, calendarTimelines, stepPeriods) })
	t.Run("timelines catch", func(t *testing.T) {
		requireCaughtByTimelines(t, calendarTimelines, calendarKind.faults, calendarFaults)
	})
}

func TestCalendarLimits(t *testing.T) {
	l, err := NewCalendarLimit(0)
	require.NoError(t, err)
	require.True(t, l.Blocks(1, quota.Take))
	_, err = NewCalendarLimit(-1)
	require.EqualError(t, err, "limit must be between 0 and 9223372036854775807")
}

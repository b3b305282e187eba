package storetest

import (
	"fmt"
	"math"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/window"
)

var quotaCases = []testCase{
	{"calendar quotas", "the window of a calendar quota is that of its unit and zone, or of its period from 1970, by the wall clock",
		calendarQuotas},
	{"other windows", "a call of a calendar quota on a key with other windows returns a CycleError and changes nothing",
		otherWindows},
	{"wall clock set", "the windows of calendar quotas end by the wall clock, and times to wait count by it", wallClockSet},
	{"wall clock set back", "a window of a calendar quota that has ended does not come again, if the wall clock is set back",
		wallClockSetBack},
	{"window ahead", "the stored window of a calendar quota is the present one until it ends, even if it lies ahead",
		windowAhead},
}

// per returns a rule of a calendar quota for a limit per unit of a zone.
func per(rate int64, u calendar.Unit, zone string) limit.Rule {
	r := limit.Rule{Kind: limit.Quota}
	var err error
	var ok bool
	r.Window, err = window.NewCalendarLimit(rate)
	if r.Cycle, ok = calendar.In(u, []byte(zone)); err != nil || !ok {
		panic(fmt.Sprint(err, zone))
	}
	return r
}

// perPeriod is per for a period.
func perPeriod(limit int64, period time.Duration) limit.Rule {
	r := per(limit, calendar.Day, "UTC")
	r.Cycle = calendar.Every(period)
	return r
}

// at sets the clock to a time in UTC, which must be later than the present one.
func (r *rig) at(utc string) {
	r.Helper()
	at, err := time.Parse(time.DateTime, utc)
	require.NoError(r, err)
	require.GreaterOrEqual(r, at.UnixNano(), r.clock.Now())
	r.clock.Advance(time.Duration(at.UnixNano() - r.clock.Now()))
	r.view.Begin()
}

// calendarQuotas goes through windows that are shorter and longer than others.
func calendarQuotas(r *rig) {
	for i, step := range []struct {
		at   string
		rule limit.Rule
		left time.Duration
	}{
		{"2024-02-29 23:59:59", per(1, calendar.Day, "UTC"), time.Second},
		{"2024-03-10 03:30:00", per(1, calendar.Day, "America/Havana"), 90 * time.Minute}, // until 2024-03-10 01:00 there
		{"2024-03-10 05:00:00", per(1, calendar.Day, "America/Havana"), 23 * time.Hour},   // which has no midnight
		{"2025-10-25 22:00:00", per(1, calendar.Day, "Europe/Berlin"), 25 * time.Hour},
		{"2026-10-25 00:30:00", per(1, calendar.Hour, "Europe/Berlin"), 90 * time.Minute}, // which comes twice
		{"2026-11-15 12:00:00", per(1, calendar.Week, "UTC"), 12 * time.Hour},
		{"2026-11-16 12:00:00", per(1, calendar.Month, "UTC"), 14*24*time.Hour + 12*time.Hour},
		{"2026-12-31 17:00:00", per(1, calendar.Year, "Asia/Tokyo"), 364*24*time.Hour + 22*time.Hour},
		{"2027-12-31 23:59:50", perPeriod(1, 90*time.Second), 10 * time.Second},
		{"2028-01-01 00:00:10", perPeriod(1, 250*time.Millisecond), 250 * time.Millisecond},
	} {
		r.at(step.at)
		key := fmt.Sprint("key", i)
		d := r.takeBy(step.rule, key, 1, quota.Take)
		require.Equal(r, step.left, time.Duration(d.ResetAfter), step.at)
		require.Equal(r, r.clock.Now()+d.ResetAfter, r.lookup(key).Expires, step.at)
		d = r.takeBy(step.rule, key, 1, quota.Take)
		require.True(r, d.Limited)
		require.Equal(r, step.left, time.Duration(d.RetryAfter), step.at)
		r.clock.Advance(step.left - 1)
		r.view.Begin()
		require.True(r, r.takeBy(step.rule, key, 1, quota.Take).Limited, step.at)
		r.clock.Advance(1)
		r.view.Begin()
		require.False(r, r.takeBy(step.rule, key, 1, quota.Peek).Limited, step.at)
	}
}

func otherWindows(r *rig) {
	berlin, minute := per(5, calendar.Day, "Europe/Berlin"), perPeriod(5, time.Minute)
	for key, rule := range map[string]limit.Rule{"berlin": berlin, "minute": minute} {
		r.takeBy(rule, key, 3, quota.Take)
		before, h := r.state(key), r.listen()
		for _, other := range []limit.Rule{
			berlin, minute, per(5, calendar.Month, "Europe/Berlin"), per(5, calendar.Day, "Europe/Paris"),
			perPeriod(5, 24*time.Hour), perPeriod(5, 61*time.Second),
		} {
			if other.Cycle == rule.Cycle {
				continue
			}
			for _, quantity := range []int64{1, 0, -1, 9, math.MinInt64} {
				for _, mode := range []quota.Mode{quota.Take, quota.Peek, quota.UpTo, quota.Force} {
					_, err := r.view.Take(ctx, []byte(key), &other, quantity, mode)
					require.Equal(r, &store.CycleError{Cycle: rule.Cycle}, err)
				}
				_, _, err := r.view.TakeAll(ctx, []store.LimitRequest{limitRequest(other, key, quantity)}, quota.Take)
				require.Equal(r, &store.CycleError{Cycle: rule.Cycle}, err)
			}
			require.Equal(r, before, r.state(key))
			require.Empty(r, h.events())
		}
	}
}

// setWallClock sets the wall clock. Stores notice it within a millisecond.
func (r *rig) setWallClock(offset time.Duration) {
	r.clock.SetOffset(offset)
	r.clock.Advance(time.Millisecond)
	r.view.Begin()
}

func wallClockSet(r *rig) {
	const day = 24 * time.Hour
	r.at("2026-11-22 12:00:00")
	daily := per(5, calendar.Day, "UTC")
	for _, key := range []string{"first", "second"} {
		require.Equal(r, 12*time.Hour, time.Duration(r.takeBy(daily, key, 5, quota.Take).ResetAfter))
	}
	for _, offset := range []time.Duration{5 * time.Hour, -3 * time.Hour, 12*time.Hour - time.Second} {
		r.setWallClock(offset)
		d, left := r.takeBy(daily, "first", 1, quota.Take), 12*time.Hour-offset
		require.True(r, d.Limited, "%s", offset)
		require.Equal(r, d.RetryAfter, d.ResetAfter)
		require.InDelta(r, left, d.RetryAfter, float64(5*time.Millisecond), "%s", offset)
		e := r.lookup("first")
		require.Equal(r, r.clock.Now()+d.ResetAfter, e.Expires, "%s", offset)
		require.Equal(r, eachOnce([]string{"first", "second"}), r.scanAll(10))
	}
	r.setWallClock(12 * time.Hour) // it is midnight now
	require.Equal(r, store.Entry{}, r.lookup("second"))
	require.Zero(r, r.count("first", "second"))
	r.sweepAll()
	require.Zero(r, r.size())
	d := r.takeBy(daily, "first", 1, quota.Take)
	require.Equal(r, int64(4), d.Remaining)
	require.InDelta(r, day, d.ResetAfter, float64(10*time.Millisecond))
}

func wallClockSetBack(r *rig) {
	r.at("2026-11-22 12:00:00")
	daily := per(5, calendar.Day, "UTC")
	r.setWallClock(13 * time.Hour) // it is one o'clock on the 23rd
	r.takeBy(daily, "before", 5, quota.Take)
	r.setWallClock(0)
	require.True(r, r.takeBy(daily, "before", 1, quota.Take).Limited)
	for _, key := range []string{"before", "after"} {
		d := r.takeBy(daily, key, 5, quota.UpTo)
		require.InDelta(r, 36*time.Hour, d.ResetAfter, float64(10*time.Millisecond), "until the end of the 23rd")
	}
	r.clock.Advance(30 * time.Hour) // the wall clock has caught up
	r.view.Begin()
	for _, key := range []string{"before", "after", "later"} {
		d := r.takeBy(daily, key, 5, quota.UpTo)
		require.Equal(r, key != "later", d.Limited)
		require.InDelta(r, 6*time.Hour, d.ResetAfter, float64(10*time.Millisecond))
	}
}

func windowAhead(r *rig) {
	daily := per(5, calendar.Day, "UTC")
	end := r.clock.Now() + int64(1000*time.Hour)
	r.writeForm("key", &form.State{Kind: limit.Quota, Quota: window.Calendar{Used: 4, End: end}, Cycle: daily.Cycle})
	require.Equal(r, store.Entry{Kind: limit.Quota, Expires: end}, r.lookup("key"))
	require.False(r, r.takeBy(daily, "key", 1, quota.Take).Limited)
	require.Equal(r, 1000*time.Hour, time.Duration(r.takeBy(daily, "key", 1, quota.Take).RetryAfter))
	r.clock.Advance(1000*time.Hour - 1)
	r.view.Begin()
	require.True(r, r.takeBy(daily, "key", 1, quota.Take).Limited)
	r.clock.Advance(1)
	r.view.Begin()
	require.Equal(r, int64(4), r.takeBy(daily, "key", 1, quota.Take).Remaining)
}

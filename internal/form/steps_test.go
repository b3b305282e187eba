package form

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/lease"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// These tests make the same random steps on two keys. After each step, the state of one of them is
// checked, encoded and decoded. Both keys must get the same decisions.

// restored returns a state after it has been encoded and decoded.
func restored(t *rapid.T, s State) State {
	require.NoError(t, s.Check())
	require.Greater(t, s.Expires(), int64(0))
	form := Append(nil, &s)
	var got State
	require.NoError(t, got.Read(form, 0))
	require.Equal(t, form, Append(nil, &got))
	return got
}

// calls draws random calls of a limiter: the instant, the quantity, the mode and the limit.
type calls struct {
	t   *rapid.T
	now int64
}

func (c *calls) next() (now, quantity int64, mode quota.Mode) {
	c.now += rapid.Int64Range(-int64(time.Second), 5*int64(time.Second)).Draw(c.t, "passes")
	quantity = rapid.Int64Range(-5, 8).Draw(c.t, "quantity")
	mode = rapid.SampledFrom([]quota.Mode{quota.Take, quota.Take, quota.Peek, quota.UpTo, quota.Force}).Draw(c.t, "mode")
	if mode == quota.Force && rapid.IntRange(0, 20).Draw(c.t, "huge") == 0 {
		quantity = 1 << rapid.IntRange(20, 62).Draw(c.t, "bits")
	}
	return c.now, quantity, mode
}

func (c *calls) period() int64 {
	return rapid.SampledFrom([]int64{1, 2, 10, 3600, 1_000_000_000}).Draw(c.t, "period")
}

func check(t *testing.T, steps func(c *calls, step int)) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &calls{t: rt, now: rapid.SampledFrom([]int64{0, 1, now, 1 << 62, math.MaxInt64 - 1e12}).Draw(rt, "begin")}
		for step := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			steps(c, step)
		}
	})
}

func TestThrottleGoesOn(t *testing.T) {
	var tat, copied int64
	check(t, func(c *calls, step int) {
		if step == 0 {
			tat, copied = 0, 0
		}
		rate, err := gcra.NewLimit(rapid.Int64Range(-1, 10).Draw(c.t, "burst"), 5, quota.Seconds(c.period()))
		require.NoError(c.t, err)
		at, quantity, mode := c.next()
		want, next, err := rate.Step(at, tat, quantity, mode)
		got, nextCopied, errCopied := rate.Step(at, copied, quantity, mode)
		require.Equal(c.t, want, got)
		require.Equal(c.t, err, errCopied)
		tat, copied = next, nextCopied
		if tat > max(at, 0) {
			copied = restored(c.t, State{Kind: limit.Throttle, TAT: copied}).TAT
		}
	})
}

func TestFixedGoesOn(t *testing.T) {
	var state, copied window.Fixed
	check(t, func(c *calls, step int) {
		if step == 0 {
			state, copied = window.Fixed{}, window.Fixed{}
		}
		rate, err := window.NewLimit(rapid.Int64Range(0, 10).Draw(c.t, "limit"), quota.Seconds(c.period()))
		require.NoError(c.t, err)
		at, quantity, mode := c.next()
		want, next, err := rate.StepFixed(at, state, quantity, mode)
		got, nextCopied, errCopied := rate.StepFixed(at, copied, quantity, mode)
		require.Equal(c.t, want, got)
		require.Equal(c.t, err, errCopied)
		state, copied = next, nextCopied
		if copied != (window.Fixed{}) {
			copied = restored(c.t, State{Kind: limit.Fixed, Plain: limit.OfFixed(copied)}).Plain.Fixed()
			require.Equal(c.t, state, copied)
		}
	})
}

func TestQuotaGoesOn(t *testing.T) {
	var state, copied window.Calendar
	check(t, func(c *calls, step int) {
		if step == 0 {
			state, copied = window.Calendar{}, window.Calendar{}
		}
		rate, err := window.NewCalendarLimit(rapid.Int64Range(0, 10).Draw(c.t, "limit"))
		require.NoError(c.t, err)
		at, quantity, mode := c.next()
		cycle := cycleOf(calendar.Month, "Asia/Tokyo")
		if at = max(at, 0); copied.Used == 0 || at >= copied.End {
			copied = window.Calendar{End: cycle.End(min(at, now))}
			state = copied
		}
		want, next, err := rate.StepCalendar(at, state, quantity, mode)
		got, nextCopied, errCopied := rate.StepCalendar(at, copied, quantity, mode)
		require.Equal(c.t, want, got)
		require.Equal(c.t, err, errCopied)
		state, copied = next, nextCopied
		if copied.Used > 0 {
			s := restored(c.t, State{Kind: limit.Quota, Quota: copied, Cycle: cycle})
			require.Equal(c.t, cycle, s.Cycle)
			copied = s.Quota
			require.Equal(c.t, state, copied)
		}
	})
}

func TestSlidingGoesOn(t *testing.T) {
	var state, copied window.Sliding
	check(t, func(c *calls, step int) {
		if step == 0 {
			state, copied = window.Sliding{}, window.Sliding{}
		}
		rate, err := window.NewLimit(rapid.Int64Range(0, 10).Draw(c.t, "limit"), quota.Seconds(c.period()))
		require.NoError(c.t, err)
		at, quantity, mode := c.next()
		want, next, err := rate.StepSliding(at, state, quantity, mode)
		got, nextCopied, errCopied := rate.StepSliding(at, copied, quantity, mode)
		require.Equal(c.t, want, got)
		require.Equal(c.t, err, errCopied)
		state, copied = next, nextCopied
		if copied != (window.Sliding{}) {
			copied = restored(c.t, State{Kind: limit.Sliding, Plain: limit.OfSliding(copied)}).Plain.Sliding()
			require.Equal(c.t, state, copied)
		}
	})
}

// entries returns the entries of a log.
type entries []window.Entry

func (e entries) Len() int              { return len(e) }
func (e entries) At(i int) window.Entry { return e[i] }

func (e entries) edited(edit window.Edit) entries {
	e = slices.Clone(e[edit.Drop : len(e)-edit.Cut])
	if edit.Push {
		e = append(e, edit.Entry)
	}
	return e
}

func TestLogGoesOn(t *testing.T) {
	var state, copied window.Log
	var stored, storedCopied entries
	check(t, func(c *calls, step int) {
		if step == 0 {
			state, copied, stored, storedCopied = window.Log{}, window.Log{}, nil, nil
		}
		rate, err := window.NewLogLimit(rapid.Int64Range(0, 10).Draw(c.t, "limit"), quota.Seconds(c.period()), 10)
		require.NoError(c.t, err)
		at, quantity, mode := c.next()
		want, next, edit, err := rate.StepLog(at, state, stored, quantity, mode)
		got, nextCopied, editCopied, errCopied := rate.StepLog(at, copied, storedCopied, quantity, mode)
		require.Equal(c.t, want, got)
		require.Equal(c.t, err, errCopied)
		if edit == (window.Edit{}) {
			require.Equal(c.t, edit, editCopied)
			return
		}
		state, stored = next, stored.edited(edit)
		copied, storedCopied = nextCopied, storedCopied.edited(editCopied)
		if len(storedCopied) > 0 {
			version := rapid.Uint64().Draw(c.t, "version")
			s := restored(c.t, State{Kind: limit.SlidingLog, Version: version, Log: copied, Entries: storedCopied})
			require.Equal(c.t, version, s.Version)
			require.Zero(c.t, s.Log.Base)
			copied, storedCopied = s.Log, s.Entries
		}
	})
}

func TestLeasesGoOn(t *testing.T) {
	var table, copied lease.Table
	check(t, func(c *calls, step int) {
		if step == 0 {
			table, copied = &lease.Leases{}, &lease.Leases{}
			if rapid.Bool().Draw(c.t, "few") {
				table = &lease.Few{}
			}
		}
		at, quantity, _ := c.next()
		holder := rapid.SliceOfN(rapid.ByteRange('a', 'c'), 1, 3).Draw(c.t, "holder")
		ttl := c.period()
		switch rapid.IntRange(0, 3).Draw(c.t, "what") {
		case 0:
			require.Equal(c.t, table.Release(at, holder), copied.Release(at, holder))
		case 1:
			long := time.Duration(ttl) * time.Second
			require.Equal(c.t, table.Renew(at, long, holder), copied.Renew(at, long, holder))
		default:
			r, err := lease.NewRequest(rapid.Int64Range(0, 30).Draw(c.t, "limit"), quota.Seconds(ttl), holder, max(quantity, 0))
			require.NoError(c.t, err)
			want, _, err := table.Acquire(at, r, 10)
			got, _, errCopied := copied.Acquire(at, r, 10)
			require.Equal(c.t, want, got)
			require.Equal(c.t, err, errCopied)
		}
		require.Equal(c.t, table.Expires(), copied.Expires())
		if copied.Len() > 0 {
			held := slices.Collect(copied.Holders(0))
			s := restored(c.t, State{Kind: limit.Lease, Leases: held})
			require.Equal(c.t, held, s.Leases)
			require.Equal(c.t, held, slices.Collect(table.Holders(0)))
			copied = lease.Of(s.Leases)
		}
	})
}

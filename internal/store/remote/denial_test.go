package remote_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/calendar"
	"cellserver/internal/gcra"
	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/window"
)

// rules returns a rule of each limiter of a quantity.
func rules(t *testing.T, size int64) (rules []limit.Rule) {
	throttle, err := gcra.NewLimit(size-1, 1, 60)
	require.NoError(t, err)
	windows, err := window.NewLimit(size, 60)
	require.NoError(t, err)
	log, err := window.NewLogLimit(size, 60, 100)
	require.NoError(t, err)
	return []limit.Rule{{Kind: limit.Throttle, Throttle: throttle}, {Kind: limit.Fixed, Window: windows},
		{Kind: limit.Sliding, Window: windows}, {Kind: limit.SlidingLog, Log: log},
		{Kind: limit.Quota, Window: windows, Cycle: calendar.Every(time.Minute)}}
}

// takeAlone makes one call by TakeAll.
func (r *rig) takeAlone(rule limit.Rule, leave, quantity int64, mode quota.Mode) error {
	t := store.LimitRequest{Key: fmt.Append(nil, "all ", leave), Rule: rule, Quantity: quantity, Leave: leave}
	if mode == quota.Force {
		t.Mode, mode = mode, quota.Take
	}
	_, _, err := r.view.TakeAll(ctx, []store.LimitRequest{t}, mode)
	return err
}

// A value that was read before may deny only calls that take something, and denies only calls that
// are limited.
func TestDeniableCalls(t *testing.T) {
	four := rules(t, 4) // with LEAVE 2, decided like rules of 2
	for i, rule := range rules(t, 2) {
		t.Run(rule.Kind.String(), func(t *testing.T) {
			r := newRig(t, remote.Options{})
			var deniable, denied bool
			r.table.Watch = func(s *combine.Step, changes []combine.Change) {
				deniable, denied = s.Deniable, changes[0].Denied
			}
			for _, c := range []struct {
				quantity         int64
				mode             quota.Mode
				deniable, denied bool
			}{
				{1, quota.Take, true, false},
				{2, quota.UpTo, true, false},
				{1, quota.Take, true, true},
				{1, quota.UpTo, true, true},
				{1, quota.Force, false, false},
				{1, quota.Peek, false, true},
				{0, quota.Take, false, false},
				{-1, quota.Take, false, false},
			} {
				for name, take := range []func() error{
					func() error { _, err := r.view.Take(ctx, []byte("k"), &rule, c.quantity, c.mode); return err },
					func() error { return r.takeAlone(rule, 0, c.quantity, c.mode) },
					func() error { return r.takeAlone(four[i], 2, c.quantity, c.mode) },
				} {
					require.NoError(t, take())
					require.Equal(t, c.deniable, deniable, "%d: %+v", name, c)
					require.Equal(t, c.deniable && c.denied, deniable && denied, "%d: %+v", name, c)
				}
			}
			two := []store.LimitRequest{{Key: []byte("a"), Rule: rule, Quantity: 3}, {Key: []byte("b"), Rule: rule}}
			_, allowed, err := r.view.TakeAll(ctx, two, quota.Take)
			require.NoError(t, err)
			require.False(t, allowed)
			require.False(t, deniable, "CL.ALL")
			_, _, err = r.view.TakeAll(ctx, two[:1], quota.Ask)
			require.NoError(t, err)
			require.False(t, deniable, "a call that asks")
			r.acquire("lease", "holder")
			require.False(t, deniable, "CL.ACQUIRE")
		})
	}
}

// A client that is limited asks the backend once, and then not again while the value is young enough.
func TestDenialsAreNotAsked(t *testing.T) {
	now := atomic.Int64{}
	now.Store(1e9)
	e := remote.NewEngine(remote.EngineOptions{Sender: &shelf{keys: map[string][]byte{}}, Monotonic: now.Load, Self: 1,
		Known: 100, KnownBytes: 1 << 20, Connections: 2, Timeout: time.Minute, DenialAge: time.Second})
	t.Cleanup(func() { e.Close(func() {}) })
	v := remote.New(remote.Options{Executor: e, Clock: store.NewStillClock(1e9)}).View()
	for _, rule := range rules(t, 2) {
		limited := func() bool {
			d, err := v.Take(ctx, []byte(rule.Kind.String()), &rule, 1, quota.Take)
			require.NoError(t, err)
			return d.Limited
		}
		require.False(t, limited())
		require.False(t, limited())
		before := e.Counters()
		for range 10 {
			require.True(t, limited())
		}
		require.Equal(t, int64(10), e.Counters().Denials-before.Denials)
		require.Equal(t, before.Requests, e.Counters().Requests)
		now.Add(1e9 + 1)
		require.True(t, limited())
		require.Equal(t, before.Requests+1, e.Counters().Requests)
	}
}

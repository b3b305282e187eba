package quota_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"cellserver/internal/gcra"
	"cellserver/internal/quota"
	"cellserver/internal/window"
)

// limiter is a limiter with a state. with returns a limiter in the same state whose limit is lower
// by n.
type limiter interface {
	step(now, quantity int64, mode quota.Mode) (quota.Decision, error)
	with(t *rapid.T, n int64) limiter
}

type throttle struct {
	burst, count, tat int64
}

func (l *throttle) step(now, quantity int64, mode quota.Mode) (d quota.Decision, err error) {
	limit, err := gcra.NewLimit(l.burst, l.count, quota.Seconds(60))
	if err != nil {
		return quota.Decision{}, err
	}
	d, l.tat, err = limit.Step(now, l.tat, quantity, mode)
	return d, err
}

func (l *throttle) with(_ *rapid.T, n int64) limiter { return &throttle{l.burst - n, l.count, l.tat} }

type windowed[S any] struct {
	size  int64
	state S
	next  func(l window.Limit, now int64, s S, quantity int64, mode quota.Mode) (quota.Decision, S, error)
}

func (l *windowed[S]) step(now, quantity int64, mode quota.Mode) (d quota.Decision, err error) {
	limit, err := window.NewLimit(l.size, quota.Seconds(60))
	if err != nil {
		return quota.Decision{}, err
	}
	d, l.state, err = l.next(limit, now, l.state, quantity, mode)
	return d, err
}

func (l *windowed[S]) with(_ *rapid.T, n int64) limiter {
	return &windowed[S]{l.size - n, l.state, l.next}
}

func someLimiter(t *rapid.T) limiter {
	size := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 1<<40)).Draw(t, "size")
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		count := rapid.Int64Range(min(max(size/100, 1), 1e9), min(size, 1e9)).Draw(t, "count")
		return &throttle{burst: size - 1, count: count}
	case 1:
		return &windowed[window.Fixed]{size: size, next: window.Limit.StepFixed}
	default:
		return &windowed[window.Sliding]{size: size, next: window.Limit.StepSliding}
	}
}

// A call with LEAVE n gets the same decision, and leaves the same state, as the call with a limit that is
// lower by n. Only the figures about the whole limit differ.
func TestLeaveDecidesWithALowerLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { require.Empty(t, leaveDiffers(t, quota.Leave)) })
}

type leaveFunc = func(n, quantity int64, mode quota.Mode,
	take func(int64, quota.Mode) (quota.Decision, error)) (quota.Decision, error)

// leaveDiffers returns a step with another decision than with a lower limit.
func leaveDiffers(t *rapid.T, leave leaveFunc) string {
	l, now := someLimiter(t), int64(1e18)
	whole, err := l.step(now, 0, quota.Peek)
	require.NoError(t, err)
	for range rapid.IntRange(1, 10).Draw(t, "steps") {
		now += rapid.Int64Range(0, 40e9).Draw(t, "wait")
		n := rapid.Int64Range(0, whole.Limit).Draw(t, "n")
		quantity := rapid.OneOf(rapid.Int64Range(-3, 5), rapid.Int64Range(1, whole.Limit+3)).Draw(t, "quantity")
		mode := rapid.SampledFrom([]quota.Mode{quota.Take, quota.Peek, quota.UpTo}).Draw(t, "mode")
		lower := l.with(t, n)
		got, err := leave(n, quantity, mode, func(quantity int64, mode quota.Mode) (quota.Decision, error) {
			return l.step(now, quantity, mode)
		})
		require.NoError(t, err)
		if whole.Limit == n && quantity > 0 { // a limit of 0 blocks without a look at the state
			if !got.Limited || got.RetryAfter != quota.Never {
				return "what is left is nothing, and the call is not blocked"
			}
			continue
		}
		if quantity < 0 {
			continue // a refund is decided by the whole limit
		}
		want, err := lower.step(now, quantity, mode)
		require.NoError(t, err)
		after, err := l.step(now, 0, quota.Peek)
		require.NoError(t, err)
		shown := got
		shown.Limit, shown.Remaining, want.Limit, want.Remaining = 0, 0, 0, 0
		switch {
		case shown != want:
			return "the decision is another one"
		case got.Limit != whole.Limit || mode != quota.Peek && got.Remaining != after.Remaining:
			return "what is shown is not the whole limit"
		}
		lowerAfter, err := lower.step(now, 0, quota.Peek)
		require.NoError(t, err)
		if lowerAfter.ResetAfter != after.ResetAfter {
			return "the state is another one"
		}
	}
	return ""
}

// Leave with a fault is found.
func TestFaultsOfLeaveAreFound(t *testing.T) {
	for name, leave := range map[string]leaveFunc{
		"leaves one too few": func(n, quantity int64, mode quota.Mode,
			take func(int64, quota.Mode) (quota.Decision, error)) (quota.Decision, error) {
			return quota.Leave(max(n-1, 0), quantity, mode, take)
		},
		"takes what it should leave": func(n, quantity int64, mode quota.Mode,
			take func(int64, quota.Mode) (quota.Decision, error)) (quota.Decision, error) {
			if mode == quota.UpTo {
				n = 0
			}
			return quota.Leave(n, quantity, mode, take)
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := false
			for seed := range 200 {
				gen := rapid.Custom(func(t *rapid.T) string { return leaveDiffers(t, leave) })
				found = found || gen.Example(seed) != ""
			}
			require.True(t, found)
		})
	}
}

// Sums that do not fit in an integer are more than any limit.
func TestLeaveDoesNotOverflow(t *testing.T) {
	l := &windowed[window.Fixed]{size: math.MaxInt64, next: window.Limit.StepFixed}
	for _, quantity := range []int64{1, 0, math.MaxInt64} {
		for _, mode := range []quota.Mode{quota.Take, quota.Peek, quota.UpTo} {
			d, err := quota.Leave(math.MaxInt64, quantity, mode, func(quantity int64, mode quota.Mode) (quota.Decision, error) {
				return l.step(1e18, quantity, mode)
			})
			require.NoError(t, err)
			if quantity == 0 {
				require.False(t, d.Limited)
				continue
			}
			require.Equal(t, quota.Decision{Limited: true, Limit: math.MaxInt64, Remaining: math.MaxInt64,
				RetryAfter: quota.Never}, d)
		}
	}
}

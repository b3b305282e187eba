package gcra

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

// The model implements the contract a second time, with integers of any size. It is written to be
// compared with the contract, and not to be fast. It shares no arithmetic with the code under test:
// it has no levels and no overflow.

func n(i int64) *big.Int              { return big.NewInt(i) }
func plus(a, b *big.Int) *big.Int     { return new(big.Int).Add(a, b) }
func minus(a, b *big.Int) *big.Int    { return new(big.Int).Sub(a, b) }
func times(a, b *big.Int) *big.Int    { return new(big.Int).Mul(a, b) }
func floorDiv(a, b *big.Int) *big.Int { return new(big.Int).Div(a, b) } // rounds down, because no divisor is negative
func ceilDiv(a, b *big.Int) *big.Int  { return floorDiv(plus(a, minus(b, n(1))), b) }
func less(a, b *big.Int) bool         { return a.Cmp(b) < 0 }

func largest(a, b *big.Int) *big.Int {
	if less(a, b) {
		return b
	}
	return a
}

func smallest(a, b *big.Int) *big.Int {
	if less(a, b) {
		return a
	}
	return b
}

type bigLimit struct{ size, E, T *big.Int }

func modelLimit(maxBurst, countPerPeriod, period int64) (bigLimit, error) {
	switch {
	case maxBurst < -1 || maxBurst > math.MaxInt64-1:
		return bigLimit{}, &quota.ArgumentError{Name: "max_burst", Lo: -1, Hi: math.MaxInt64 - 1}
	case countPerPeriod < 1:
		return bigLimit{}, &quota.ArgumentError{Name: "count_per_period", Lo: 1, Hi: math.MaxInt64}
	case period < 1:
		return bigLimit{}, &quota.ArgumentError{Name: "period", Lo: 1, Hi: math.MaxInt64}
	}
	count, ns := n(countPerPeriod), times(n(period), n(1e9))
	moreThan := func(perSecond int64) bool { return less(times(n(perSecond), n(period)), count) }
	if moreThan(1e9) {
		return bigLimit{}, ErrRate
	}
	E := floorDiv(ns, count)
	if moreThan(1e6) {
		E = ceilDiv(ns, count)
	}
	size := plus(n(maxBurst), n(1))
	T := times(E, size)
	if !less(largest(T, E), new(big.Int).Lsh(n(1), 62)) {
		return bigLimit{}, ErrSpan
	}
	return bigLimit{size, E, T}, nil
}

// modelStep is a stepFunc, so that every property can be checked on the model too.
func modelStep(limit Limit, now64, tat64, quantity64 int64, mode quota.Mode) (quota.Decision, int64, error) {
	l := bigLimit{n(limit.size), n(limit.emission), n(limit.tolerance)}
	now, tat, quantity := largest(n(now64), n(0)), largest(n(tat64), n(0)), n(quantity64)
	ttl := largest(minus(tat, now), n(0))
	positive := quantity.Sign() > 0
	wait := func(ttl, q *big.Int) *big.Int { return minus(plus(ttl, times(l.E, q)), l.T) }
	remaining := func(ttl *big.Int) *big.Int { return largest(n(0), floorDiv(minus(l.T, ttl), l.E)) }

	limited, taken, retry := false, quantity, n(quota.Never)
	blocks := l.size.Sign() == 0 && positive
	switch {
	case blocks && mode != quota.Force: // whatever the state is
		return quota.Decision{Limited: true, RetryAfter: quota.Never}, tat64, nil
	case blocks:
		limited = true
	case quantity.Sign() < 0:
	case positive && mode == quota.UpTo:
		taken = smallest(quantity, remaining(ttl))
		if taken.Sign() == 0 {
			limited, retry = true, wait(ttl, n(1))
		}
	case positive && mode == quota.Force:
		if wait(ttl, quantity).Sign() > 0 {
			limited, retry = true, wait(plus(ttl, times(l.E, quantity)), n(1))
		}
	case less(l.size, quantity):
		limited, taken = true, n(0)
	case wait(ttl, quantity).Sign() > 0:
		limited, taken, retry = true, n(0), wait(ttl, quantity)
	}

	ttlAfter := largest(n(0), plus(ttl, times(l.E, taken)))
	if quantity.Sign() < 0 { // only whole tokens that were taken are refunded
		taken = largest(quantity, minus(n(0), floorDiv(ttl, l.E)))
	}
	next := plus(now, ttlAfter)
	if !next.IsInt64() {
		return quota.Decision{}, tat64, quota.ErrQuantity
	}
	next64 := next.Int64()
	if mode == quota.Peek || ttlAfter.Cmp(ttl) == 0 {
		next64 = tat64
	}
	return quota.Decision{
		Limited: limited, Limit: l.size.Int64(), Remaining: remaining(ttlAfter).Int64(),
		RetryAfter: retry.Int64(), ResetAfter: ttlAfter.Int64(), Taken: taken.Int64(),
	}, next64, nil
}

// edgeCases are the int64s at which arithmetic is likely to fail.
var edgeCases = []int64{
	0, 1, -1, 2, -2, 999, 1000, 1001, 1e6, 1e9 - 1, 1e9, 1e9 + 1, -1e9, 4611686018, 4611686019, 9223372036, 9223372037,
	1<<62 - 1, 1 << 62, 1<<62 + 1, -(1 << 62), math.MaxInt64 - 1, math.MaxInt64, math.MinInt64, math.MinInt64 + 1,
	epoch, epoch + 1, epoch - 1,
}

func anyInt64() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.SampledFrom(edgeCases), rapid.Int64(), rapid.Int64Range(-20, 20))
}

type newLimitFunc func(maxBurst, count, period int64) (Limit, error)

func newLimitOfSeconds(maxBurst, count, period int64) (Limit, error) {
	return NewLimit(maxBurst, count, quota.Seconds(period))
}

// differsFromModelLimit reports how newLimit differs from the model for these arguments.
func differsFromModelLimit(newLimit newLimitFunc, maxBurst, count, period int64) error {
	got, err := newLimit(maxBurst, count, period)
	want, wantErr := modelLimit(maxBurst, count, period)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		return fmt.Errorf("limit %d %d %d: error %v, want %v", maxBurst, count, period, err, wantErr)
	}
	if err == nil && fmt.Sprint(got.size, got.emission, got.tolerance) != fmt.Sprint(want.size, want.E, want.T) {
		return fmt.Errorf("limit %d %d %d: %v, want %v", maxBurst, count, period, got, want)
	}
	return nil
}

// differsFromModel reports how step differs from the model for this call.
func differsFromModel(step stepFunc, l Limit, now, tat, quantity int64, mode quota.Mode) error {
	d, next, err := step(l, now, tat, quantity, mode)
	want, wantNext, wantErr := modelStep(l, now, tat, quantity, mode)
	if d != want || next != wantNext || !errors.Is(err, wantErr) {
		return fmt.Errorf("%+v now %d tat %d quantity %d mode %d:\n got %+v %d %v\nwant %+v %d %v",
			l, now, tat, quantity, mode, d, next, err, want, wantNext, wantErr)
	}
	return nil
}

// limitAgrees draws arbitrary arguments, and arguments close to where the rounding changes.
func limitAgrees(t *rapid.T, newLimit newLimitFunc) error {
	period := rapid.OneOf(anyInt64(), rapid.Int64Range(1, 1e6)).Draw(t, "period")
	count := rapid.OneOf(anyInt64(), rapid.Int64Range(1, 1e6)).Draw(t, "count")
	if rapid.Bool().Draw(t, "near a turn of the rate") && period > 0 && period < 1e9 {
		count = period*rapid.SampledFrom([]int64{1e6, 1e9}).Draw(t, "rate") + rapid.Int64Range(-2, 2).Draw(t, "off by")
	}
	maxBurst := anyInt64().Draw(t, "max_burst")
	if l, err := NewLimit(0, count, quota.Seconds(period)); err == nil && rapid.Bool().Draw(t, "near the largest span") {
		maxBurst = maxTolerance/l.emission - rapid.Int64Range(-1, 3).Draw(t, "less")
	}
	return differsFromModelLimit(newLimit, maxBurst, count, period)
}

// limitFaults are off by one rounding step, or at one edge.
var limitFaults = map[string]newLimitFunc{
	"a fast rate is floored": func(maxBurst, count, period int64) (Limit, error) {
		l, err := NewLimit(maxBurst, count, quota.Seconds(period))
		if err == nil && l.emission <= roundUpBelow {
			l.emission = int64(floorDiv(times(n(period), n(1e9)), n(count)).Uint64())
			l.tolerance = l.emission * l.size
		}
		return l, err
	},
	"a slow rate is rounded up": func(maxBurst, count, period int64) (Limit, error) {
		l, err := NewLimit(maxBurst, count, quota.Seconds(period))
		if err == nil && l.emission < 1e9 {
			l.emission = ceilDiv(times(n(period), n(1e9)), n(count)).Int64()
			l.tolerance = l.emission * l.size
		}
		return l, err
	},
	"the largest span is refused": func(maxBurst, count, period int64) (Limit, error) {
		l, err := NewLimit(maxBurst, count, quota.Seconds(period))
		if l.tolerance == maxTolerance {
			return Limit{}, ErrSpan
		}
		return l, err
	},
	"the largest rate is refused": func(maxBurst, count, period int64) (Limit, error) {
		l, err := NewLimit(maxBurst, count, quota.Seconds(period))
		if err == nil && count == period*1e9 {
			return Limit{}, ErrRate
		}
		return l, err
	},
}

func TestNewLimitIsTheModels(t *testing.T) {
	t.Run("holds", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) { requireHolds(t, limitAgrees(t, newLimitOfSeconds)) })
	})
	for name, faulty := range limitFaults {
		t.Run("catches: "+name, func(t *testing.T) {
			requireCaught(t, func(t *rapid.T) error { return limitAgrees(t, faulty) })
		})
	}
}

// FuzzStep passes any arguments that can arrive over the network.
func FuzzStep(f *testing.F) {
	for i, edge := range edgeCases {
		other := edgeCases[(i*7+3)%len(edgeCases)]
		for mode := quota.Take; mode <= quota.Force; mode++ {
			f.Add(int64(4), int64(1), int64(1), edge, other, int64(1), uint8(mode))
			f.Add(int64(4), int64(1), int64(1), epoch, epoch+other, edge, uint8(mode))
			f.Add(int64(1000), int64(600000), int64(1), epoch, epoch+1667, other, uint8(mode))
			f.Add(int64(0), int64(1), int64(4611686018), epoch, edge, other, uint8(mode))
			f.Add(int64(1<<62-2), int64(1e9), int64(1), epoch, edge, other, uint8(mode))
			f.Add(edge, other, edge, epoch, int64(0), int64(1), uint8(mode))
		}
	}
	f.Fuzz(func(t *testing.T, maxBurst, count, period, now, tat, quantity int64, mode uint8) {
		require.NoError(t, differsFromModelLimit(newLimitOfSeconds, maxBurst, count, period))
		if l, err := NewLimit(maxBurst, count, quota.Seconds(period)); err == nil {
			require.NoError(t, differsFromModel(Limit.Step, l, now, tat, quantity, quota.Mode(mode)))
		}
	})
}

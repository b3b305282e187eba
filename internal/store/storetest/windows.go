package storetest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var windowCases = []testCase{
	{"any limiter", "the algorithm of the rule's kind decides a call, from the state that earlier calls left and the time elapsed", anyLimiter},
	{"refused by any limiter",
		"a call of any limiter that is limited, peeks, asks for nothing or fails changes nothing and notifies no listener",
		refusedByAny},
	{"blocked", "a limit of 0 allows only forced quantities, and other calls do not access the key, whatever its kind",
		blocked},
	{"another period", "a call with another period forgets nothing: the stored period decides until one such period after the last " +
		"call that had this period and took something, and an open fixed window lasts for the longest period of its calls", anotherPeriod},
	{"emptied", "a key whose quantities were all refunded is removed, and nothing is saved for later", emptied},
	{"notices of limiters", "listeners are notified once of every change that a limiter makes, and of nothing else",
		limiterNotices},
	{"atomic limiters", "a step of any limiter is atomic: concurrent callers are admitted no more often than a single one",
		atomicLimiters},
}

// anyLimiter makes random calls with changing limits. The clock advances by at most a second, so
// that most calls find the state of others.
func anyLimiter(r *rig) {
	random := rand.New(rand.NewPCG(1, 2))
	keys := map[string]keyState{}
	for i := range 4000 {
		if random.IntN(3) == 0 {
			r.clock.Advance(time.Duration(random.Int64N(1e9) + 1))
			r.view.Begin()
		}
		now, kind := r.clock.Now(), limiters[random.IntN(len(limiters))]
		key, by := fmt.Sprint(kind, random.IntN(3)), rule(kind, 1+random.Int64N(9), 1+random.Int64N(3))
		quantity, mode := random.Int64N(16)-4, quota.Mode(random.IntN(4))
		want, next, changed, err := keys[key].at(now).take(now, by, quantity, mode)
		require.NoError(r, err)
		if changed {
			keys[key] = next
		}
		got := r.takeBy(by, key, quantity, mode)
		if want != got { // faster than require
			require.Equal(r, want, got, "call %d, on %s: quantity %d, mode %d", i, key, quantity, mode)
		}
		if want, got := keys[key].at(now).entry(), r.lookup(key); want != got {
			require.Equal(r, want, got, "after call %d, on %s: quantity %d, mode %d", i, key, quantity, mode)
		}
	}
}

func refusedByAny(r *rig) {
	for _, kind := range limiters {
		five, used, full, unused := rule(kind, 5, 60), fmt.Sprint(kind, " used"), fmt.Sprint(kind, " full"),
			fmt.Sprint(kind, " unused")
		r.takeBy(five, used, 3, quota.Take)
		r.takeBy(five, full, 5, quota.Take)
		r.clock.Advance(time.Second) // so that rewriting the same state would be noticed
		r.view.Begin()
		calls := []struct {
			key      string
			quantity int64
			mode     quota.Mode
		}{
			{used, 3, quota.Take}, {used, 6, quota.Take}, {full, 1, quota.Take}, {unused, 6, quota.Take},
			{used, 0, quota.Take}, {used, 0, quota.UpTo}, {used, 0, quota.Force}, {unused, 0, quota.Take},
			{used, 2, quota.Peek}, {used, -2, quota.Peek}, {used, -9, quota.Peek}, {used, 9, quota.Peek},
			{unused, 1, quota.Peek},
			{full, 1, quota.UpTo}, {unused, -1, quota.Take}, {unused, math.MinInt64, quota.Force},
		}
		before, h := r.state(used, full, unused), r.listen()
		for _, c := range calls {
			r.takeBy(five, c.key, c.quantity, c.mode)
			require.Equal(r, before, r.state(used, full, unused), "%+v", c)
			require.Empty(r, h.events(), "%+v", c)
		}
		_, err := r.view.Take(ctx, []byte(used), &five, math.MaxInt64, quota.Force)
		require.ErrorIs(r, err, quota.ErrQuantity)
		require.Equal(r, before, r.state(used, full, unused))
		require.Empty(r, h.events())
	}
}

func blocked(r *rig) {
	for _, kind := range limiters {
		none, five, key := rule(kind, 0, 60), rule(kind, 5, 60), kind.String()
		r.takeBy(five, key, 3, quota.Take)
		r.clock.Advance(time.Second)
		r.view.Begin()
		for _, other := range kinds {
			if other != kind {
				r.use(other, fmt.Sprint(kind, other))
			}
		}
		before, h := r.state(key), r.listen()
		for _, quantity := range []int64{1, 9, math.MaxInt64} {
			for _, mode := range []quota.Mode{quota.Take, quota.Peek, quota.UpTo} {
				require.Equal(r, quota.Blocked(), r.takeBy(none, key, quantity, mode))
				require.Equal(r, quota.Blocked(), r.takeBy(none, key+" unused", quantity, mode))
				for _, other := range kinds {
					if other != kind {
						require.Equal(r, quota.Blocked(), r.takeBy(none, fmt.Sprint(kind, other), quantity, mode))
					}
				}
			}
		}
		require.Equal(r, before, r.state(key))
		require.Empty(r, h.events())
		d := r.takeBy(none, key, 0, quota.Take)
		require.True(r, d.Limited, "%s: 0 asks about debt", kind)
		require.Positive(r, d.ResetAfter)
		d = r.takeBy(none, key, 1, quota.Force)
		require.Equal(r, int64(quota.Never), d.RetryAfter)
		require.Equal(r, int64(1), d.Taken)
		require.False(r, r.takeBy(none, key, math.MinInt64, quota.Take).Limited)
		require.Equal(r, store.Entry{}, r.lookup(key))
		for _, other := range kinds {
			if other != kind {
				_, err := r.view.Take(ctx, []byte(fmt.Sprint(kind, other)), &none, 1, quota.Force)
				require.ErrorIs(r, err, store.ErrWrongKind)
			}
		}
		allowing, blocking := limitRequest(five, key, 1), limitRequest(none, key+" unused", 1)
		results, allowed := r.takeAll(quota.Take, allowing, blocking)
		require.False(r, allowed)
		require.Equal(r, quota.Blocked(), results[1])
	}
}

// anotherPeriod takes all with a period of a minute, and then calls with a period of a second.
func anotherPeriod(r *rig) {
	for _, kind := range []limit.Kind{limit.Fixed, limit.Sliding, limit.SlidingLog} {
		key, minute, second := kind.String(), rule(kind, 5, 60), rule(kind, 5, 1)
		r.takeBy(minute, key, 3, quota.Take)
		r.clock.Advance(30 * time.Second)
		r.view.Begin()
		require.Equal(r, int64(0), r.takeBy(second, key, 2, quota.Take).Remaining, key)
		r.clock.Advance(30*time.Second - 1)
		r.view.Begin()
		require.True(r, r.takeBy(second, key, 1, quota.Take).Limited, key)
		require.True(r, r.takeBy(minute, key, 1, quota.Take).Limited, key)
		r.clock.Advance(1)
		r.view.Begin()
		if kind == limit.Sliding { // what the minute has counted leaves within a second
			require.True(r, r.takeBy(second, key, 1, quota.Take).Limited, key)
			r.clock.Advance(time.Second)
			r.view.Begin()
		}
		d := r.takeBy(second, key, 5, quota.Take)
		require.False(r, d.Limited, key)
		require.True(r, r.takeBy(minute, key, 1, quota.Take).Limited, key)
		require.Equal(r, 1, r.remove(key))
	}
}

func emptied(r *rig) {
	for _, kind := range limiters {
		five, key := rule(kind, 5, 60), kind.String()
		for _, all := range []int64{-4, -5, math.MinInt64} {
			first := r.takeBy(five, key, 4, quota.Take)
			require.Equal(r, int64(3), r.takeBy(five, key, -2, quota.Take).Remaining)
			require.Equal(r, int64(1), r.takeBy(five, key, 2, quota.Take).Remaining)
			d := r.takeBy(five, key, all, quota.Take)
			require.Equal(r, int64(5), d.Remaining)
			require.Zero(r, d.ResetAfter)
			require.Empty(r, r.traces(kind, key), key)
			require.Zero(r, r.size(), key)
			require.Equal(r, first, r.takeBy(five, key, 4, quota.Take), key)
			require.Equal(r, 1, r.remove(key))
		}
	}
}

func limiterNotices(r *rig) {
	for _, kind := range limiters {
		five, key, h := rule(kind, 5, 60), kind.String(), r.listen()
		for _, step := range []struct {
			quantity int64
			mode     quota.Mode
			why      store.Event
		}{
			{3, quota.Take, store.Changed}, {-1, quota.Take, store.Changed}, {9, quota.UpTo, store.Changed},
			{9, quota.Force, store.Changed}, {-99, quota.Take, store.Deleted}, {2, quota.Take, store.Changed},
		} {
			r.takeBy(five, key, step.quantity, step.mode)
			require.Equal(r, []notification{{0, key, step.why}}, h.events(), "%s %+v", key, step)
		}
		r.state(key)
		r.scanAll(10)
		require.Empty(r, h.events(), key)
		r.clock.Advance(time.Duration(r.lookup(key).Expires - r.clock.Now()))
		r.view.Begin()
		r.state(key)
		r.sweepAll()
		r.remove(key) // it exists only if no sweep has removed it
		require.Equal(r, []notification{{0, key, store.Expired}}, h.events(), key)
	}
}

// atomicLimiters is atomic for all kinds.
func atomicLimiters(r *rig) {
	const callers, rounds, size = 8, 100, 500
	for _, kind := range limiters {
		key, by := []byte(kind.String()), rule(kind, size, 1_000_000)
		left := make([]int64, callers)
		var done sync.WaitGroup
		for i := range callers {
			v := r.store.View()
			done.Go(func() {
				for range rounds {
					if d, _ := v.Take(ctx, key, &by, 2, quota.Take); !d.Limited {
						left[i] += 2
					}
					if left[i] > 0 {
						v.Take(ctx, key, &by, -1, quota.Take)
						left[i]--
					}
					runtime.Gosched()
				}
			})
		}
		done.Wait()
		sum := int64(0)
		for _, n := range left {
			sum += n
		}
		require.Equal(r, size-sum, r.takeBy(by, kind.String(), 0, quota.Take).Remaining, "%s: tokens that the callers do not hold",
			kind)
	}
}

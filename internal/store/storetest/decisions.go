package storetest

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

var decisionCases = []testCase{
	{"timeline", "GCRA decides a call, from the state that earlier calls left and the time elapsed",
		timeline},
	{"limit changes", "the limit is an argument of every call; only the TAT is stored", limitChanges},
	{"modes", "PEEK returns the decision that taking would get, UPTO takes what is allowed, FORCE takes all", modes},
	{"give back", "a negative quantity is a refund, at most of what was taken; a key that is empty then is removed", giveBack},
	{"refused", "a call that is limited, peeks, asks for nothing or fails changes nothing and notifies no listener",
		refused},
	{"prefetch", "Prefetch changes nothing, whether the keys exist or not, and however many there are", prefetch},
	{"atomic", "a step on a key is atomic: concurrent callers are admitted no more often than a single one", atomic},
}

func prefetch(r *rig) {
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprint("key:", i))
	}
	r.view.Prefetch(words(keys)) // a database that was never written to
	r.put(keys[:50]...)
	before := r.lookup(keys[0])
	heard := r.listen()
	r.view.Prefetch(words(keys))
	require.Empty(r, heard.events())
	require.Equal(r, before, r.lookup(keys[0]))
	require.Equal(r, 50, r.size())
	require.Equal(r, 50, r.count(keys...))
}

// timeline is the example of redis-cell: five at once, one per second.
func timeline(r *rig) {
	const s = int64(time.Second)
	steps := []struct {
		at, quantity int64 // in milliseconds, and tokens
		limited      bool
		remaining    int64
		reset, retry int64 // in milliseconds; -1 stands for never
	}{
		{0, 6, true, 5, 0, -1},
		{0, 1, false, 4, 1000, -1},
		{0, 1, false, 3, 2000, -1},
		{0, 1, false, 2, 3000, -1},
		{0, 1, false, 1, 4000, -1},
		{0, 1, false, 0, 5000, -1},
		{0, 1, true, 0, 5000, 1000},
		{3000, 1, false, 2, 3000, -1},
		{3100, 1, false, 1, 3900, -1},
		{4000, 1, false, 1, 4000, -1},
		{8000, 1, false, 4, 1000, -1},
		{9500, 1, false, 4, 1000, -1},
		{9500, 0, false, 4, 1000, -1},
		{9500, 2, false, 2, 3000, -1},
		{9500, 5, true, 2, 3000, 3000},
	}
	for _, step := range steps {
		r.clock.Advance(time.Duration(r.epoch + step.at*1e6 - r.clock.Now()))
		r.view.Begin()
		want := quota.Decision{Limited: step.limited, Limit: 5, Remaining: step.remaining, ResetAfter: step.reset * 1e6,
			RetryAfter: quota.Never}
		if step.retry >= 0 {
			want.RetryAfter = step.retry * 1e6
		}
		got := r.take("key", throttleLimit(4, 1, 1), step.quantity)
		want.Taken = got.Taken // the tests of gcra check it
		require.Equal(r, want, got, "at %d ms, quantity %d", step.at, step.quantity)
	}
	require.Equal(r, store.Entry{Kind: limit.Throttle, Expires: r.epoch + 9500*1e6 + 3*s}, r.lookup("key"))
}

func limitChanges(r *rig) {
	r.take("key", throttleLimit(1, 1, 10), 2)
	d := r.take("key", throttleLimit(0, 1, 15), 1)
	require.True(r, d.Limited)
	require.Equal(r, int64(20*time.Second), d.RetryAfter)
	require.Equal(r, int64(1), d.Limit)
	require.Zero(r, d.Remaining)
	require.Equal(r, int64(20*time.Second), d.ResetAfter)
	require.Equal(r, int64(80), r.take("key", throttleLimit(99, 1, 1), 0).Remaining, "20 s are 20 tokens by this limit")
}

func modes(r *rig) {
	five := throttleLimit(4, 1, 1)
	results := r.throttle("key", five, 3, quota.Peek)
	require.Equal(r, results, r.take("key", five, 3))
	results = r.throttle("key", five, 3, quota.Peek)
	require.Equal(r, results, r.take("key", five, 3), "a limited call")

	d := r.throttle("key", five, 9, quota.UpTo)
	require.Equal(r, int64(2), d.Taken)
	require.Equal(r, int64(5*time.Second), d.ResetAfter)
	require.True(r, r.throttle("key", five, 1, quota.UpTo).Limited)

	d = r.throttle("key", five, 2, quota.Force)
	require.True(r, d.Limited)
	require.Equal(r, int64(2), d.Taken)
	require.Equal(r, r.clock.Now()+int64(7*time.Second), r.lookup("key").Expires, "a debt is kept")
}

func giveBack(r *rig) {
	five := throttleLimit(4, 1, 1)
	r.take("key", five, 4)
	require.Equal(r, int64(3), r.take("key", five, -2).Remaining)
	require.Equal(r, r.clock.Now()+int64(2*time.Second), r.lookup("key").Expires)
	require.Equal(r, int64(0), r.take("key", five, 3).Remaining)

	require.Equal(r, int64(5), r.take("key", five, math.MinInt64).Remaining)
	require.Equal(r, store.Entry{}, r.lookup("key"))
	require.Zero(r, r.size())
	require.Equal(r, int64(4), r.take("key", five, 1).Remaining, "a refund beyond what was taken must not be saved")
}

func refused(r *rig) {
	five := throttleLimit(4, 1, 1)
	r.take("used", five, 3)
	r.take("full", five, 5)
	calls := []struct {
		key      string
		quantity int64
		mode     quota.Mode
	}{
		{"used", 3, quota.Take}, {"used", 6, quota.Take}, {"full", 1, quota.Take}, {"unused", 6, quota.Take},
		{"used", 0, quota.Take}, {"used", 0, quota.UpTo}, {"used", 0, quota.Force}, {"unused", 0, quota.Take},
		{"used", 2, quota.Peek}, {"used", -2, quota.Peek}, {"used", 9, quota.Peek}, {"unused", 1, quota.Peek},
		{"full", 1, quota.UpTo}, {"unused", -1, quota.Take},
	}
	state := func() [4]any { return [4]any{r.lookup("used"), r.lookup("full"), r.lookup("unused"), r.size()} }
	before, heard := state(), r.listen()
	for _, c := range calls {
		r.throttle(c.key, five, c.quantity, c.mode)
		require.Equal(r, before, state(), "%+v", c)
		require.Empty(r, heard.events(), "%+v", c)
	}
	for _, key := range []string{"used", "unused"} {
		_, err := r.view.Throttle(ctx, []byte(key), five, math.MaxInt64, quota.Force)
		require.ErrorIs(r, err, quota.ErrQuantity)
		require.Equal(r, before, state())
		require.Empty(r, heard.events())
	}
}

// atomic has several callers compete for one quota that does not refill. Each takes two and refunds
// one, so that a lost step of either kind shows.
func atomic(r *rig) {
	const callers, rounds, size = 8, 300, 1000
	thousand := throttleLimit(size-1, 1, 1_000_000)
	held := make([]int64, callers)
	var done sync.WaitGroup
	for i := range callers {
		v := r.store.View()
		done.Go(func() {
			for range rounds {
				d, _ := v.Throttle(ctx, []byte("key"), thousand, 2, quota.Take)
				if !d.Limited {
					held[i] += 2
				}
				if held[i] > 0 {
					v.Throttle(ctx, []byte("key"), thousand, -1, quota.Take)
					held[i]--
				}
				runtime.Gosched()
			}
		})
	}
	done.Wait()
	sum := int64(0)
	for _, n := range held {
		sum += n
	}
	require.Equal(r, size-sum, r.take("key", thousand, 0).Remaining, "tokens that the callers do not hold")
}

package rdb

import (
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// With tenInTenHours, one token comes back in an hour, so none comes back during a test. A token of
// twentyInTenHours is half a token of tenInTenHours: once it is taken, small differences between
// servers' clocks do not matter.
var (
	tenInTenHours    = redis_rate.Limit{Rate: 10, Burst: 10, Period: 10 * time.Hour}
	twentyInTenHours = redis_rate.Limit{Rate: 20, Burst: 20, Period: 10 * time.Hour}
)

// allowed makes a call of redis_rate.
func allowed(t *testing.T, l *redis_rate.Limiter, key string, limit redis_rate.Limit, n int) *redis_rate.Result {
	t.Helper()
	result, err := l.AllowN(ctx, key, limit, n)
	require.NoError(t, err)
	return result
}

// Keys of redis_rate become limiters, in memory and in a store. After the import, each key has as much
// left as before, and no key begins with a full limit.
func TestImportOfRedisRate(t *testing.T) {
	theirs, store := newRedis(t, t.TempDir()), newRedis(t, t.TempDir())
	limits := redis_rate.NewLimiter(theirs.client(0))
	for _, key := range []string{"six", "all", "most"} {
		require.Equal(t, 1, allowed(t, limits, key, twentyInTenHours, 1).Allowed)
	}
	require.Equal(t, 3, allowed(t, limits, "six", tenInTenHours, 6).Remaining)
	require.Equal(t, 0, allowed(t, limits, "all", tenInTenHours, 9).Remaining)
	require.Zero(t, allowed(t, limits, "all", tenInTenHours, 1).Allowed)
	most, err := limits.AllowAtMost(ctx, "most", tenInTenHours, 30)
	require.NoError(t, err)
	require.Equal(t, 9, most.Allowed)
	require.NoError(t, theirs.client(0).Set(ctx, "session", "of a client", 0).Err())
	require.NoError(t, theirs.client(0).Set(ctx, "rate:note", "316771200.5", time.Hour).Err())

	for _, to := range []server{newOwn(t), newOnStore(t, store, "")} {
		out := requireOutput(t, append([]string{"import", "--match", "rate:*", theirs.url()}, to.port()...)...)
		require.Equal(t, "imported 4 keys: 1 strings, 3 limiters\n", out)
		require.Zero(t, to.client(0).Exists(ctx, "session").Val())
		require.Equal(t, "316771200.5", to.client(0).Get(ctx, "rate:note").Val())
		requireContinues(t, to, limits)
		again := requireOutput(t, append([]string{"import", "--replace", theirs.url()}, to.port()...)...)
		require.Equal(t, "imported 5 keys: 2 strings, 3 limiters\n", again)
		requireContinues(t, to, limits)
	}
}

// requireContinues compares decisions of redis_rate and of a server. A Burst of 10 is a max_burst
// of 9.
func requireContinues(t *testing.T, to server, limits *redis_rate.Limiter) {
	t.Helper()
	for _, c := range []struct {
		key                          string
		quantity, limited, remaining int64
	}{
		{"six", 5, 1, 3}, {"six", 3, 0, 0}, {"six", 1, 1, 0}, {"all", 1, 1, 0}, {"most", 1, 1, 0}, {"new", 1, 0, 9},
	} {
		reply, err := to.client(0).Do(ctx, "CL.THROTTLE", "rate:"+c.key, 9, 10, 36000, c.quantity).Int64Slice()
		require.NoError(t, err)
		require.Equal(t, []int64{c.limited, 10, c.remaining}, reply[:3], "%+v", c)
	}
	// Both say when the next token will be admitted.
	theirs := allowed(t, limits, "all", tenInTenHours, 1)
	ours, err := to.client(0).Do(ctx, "CL.THROTTLE", "rate:all", 9, 10, 36000, 1, "MS").Int64Slice()
	require.NoError(t, err)
	require.InDelta(t, theirs.RetryAfter.Milliseconds(), ours[3], float64(patience.Milliseconds()))
	require.InDelta(t, theirs.ResetAfter.Milliseconds(), ours[4], float64(patience.Milliseconds()))
	require.NoError(t, to.client(0).Del(ctx, "rate:new").Err())
}

// Without the import, every client would have a full limit.
func TestLimitsThatAreNotImportedAreFull(t *testing.T) {
	theirs, to := newRedis(t, t.TempDir()), server{peer.StartPlain(t), t}
	allowed(t, redis_rate.NewLimiter(theirs.client(0)), "all", tenInTenHours, 10)
	requireOutput(t, append([]string{"import", "--match", "other:*", theirs.url()}, to.port()...)...)
	reply, err := to.client(0).Do(ctx, "CL.THROTTLE", "rate:all", 9, 10, 36000, 10).Int64Slice()
	require.NoError(t, err)
	require.Equal(t, []int64{0, 10, 0}, reply[:3])
}

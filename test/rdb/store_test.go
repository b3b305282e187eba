package rdb

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// limitsOfTen are calls of limiters with a limit of ten, which do not recover during a test.
// n stands for the quantity, and h for a holder.
var limitsOfTen = []string{
	"CL.THROTTLE throttle 9 10 36000 n", "CL.FIXED fixed 10 36000 n", "CL.SLIDING sliding 10 36000 n",
	"CL.SLIDINGLOG log 10 36000 n", "CL.QUOTA quota 10 1000000000 n", "CL.ACQUIRE leases 10 36000 h n",
}

// limited makes one of these calls, and reports whether it is limited.
func limited(t *testing.T, client *redis.Client, call, holder string, quantity int) bool {
	t.Helper()
	words := fields(strings.NewReplacer(" n", " "+strconv.Itoa(quantity), " h", " "+holder).Replace(call))
	reply, err := client.Do(ctx, words...).Int64Slice()
	require.NoError(t, err, call)
	return reply[0] == 1
}

// takeSix takes six of each limit, and bans a subject of a policy. The tokens of CL.THROTTLE come back a
// little faster than with the later calls, so that small differences between servers' clocks do not
// matter.
func takeSix(t *testing.T, client *redis.Client) {
	t.Helper()
	for _, call := range limitsOfTen {
		call = strings.Replace(call, "9 10 36000", "9 10 35000", 1)
		require.False(t, limited(t, client, call, "first", 6), call)
	}
	require.NoError(t, client.Do(ctx, "CL.BAN", "subject", "p", 36000, "reason").Err())
}

// requireFourLeft shows that six of each limit have been taken, and that the subject is banned.
func requireFourLeft(t *testing.T, client *redis.Client, what string) {
	t.Helper()
	for _, call := range limitsOfTen {
		require.True(t, limited(t, client, call, "second", 5), "%s, %s: fresh burst", what, call)
		require.False(t, limited(t, client, call, "third", 4), "%s, %s", what, call)
		require.True(t, limited(t, client, call, "fourth", 1), "%s, %s", what, call)
	}
	require.True(t, limited(t, client, "CL.TAKE subject p 1 PEEK", "", 0), "%s: the ban is lost", what)
}

// newOnStore starts a cellserver with its keys in a redis-server.
func newOnStore(t *testing.T, store server, prefix string) server {
	return newOwn(t, "--store", store.url(), "--store-prefix", prefix, "--store-timeout", "30000")
}

// places starts a cellserver with its keys in memory, and one with its keys in a redis-server.
func places(t *testing.T, store server, prefix string) map[string]server {
	return map[string]server{"memory": newOwn(t), "a store": newOnStore(t, store, prefix)}
}

// Limiters move from memory to a store, back, and from one store to another, through a file or directly.
// No limiter begins with a full limit, and values keep their expiries.
func TestLimitersMoveBetweenPlaces(t *testing.T) {
	store := newRedis(t, t.TempDir())
	sources, destinations := places(t, store, "old:"), places(t, store, "new:")
	expires := time.Now().Add(time.Hour).UnixMilli()
	keys := []string{"throttle", "fixed", "sliding", "log", "quota", "leases", "value", standingKey}
	for from, source := range sources {
		client := source.client(1)
		takeSix(t, client)
		require.NoError(t, client.Do(ctx, "SET", "value", "v", "PXAT", expires).Err())
		file := filepath.Join(t.TempDir(), fileName)
		requireOutput(t, append([]string{"export", file}, source.port()...)...)
		for to, destination := range destinations {
			client := destination.client(1)
			for _, what := range []string{file, source.url()} {
				out := requireOutput(t, append([]string{"import", what}, destination.port()...)...)
				require.Equal(t, "imported 8 keys: 1 strings, 7 limiters\n", out)
				requireFourLeft(t, client, "from "+from+" to "+to)
				require.Equal(t, expires, client.PExpireTime(ctx, "value").Val().Milliseconds())
				require.Equal(t, int64(8), client.Del(ctx, keys...).Val())
			}
			out := requireOutput(t, append([]string{"export", destination.url()}, source.port()...)...)
			require.Equal(t, "exported 8 keys: 1 strings, 7 limiters\n", out)
			requireFourLeft(t, client, "exported from "+from+" to "+to)
			require.Equal(t, int64(8), client.Del(ctx, keys...).Val())
		}
	}
}

// Limiters that are exported to a redis-server expire there, and cellservers that use it as their store
// continue them.
func TestExportToARedisServer(t *testing.T) {
	store, source := newRedis(t, t.TempDir()), newOwn(t)
	client, keys := source.client(0), store.client(0)
	takeSix(t, client)
	requireOutput(t, append([]string{"export", store.url()}, source.port()...)...)
	for _, call := range limitsOfTen {
		name := strings.Fields(call)[1]
		require.InDelta(t, client.PExpireTime(ctx, name).Val(), keys.PExpireTime(ctx, name).Val(), float64(time.Second), name)
	}
	requireFourLeft(t, newOnStore(t, store, "").client(0), "exported to the store")

	for _, words := range [][]string{
		{"export", store.url() + "/1"}, {"export", "--dir", t.TempDir(), store.url()}, {"export", "http://127.0.0.1"},
	} {
		_, stderr, status := subcommand(t, append(words, source.port()...)...)
		require.NotZero(t, status, words)
		require.NotEmpty(t, stderr, words)
	}
}

// The test finds a limiter that begins with a full limit.
func TestFullLimitsAreFound(t *testing.T) {
	client := newOwn(t).client(0)
	full := 0
	for _, call := range limitsOfTen {
		if !limited(t, client, call, "second", 5) {
			full++
		}
	}
	require.Equal(t, len(limitsOfTen), full)
}

// Cellservers of different versions can use one store. Values are marked with the version of their
// form, except that throttle keys have redis-cell's format. A value in a newer form is refused by
// name, and stays unchanged.
func TestVersionsShareAStore(t *testing.T) {
	store := newRedis(t, t.TempDir())
	keys := store.client(1)
	one, other := newOnStore(t, store, "").client(1), newOnStore(t, store, "").client(1)
	takeSix(t, one)
	for _, call := range limitsOfTen {
		if name := strings.Fields(call)[1]; name != "throttle" {
			require.Equal(t, "\x00cl1", keys.GetRange(ctx, name, 0, 3).Val(), "later versions must read this one, too")
		}
	}
	requireFourLeft(t, other, "another process")

	const newer = "\x00cl2 of a newer version"
	for _, call := range limitsOfTen {
		name := strings.Fields(call)[1]
		require.NoError(t, keys.Set(ctx, name, newer, time.Hour).Err())
		err := one.Do(ctx, fields(strings.NewReplacer(" n", " 1", " h", " second").Replace(call))...).Err()
		require.ErrorContains(t, err, `"\x00cl2"`, call)
		require.Equal(t, newer, keys.Get(ctx, name).Val())
	}
	require.NoError(t, one.Del(ctx, "fixed").Err())
	require.False(t, limited(t, one, limitsOfTen[1], "", 10))
}

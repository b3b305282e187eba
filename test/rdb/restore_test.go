package rdb

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// DUMP and RESTORE copy strings and integers from redis-server to cellserver, and back.
func TestRestoredInBothDirections(t *testing.T) {
	theirs, ours := start(t, t.TempDir())(0), newOwn(t).client(0)
	all := examples()[1]
	for _, direction := range [][2]*redis.Client{{theirs, ours}, {ours, theirs}} {
		from, to := direction[0], direction[1]
		require.NoError(t, from.FlushAll(ctx).Err())
		require.NoError(t, to.FlushAll(ctx).Err())
		fill(t, from, all)
		for key, want := range all {
			payload, err := from.Dump(ctx, key).Result()
			require.NoError(t, err)
			expires := int64(0)
			if want.expires > 0 && want.expires < 1<<62 {
				expires = want.expires
			}
			require.NoError(t, to.Do(ctx, "RESTORE", key, expires, payload, "ABSTTL").Err(), "%.50q", key)
			require.Equal(t, want, ask(t, to, key))
		}
	}
	require.NoError(t, theirs.FlushAll(ctx).Err())
	for key, kind := range fillOthers(t, theirs) {
		payload, err := theirs.Dump(ctx, key).Result()
		require.NoError(t, err)
		require.EqualError(t, ours.RestoreReplace(ctx, key, 0, payload).Err(),
			"ERR a "+kind+" cannot be restored: keys hold strings, integers and limiters")
	}
}

// Strings that redis-server does not compress, and integers, have the same payload in both servers.
func TestPayloadsAreThoseOfRedis(t *testing.T) {
	theirs, ours := start(t, t.TempDir(), "--rdbcompression", "no")(0), newOwn(t).client(0)
	all := examples()[1]
	for key, h := range all {
		require.NoError(t, theirs.Set(ctx, key, h.value, 0).Err())
		require.NoError(t, ours.Set(ctx, key, h.value, 0).Err())
		require.Equal(t, theirs.Dump(ctx, key).Val(), ours.Dump(ctx, key).Val(), "%.50q", key)
	}
}

// A redis-server keeps the payloads of limiters as strings, from which they can be restored.
func TestLimitersSurviveAsStrings(t *testing.T) {
	theirs, ours := start(t, t.TempDir())(0), newOwn(t).client(0)
	for _, call := range limiterCalls {
		words := fields(call)
		require.NoError(t, ours.Do(ctx, words...).Err())
		key := keyOf(words)
		entry := ours.Do(ctx, "CL.INSPECT", key).Val()
		payload := ours.Dump(ctx, key).Val()
		require.NoError(t, theirs.Restore(ctx, key, 0, payload).Err())
		require.Equal(t, "\x00cl1", theirs.Get(ctx, key).Val()[:4])
		again := theirs.Dump(ctx, key).Val()
		require.NoError(t, ours.RestoreReplace(ctx, key, 0, again).Err())
		require.Equal(t, kindOf(entry), kindOf(ours.Do(ctx, "CL.INSPECT", key).Val()))
		require.Equal(t, payload, ours.Dump(ctx, key).Val(), "%s: the state, to the nanosecond", key)
	}
}

// fields splits a call into words.
func fields(call string) (words []any) {
	for word := range strings.FieldsSeq(call) {
		words = append(words, word)
	}
	return words
}

// kindOf returns the kind in a reply to CL.INSPECT.
func kindOf(reply any) any { return reply.([]any)[1] }

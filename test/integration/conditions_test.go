package integration

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"cellserver/test/peer"
)

// go-redis has commands for compare and set, and compare and delete, and reads cellserver's replies
// to them.
func TestConditions(t *testing.T) {
	eachProtocol(t, func(t *testing.T, c *redis.Client) {
		ctx := inTime(t)
		require.NoError(t, c.Set(ctx, "k", "v", 0).Err())
		require.ErrorIs(t, c.SetIFEQ(ctx, "k", "w", "x", 0).Err(), redis.Nil)
		require.Equal(t, "OK", c.SetIFEQ(ctx, "k", "w", "v", time.Hour).Val())
		require.Equal(t, "w", c.SetIFNEGet(ctx, "k", "x", "w", 0).Val())
		require.Equal(t, "w", c.SetIFEQGet(ctx, "k", "x", "w", 0).Val())
		sum, err := c.Digest(ctx, "k").Result()
		require.NoError(t, err)
		require.Equal(t, xxh3.HashString("x"), sum)
		require.ErrorIs(t, c.SetIFDNE(ctx, "k", "y", sum, 0).Err(), redis.Nil)
		require.Equal(t, "OK", c.SetIFDEQ(ctx, "k", "y", sum, 0).Val())
		require.ErrorIs(t, c.Digest(ctx, "nosuch").Err(), redis.Nil)
		require.Zero(t, c.DelExArgs(ctx, "k", redis.DelExArgs{Mode: "IFDEQ", MatchDigest: sum}).Val())
		require.Zero(t, c.DelExArgs(ctx, "k", redis.DelExArgs{Mode: "IFEQ", MatchValue: "x"}).Val())
		require.EqualValues(t, 1,
			c.DelExArgs(ctx, "k", redis.DelExArgs{Mode: "IFDEQ", MatchDigest: xxh3.HashString("y")}).Val())

		pairs := map[string]any{"a": 1, "b": "two"}
		hour := &redis.ExpirationOption{Mode: redis.EX, Value: 3600}
		fresh := redis.MSetEXArgs{Condition: redis.NX, Expiration: hour}
		require.EqualValues(t, 1, c.MSetEX(ctx, fresh, pairs).Val())
		require.Zero(t, c.MSetEX(ctx, fresh, pairs).Val())
		require.InDelta(t, 3600, c.TTL(ctx, "b").Val().Seconds(), patience.Seconds())
		require.EqualValues(t, 1, c.MSetEX(ctx, redis.MSetEXArgs{}, pairs).Val())
		require.EqualValues(t, -1, c.TTL(ctx, "b").Val())
	})
}

// The server and the library compute the same digest, for values of each length that the algorithm
// treats differently.
func TestDigestOfAnyLength(t *testing.T) {
	ctx, c := inTime(t), client(t, peer.Start(t), 3)
	for _, length := range []int{0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 100_000} {
		value := strings.Repeat("x", length)
		require.NoError(t, c.Set(ctx, "k", value, 0).Err())
		require.Equal(t, xxh3.HashString(value), c.Digest(ctx, "k").Val(), "%d bytes", length)
	}
}

// Clients that count with compare and set lose no step, because comparison and change are one step.
func TestCompareAndSetLosesNothing(t *testing.T) {
	const clients, steps = 4, 50
	ctx, server := inTime(t), peer.Start(t)
	require.NoError(t, client(t, server, 3).Set(ctx, "n", 0, 0).Err())
	var all sync.WaitGroup
	for range clients {
		c := client(t, server, 3)
		all.Go(func() {
			for done := 0; done < steps; {
				n, err := c.Get(ctx, "n").Int()
				if !assert.NoError(t, err) {
					return
				}
				switch err := c.SetIFEQ(ctx, "n", n+1, n, 0).Err(); err {
				case nil:
					done++
				case redis.Nil:
				default:
					assert.NoError(t, err)
					return
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, strconv.Itoa(clients*steps), client(t, server, 3).Get(ctx, "n").Val())
}

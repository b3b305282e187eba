package integration

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// With the option notify-keyspace-events, go-redis receives keyspace notifications. It also receives one when a key
// expires that no client asks for.
func TestKeyspaceNotifications(t *testing.T) {
	server := peer.Start(t, "--notify-keyspace-events", "KEA")
	for _, protocol := range []int{2, 3} {
		ctx, c := inTime(t), client(t, server, protocol)
		require.Equal(t, "AKE", c.ConfigGet(ctx, "notify-keyspace-events").Val()["notify-keyspace-events"])
		listener := c.PSubscribe(ctx, "__keyspace@0__:*", "__keyevent@0__:expired")
		defer listener.Close()
		for range 2 {
			_, err := listener.Receive(ctx)
			require.NoError(t, err)
		}
		next := func(channel, payload string) {
			message, err := listener.ReceiveMessage(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{channel, payload}, []string{message.Channel, message.Payload})
		}
		require.NoError(t, c.Set(ctx, "k", "v", time.Millisecond).Err())
		next("__keyspace@0__:k", "set")
		next("__keyspace@0__:k", "expire")
		next("__keyspace@0__:k", "expired")
		next("__keyevent@0__:expired", "k")
		require.NoError(t, c.Do(ctx, "CL.THROTTLE", "user", 0, 1000, 1).Err())
		next("__keyspace@0__:user", "cl.throttle")
		next("__keyspace@0__:user", "expired")
		next("__keyevent@0__:expired", "user")
	}
}

// Events of one key arrive in the order of the changes, however many clients make them.
func TestNotificationsKeepTheirOrder(t *testing.T) {
	const clients, rounds = 4, 300
	ctx, server := inTime(t), peer.Start(t, "--notify-keyspace-events", "K$g")
	listener := client(t, server, 3).Subscribe(ctx, "__keyspace@0__:lock")
	defer listener.Close()
	_, err := listener.Receive(ctx)
	require.NoError(t, err)
	var all sync.WaitGroup
	for range clients {
		c := client(t, server, 3)
		all.Go(func() {
			for range rounds {
				_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
					p.SetNX(ctx, "lock", "v", 0)
					p.Del(ctx, "lock")
					return nil
				})
				assert.NoError(t, err)
			}
		})
	}
	all.Wait()
	require.NoError(t, client(t, server, 3).Set(ctx, "lock", "over", time.Minute).Err())
	for want, other := "set", "del"; ; want, other = other, want {
		message, err := listener.ReceiveMessage(ctx)
		require.NoError(t, err)
		if message.Payload == "expire" {
			break
		}
		require.Equal(t, want, message.Payload)
	}
}

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// heldEstimate is the quantity that a client charges first, and heldActual the quantity to which it corrects the
// charge. The tokens that a key has charged, divided by heldActual, leave a remainder of 1 if and only if one of
// its holds is open. So the test sees if a key and its holds are from different instants.
const heldEstimate, heldActual = 10, 3

// A server is killed while clients charge estimates and correct them. When it is started again, each key and its holds
// are from the same instant, and each open hold can be settled once.
func TestKillsWithHolds(t *testing.T) {
	t.Parallel()
	dir, clients := t.TempDir(), amount(20, 200)
	for run := range amount(4, 40) {
		server := peer.Start(t, "--dir", dir, "--loglevel", "nothing")
		client := peer.Client(&redis.Options{Addr: server.Addr, MaxRetries: -1, PoolSize: clients})
		settleAll(t, client, clients)
		var all sync.WaitGroup
		var settled atomic.Int64
		for n := range clients {
			all.Go(func() { holdUntilKilled(client, n, run, &settled) })
		}
		moment := rand.Int64N(20_000)
		await(t, func() bool { return settled.Load() >= moment })
		server.Signal(syscall.SIGKILL)
		server.Wait()
		all.Wait()
		require.NoError(t, client.Close())
	}
	server := peer.Start(t, "--dir", dir, "--loglevel", "nothing")
	settleAll(t, peer.Client(&redis.Options{Addr: server.Addr}), clients)
}

func held(client *redis.Client, n int, quantity int, words ...any) ([]int64, error) {
	call := []any{"CL.FIXED", fmt.Sprint("held", n), 1 << 40, "30d", quantity}
	return client.Do(context.Background(), append(call, words...)...).Int64Slice()
}

func holdUntilKilled(client *redis.Client, n, run int, settled *atomic.Int64) {
	for i := 0; ; i++ {
		id := fmt.Sprint(run, ".", i)
		if _, err := held(client, n, heldEstimate, "HOLD", id, "1h"); err != nil {
			return
		}
		if _, err := held(client, n, heldActual, "SETTLE", id); err != nil {
			return
		}
		settled.Add(1)
	}
}

// settleAll settles the open holds of all keys, and requires that they agree with their keys.
func settleAll(t *testing.T, client *redis.Client, clients int) {
	for n := range clients {
		left, err := held(client, n, 0)
		require.NoError(t, err)
		used := 1<<40 - left[2]
		open, err := client.Do(context.Background(), "CL.HOLDS", fmt.Sprint("held", n)).Slice()
		require.NoError(t, err)
		require.EqualValues(t, len(open), used%heldActual, "%d used, %v", used, open)
		for _, one := range open {
			id := one.([]any)[0]
			first, err := held(client, n, heldActual, "SETTLE", id)
			require.NoError(t, err)
			require.EqualValues(t, heldActual-heldEstimate, first[5])
			again, err := held(client, n, heldActual, "SETTLE", id)
			require.NoError(t, err)
			require.Equal(t, first, again)
		}
		left, err = held(client, n, 0)
		require.NoError(t, err)
		require.Zero(t, (1<<40-left[2])%heldActual)
	}
}

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

// heldEstimate is the quantity that a client charges first, and the quantities to which it corrects the charge are
// multiples of heldUnit, from 0 to more than the estimate. The tokens that a key has charged, divided by heldUnit,
// leave a remainder of 1 if and only if one of its holds is open. So the test sees if a key and its holds are from
// different instants.
const heldEstimate, heldUnit = 10, 3

func heldActual() int { return heldUnit * rand.IntN(6) }

// A server is killed while clients charge estimates and correct them. When it is started again, each key and its holds
// are from the same instant, and each open hold can be settled once.
func TestKillsWithHolds(t *testing.T) {
	t.Parallel()
	dir, clients, found := t.TempDir(), amount(20, 200), 0
	for run := range amount(4, 40) {
		server := peer.Start(t, "--dir", dir, "--loglevel", "nothing")
		client := peer.Client(&redis.Options{Addr: server.Addr, MaxRetries: -1, PoolSize: clients})
		found += settleAll(t, client, clients)
		var all sync.WaitGroup
		var settled atomic.Int64
		for n := range clients {
			all.Go(func() { holdUntilKilled(client, n, run, &settled) })
		}
		moment := rand.Int64N(5_000)
		await(t, func() bool { return settled.Load() >= moment })
		require.NoError(t, client.Do(t.Context(), "WAITAOF", 1, 0, 0).Err())
		server.Signal(syscall.SIGKILL)
		server.Wait()
		all.Wait()
		require.NoError(t, client.Close())
	}
	server := peer.Start(t, "--dir", dir, "--loglevel", "nothing")
	found += settleAll(t, peer.Client(&redis.Options{Addr: server.Addr}), clients)
	t.Logf("%d holds were open after a kill", found)
	require.NotZero(t, found)
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
		if _, err := held(client, n, heldActual(), "SETTLE", id); err != nil {
			return
		}
		settled.Add(1)
	}
}

// settleAll settles the open holds of all keys, and requires that they agree with their keys. It returns how many there
// were.
func settleAll(t *testing.T, client *redis.Client, clients int) (found int) {
	for n := range clients {
		left, err := held(client, n, 0)
		require.NoError(t, err)
		used := 1<<40 - left[2]
		open, err := client.Do(context.Background(), "CL.HOLDS", fmt.Sprint("held", n)).Slice()
		require.NoError(t, err)
		require.EqualValues(t, len(open), used%heldUnit, "%d used, %v", used, open)
		found += len(open)
		for _, one := range open {
			id, actual := one.([]any)[0], heldActual()
			first, err := held(client, n, actual, "SETTLE", id)
			require.NoError(t, err)
			require.EqualValues(t, actual-heldEstimate, first[5])
			again, err := held(client, n, actual, "SETTLE", id)
			require.NoError(t, err)
			require.Equal(t, first, again)
		}
		left, err = held(client, n, 0)
		require.NoError(t, err)
		require.Zero(t, (1<<40-left[2])%heldUnit)
	}
	return found
}

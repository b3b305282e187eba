package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// accounts is the number of keys in a history. A step adds to one of them or reads it; a
// transaction has several steps.
const accounts = 3

type transfer struct {
	account int
	add     int64 // 0: the key is read
}

// bank is the model: a transaction is one step, whose replies are the new values of its keys.
var bank = porcupine.Model{
	Init: func() any { return [accounts]int64{} },
	Step: func(state, input, output any) (bool, any) {
		next := state.([accounts]int64)
		var want []int64
		for _, s := range input.([]transfer) {
			next[s.account] += s.add
			want = append(want, next[s.account])
		}
		return slices.Equal(want, output.([]int64)), next
	},
}

// transact makes a transaction, atomically or in pieces.
func transact(t *testing.T, c *redis.Client, steps []transfer, between func()) (got []int64, err error) {
	ask := func(p redis.Cmdable, s transfer) *redis.Cmd {
		key := fmt.Sprint("account", s.account)
		return p.(interface {
			Do(ctx context.Context, args ...any) *redis.Cmd
		}).Do(inTime(t), "INCRBY", key, s.add)
	}
	var replies []*redis.Cmd
	if between == nil {
		_, err = c.TxPipelined(inTime(t), func(p redis.Pipeliner) error {
			for _, s := range steps {
				replies = append(replies, ask(p, s))
			}
			return nil
		})
	} else {
		for _, s := range steps {
			replies = append(replies, ask(c, s))
			between()
		}
	}
	for _, r := range replies {
		n, failed := r.Int64()
		if failed != nil {
			return nil, failed
		}
		got = append(got, n)
	}
	return got, err
}

// Transactions of several clients on several keys are linearizable: one order explains every reply.
func TestTransactionsAreLinearizable(t *testing.T) {
	server := peer.Start(t, "--io-threads", "4")
	const clients, rounds = 6, 40
	var clock atomic.Int64
	for history := range 5 {
		cleaner := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS})
		require.NoError(t, cleaner.FlushAll(inTime(t)).Err())
		cleaner.Close()
		var mu sync.Mutex
		var operations []porcupine.Operation
		require.NoError(t, together(clients, func(i int) error {
			c := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS})
			defer c.Close()
			random := rand.New(rand.NewPCG(uint64(history), uint64(i)))
			for range rounds {
				var steps []transfer
				for range 1 + random.IntN(4) {
					steps = append(steps, transfer{random.IntN(accounts), random.Int64N(3) * random.Int64N(5)})
				}
				called := clock.Add(1)
				got, err := transact(t, c, steps, nil)
				if err != nil {
					return err
				}
				mu.Lock()
				operations = append(operations,
					porcupine.Operation{ClientId: i, Input: steps, Call: called, Output: got, Return: clock.Add(1)})
				mu.Unlock()
			}
			return nil
		}))
		require.True(t, porcupine.CheckOperations(bank, operations), "history %d", history)
	}
}

// The checker finds a transaction that was made in pieces, with another transaction between the
// pieces.
func TestTransactionsInPiecesAreFound(t *testing.T) {
	server := peer.Start(t)
	a, b := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS}),
		peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS})
	defer a.Close()
	defer b.Close()
	both := []transfer{{0, 1}, {1, 1}}
	other := porcupine.Operation{ClientId: 1, Input: both, Call: 2, Return: 3}
	meanwhile := false
	got, err := transact(t, a, both, func() {
		if !meanwhile {
			meanwhile = true
			answer, err := transact(t, b, both, nil)
			require.NoError(t, err)
			other.Output = answer
		}
	})
	require.NoError(t, err)
	torn := porcupine.Operation{ClientId: 0, Input: both, Call: 1, Output: got, Return: 4}
	require.False(t, porcupine.CheckOperations(bank, []porcupine.Operation{torn, other}))
}

// Clients that read, compute and write under WATCH do not overwrite each other's changes.
func TestWatchLosesNothing(t *testing.T) {
	server := peer.Start(t, "--io-threads", "4")
	const clients, rounds = 8, 25
	require.NoError(t, together(clients, func(int) error {
		c := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS})
		defer c.Close()
		for done := 0; done < rounds; {
			err := c.Watch(inTime(t), func(tx *redis.Tx) error {
				n, err := tx.Get(inTime(t), "sum").Int()
				if err != nil && err != redis.Nil {
					return err
				}
				_, err = tx.TxPipelined(inTime(t), func(p redis.Pipeliner) error { return p.Set(inTime(t), "sum", n+1, 0).Err() })
				return err
			}, "sum")
			switch err {
			case nil:
				done++
			case redis.TxFailedErr:
			default:
				return err
			}
		}
		return nil
	}))
	c := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS})
	defer c.Close()
	sum, err := c.Get(inTime(t), "sum").Int()
	require.NoError(t, err)
	require.Equal(t, clients*rounds, sum)
}

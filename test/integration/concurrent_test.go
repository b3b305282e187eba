package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/test/peer"
)

// together runs each in n goroutines, and returns their errors.
func together(n int, each func(i int) error) error {
	failures := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() { failures[i] = each(i) })
	}
	running.Wait()
	return errors.Join(failures...)
}

// However many clients use one key at once, they take all of its tokens, and not one more. The
// period is so long that no token comes back during the test.
func TestManyClientsOfOneKey(t *testing.T) {
	const burst, clients, calls = 999, 32, 50
	for _, threads := range []string{"1", "4"} {
		t.Run("io-threads "+threads, func(t *testing.T) {
			server := peer.Start(t, "--io-threads", threads)
			var admitted atomic.Int64
			err := together(clients, func(i int) error {
				c := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS, Protocol: 2 + i%2})
				defer c.Close()
				for range calls {
					got, err := c.Do(inTime(t), "CL.THROTTLE", "key", burst, 1, 1_000_000, 1).Int64Slice()
					if err != nil {
						return err
					}
					admitted.Add(1 - got[0])
				}
				return nil
			})
			require.NoError(t, err)
			assert.EqualValues(t, burst+1, admitted.Load(), "of %d calls", clients*calls)
		})
	}
}

// Clients that send all kinds of calls, in batches of any size, each receive their own replies, in
// order.
func TestMixedPipelines(t *testing.T) {
	server := peer.Start(t)
	rounds := 60
	if racetest.Enabled {
		rounds = 15
	}
	require.NoError(t, together(16, func(i int) error {
		c := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS, Protocol: 2 + i%2})
		defer c.Close()
		m := mixer{Rand: rand.New(rand.NewPCG(uint64(i), 0)), key: fmt.Sprint("key", i)}
		for range rounds {
			if err := m.round(t.Context(), c); err != nil {
				return err
			}
		}
		return nil
	}))
}

// mixer is a client that knows the reply of each of its calls.
type mixer struct {
	*rand.Rand
	key       string
	taken     int64
	printedBy int
}

func (m *mixer) round(ctx context.Context, c *redis.Client) error {
	var wants []string
	replies, _ := c.Pipelined(ctx, func(p redis.Pipeliner) error { // one reply has the same error
		for range 1 + m.IntN(200) {
			words, want := m.call()
			p.Do(ctx, words...)
			wants = append(wants, want)
		}
		return nil
	})
	for i, reply := range replies {
		value, err := reply.(*redis.Cmd).Result()
		if err != nil {
			value = err
		}
		// The last element of a throttle's reply depends on the time, so the wanted text ends
		// before it.
		if got := fmt.Sprint(value); got != wants[i] && !(wants[i][0] == '[' && strings.HasPrefix(got, wants[i]+" ")) {
			return fmt.Errorf("%s: got %s, want %s", reply, got, wants[i])
		}
	}
	return nil
}

func (m *mixer) call() (words []any, want string) {
	const burst = 1_000_000
	switch m.IntN(6) {
	case 0:
		m.printedBy++
		word := fmt.Sprint(m.key, " says ", m.printedBy)
		return []any{"ECHO", word}, word
	case 1:
		return []any{"GET", m.key + " is not there"}, redis.Nil.Error()
	case 2:
		return []any{"EXISTS", m.key, m.key}, fmt.Sprint(2 * min(1, m.taken))
	case 3:
		return []any{"NOSUCH" + m.key}, fmt.Sprintf("ERR unknown command 'NOSUCH%s', with args beginning with: ", m.key)
	case 4:
		return []any{"CL.THROTTLE", m.key, burst, 1, 1000, burst + 2, "MS", "MS"}, "ERR syntax error at 'MS'"
	}
	m.taken++
	return []any{"CL.THROTTLE", m.key, burst, 1, 1000, 1}, fmt.Sprintf("[0 %d %d -1", burst+1, burst+1-m.taken)
}

// Other clients are served while KEYS runs.
func TestOtherClientsAreServedDuringKeys(t *testing.T) {
	const stored = 50_000
	server := peer.Start(t)
	c := client(t, server, 3)
	_, err := c.Pipelined(inTime(t), func(p redis.Pipeliner) error {
		for i := range stored {
			p.Do(inTime(t), "CL.THROTTLE", fmt.Sprint("stored:", i), 15, 1, 1000, 1)
		}
		return nil
	})
	require.NoError(t, err)
	listed := make(chan struct{})
	var others atomic.Int64
	require.NoError(t, together(4, func(i int) error {
		if i == 0 {
			defer close(listed)
			for range 10 {
				if n := len(c.Keys(inTime(t), "stored:*").Val()); n != stored {
					return fmt.Errorf("KEYS returned %d keys", n)
				}
			}
			return nil
		}
		for n := 0; ; n++ {
			select {
			case <-listed:
				return nil
			default:
			}
			got, err := c.Do(inTime(t), "CL.THROTTLE", fmt.Sprint("other:", i), 1_000_000, 1, 1000, 1).Int64Slice()
			if err != nil || got[2] != int64(1_000_000-n) {
				return fmt.Errorf("call %d: %v %w", n, got, err)
			}
			others.Add(1)
		}
	}))
	assert.Greater(t, others.Load(), int64(20), "calls of other clients during ten KEYS")
}

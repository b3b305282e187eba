package exactness

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// demand is how clients' calls on a key that several servers use were answered.
type demand struct {
	mu             sync.Mutex
	allowed, calls int
	failed         int // calls without a decision
	took           []time.Duration
}

// note counts a call. The first integer of a decision is 0 if it is allowed.
func (d *demand) note(took time.Duration, decision []any, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	d.took = append(d.took, took)
	switch {
	case err != nil:
		d.failed++
	case decision[0] == int64(0):
		d.allowed++
	}
}

// percentile returns the time within which a part of the calls was answered.
func (d *demand) percentile(part float64) time.Duration {
	slices.Sort(d.took)
	return d.took[int(float64(len(d.took)-1)*part)]
}

// callTogether lets clients of several servers make calls, with a pause between two of them, for a time. Each makes at
// least one.
func callTogether(t *testing.T, servers []*peer.Server, clients int, pause, span time.Duration, words ...any) *demand {
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	d := new(demand)
	var running sync.WaitGroup
	for i, s := range servers {
		for j := range clients {
			phase := pause * time.Duration(j*len(servers)+i) / time.Duration(clients*len(servers))
			running.Go(func() {
				client := connect(s)
				defer client.Close()
				<-time.After(phase) // or all would call at once
				for again := true; again; again = ctx.Err() == nil {
					began := now()
					decision, err := client.Do(context.Background(), words...).Slice()
					d.note(now()-began, decision, err)
					select {
					case <-ctx.Done():
					case <-time.After(pause):
					}
				}
			})
		}
	}
	running.Wait()
	return d
}

// operations returns how many commands on keys a store has answered.
func operations(t *testing.T, store *peer.Server) (n int) {
	info := peer.Ask(t, store.Addr, "info", "commandstats").(string)
	for line := range strings.Lines(info) {
		name, rest, _ := strings.Cut(line, ":calls=")
		count, _, _ := strings.Cut(rest, ",")
		if slices.Contains([]string{"cmdstat_get", "cmdstat_set", "cmdstat_evalsha"}, name) {
			calls, err := strconv.Atoi(count)
			require.NoError(t, err)
			n += calls
		}
	}
	return n
}

// Eight servers use one key, with demands below its limit and of nearly twice the limit. If they take tokens ahead,
// they ask the store far less often. How much less depends on how busy the machine is; TestBlocksSaveSteps has the
// exact figures.
func TestLeasesSaveOperations(t *testing.T) {
	const clients, pause = 4, 16 * time.Millisecond // 2000 calls a second, if they took no time
	store := peer.StartStore(t)
	for _, c := range []struct {
		load string
		rate int
	}{{"90 %", 2222}, {"200 %", 1000}} {
		var calls, asked [2]int
		for i, lease := range []string{"0", "100"} {
			var servers []*peer.Server
			for range 8 {
				servers = append(servers, peer.Start(t, "--store", "redis://"+store.Addr, "--store-lease", lease,
					"--store-prefix", c.load+lease, "--store-timeout", "30000"))
			}
			callTogether(t, servers, 1, pause, time.Second/2, "CL.THROTTLE", "k", c.rate, c.rate, 1)
			before := operations(t, store)
			span := time.Duration(amount(2, 10)) * time.Second
			d := callTogether(t, servers, clients, pause, span, "CL.THROTTLE", "k", c.rate, c.rate, 1)
			calls[i], asked[i] = d.calls, max(operations(t, store)-before, 1)
			bare := callTogether(t, servers, clients, pause, span, "TIME")
			t.Logf("load %s, lease %s ms: %d calls, %d allowed, 1 operation for %.2f calls",
				c.load, lease, calls[i], d.allowed, float64(calls[i])/float64(asked[i]))
			t.Logf("p50 %v, p99 %v; of TIME, which needs no store, %v, %v",
				d.percentile(0.5), d.percentile(0.99), bare.percentile(0.5), bare.percentile(0.99))
			for _, s := range servers {
				s.Stop()
			}
		}
		assert.Less(t, asked[1]*calls[0], asked[0]*calls[1], "load %s", c.load)
	}
}

// Servers use one key, each with 16 callers that pause for 10 ms. The test compares the store's CPU time per call, and
// the median time of a call, with those when the callers run redis_rate's script themselves. The store is on this
// machine, or a round trip of at least a millisecond away, as in another zone.
func TestModestHotKey(t *testing.T) {
	for _, n := range []int{4, 8} {
		for _, away := range []time.Duration{0, time.Millisecond}[:amount(1, 2)] {
			var processor, middle []float64
			for range amount(2, 6) {
				spent, took := compareWithScript(t, n, away)
				processor, middle = append(processor, spent), append(middle, took)
			}
			slices.Sort(processor)
			slices.Sort(middle)
			t.Logf("%d servers, %v away: CPU of the store %.2f of redis_rate's script, p50 %.2f", n, away,
				processor[len(processor)/2], middle[len(middle)/2])
			assert.Less(t, processor[0], 2.0, "the goal is 1.0, but a busy machine makes the figure inexact")
		}
	}
}

// compareWithScript returns the CPU time of a store per call, and the median time of a call, in multiples of those with
// redis_rate's script.
func compareWithScript(t *testing.T, n int, away time.Duration) (processor, middle float64) {
	const callers, pause, limit = 16, 10 * time.Millisecond, 1_000_000
	store := peer.StartStore(t)
	far := &peer.Server{Addr: store.Addr}
	if away > 0 {
		p := proxy.New(t, store.Addr)
		p.SetDelay(away / 2)
		far.Addr = p.Addr
	}
	var servers []*peer.Server
	for range n {
		servers = append(servers, peer.Start(t, "--store", "redis://"+far.Addr, "--store-timeout", "30000"))
	}
	var spent, took [2]time.Duration
	for i, of := range [][]*peer.Server{slices.Repeat([]*peer.Server{far}, n), servers} {
		words := []any{"CL.THROTTLE", "k", limit, limit, 1}
		if i == 0 {
			words = []any{"EVALSHA", scriptOfRedisRate(t, store.Addr), 1, "rate", limit, limit, 1, 1}
		}
		before := processorTime(t, store)
		d := callTogether(t, of, callers, pause, time.Second, words...)
		require.Zero(t, d.failed)
		spent[i], took[i] = (processorTime(t, store)-before)/time.Duration(d.calls), d.percentile(0.5)
	}
	bare := callTogether(t, servers, callers, pause, time.Second, "TIME")
	for _, s := range servers {
		s.Stop()
	}
	t.Logf("%d servers, %v away: CPU of the store %v, p50 %v; with redis_rate's script %v, %v", n, away, spent[1],
		took[1], spent[0], took[0])
	t.Logf("p50 of TIME, which needs no store, %v", bare.percentile(0.5))
	return float64(spent[1]) / float64(spent[0]), float64(took[1]) / float64(took[0])
}

// processorTime returns the CPU time that a store has used.
func processorTime(t *testing.T, store *peer.Server) (sum time.Duration) {
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(infoField(t, store.Addr, "cpu", field), 64)
		require.NoError(t, err)
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}

// scriptOfRedisRate makes a call with the script of redis_rate, and returns its digest.
func scriptOfRedisRate(t *testing.T, addr string) string {
	client := &scriptKeeper{Client: peer.Client(&redis.Options{Addr: addr})}
	defer client.Close()
	result, err := redis_rate.NewLimiter(client).Allow(t.Context(), "k", redis_rate.PerSecond(1))
	require.NoError(t, err)
	require.Equal(t, 1, result.Allowed)
	return client.digest
}

// scriptKeeper is a client that keeps the digest of the script that redis_rate runs.
type scriptKeeper struct {
	*redis.Client
	digest string
}

func (c *scriptKeeper) EvalSha(ctx context.Context, digest string, keys []string, args ...any) *redis.Cmd {
	c.digest = digest
	return c.Client.EvalSha(ctx, digest, keys, args...)
}

// A call that a remembered value denies does not wait for the connections to a distant store, although callers keep
// them busy. The store is so distant that a delay by a busy machine cannot be taken for such a wait.
func TestDenialsDoNotWait(t *testing.T) {
	const trip = 200 * time.Millisecond
	store := peer.StartStore(t)
	far := proxy.New(t, store.Addr)
	server := peer.Start(t, "--store", "redis://"+far.Addr, "--store-cache-denials", "10000", "--store-timeout",
		"30000", "--loglevel", "nothing")
	peer.Says(t, server.Addr, "store_reached:1", "info", "store")
	deny := connect(server)
	defer deny.Close()
	peer.Until(t, "a refusal", func() bool { return isLimited(t, deny) })
	far.SetDelay(trip / 2)
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 16 {
		running.Go(func() {
			client := connect(server)
			defer client.Close()
			for ctx.Err() == nil {
				_ = client.Do(context.Background(), "CL.FIXED", fmt.Sprint("k", i), 1_000_000, 3600).Err()
			}
		})
	}
	peer.Until(t, "the callers wait for the store", func() bool {
		return infoField(t, server.Addr, "store", "store_steps_waiting") == "16"
	})
	d := new(demand)
	for range 200 {
		began := now()
		require.True(t, isLimited(t, deny))
		d.took = append(d.took, now()-began)
	}
	cancel()
	running.Wait()
	t.Logf("p50 %v, p99 %v, beside 16 callers at %v", d.percentile(0.5), d.percentile(0.99), trip)
	assert.Less(t, d.percentile(0.5), trip/2)
}

func isLimited(t *testing.T, client *redis.Client) bool {
	reply, err := client.Do(t.Context(), "CL.FIXED", "denied", 1, 3600).Int64Slice()
	require.NoError(t, err)
	return reply[0] == 1
}

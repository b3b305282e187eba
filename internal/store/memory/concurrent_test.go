package memory

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/limit"
	"cellserver/internal/quota"
	"cellserver/internal/store"
)

// TestConcurrentCalls makes all kinds of calls concurrently, on few keys in any order, while the clock
// advances and the sweep runs. The race detector finds accesses without a lock, locks in the wrong
// order end in a deadlock, and check finds what a step left half done.
func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	const callers, calls, keyCount = 8, 1500, 60
	clock := store.NewStillClock(1_700_000_000e9)
	m := New(Options{Databases: 2, Clock: clock, SweepEvery: -1})
	heard := make([]int, m.Databases()*shards) // under their shards' locks
	m.Subscribe(func(database int, key []byte, _ store.Event, _ int64) {
		if key != nil {
			heard[database*shards+int(m.View().(*view).hash(key).shard)]++
		}
	})
	keys := words(named(keyCount))
	var done sync.WaitGroup
	for i := range callers {
		random := rand.New(rand.NewPCG(11, uint64(i)))
		done.Go(func() {
			v := m.View()
			for range calls {
				v.Select(random.IntN(2))
				randomCallOfAnyKind(v, random, keys)
			}
		})
	}
	done.Go(func() {
		for range calls {
			clock.Advance(time.Duration(5 * time.Millisecond))
			m.Sweep()
			m.Usage()
			runtime.Gosched()
		}
	})
	done.Wait()
	require.NoError(t, m.check())
	sum := 0
	for _, n := range heard {
		sum += n
	}
	require.Greater(t, sum, calls)
	require.NoError(t, m.View().FlushAll(background))
	logs, leases := m.objects()
	require.Zero(t, logs+leases)
	require.NoError(t, m.check())
}

func named(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("key", i))
	}
	return names
}

// randomCallOfAnyKind makes a random call and ignores the result, which other tests verify.
func randomCallOfAnyKind(v store.View, random *rand.Rand, all [][]byte) {
	keys := make([][]byte, 1+random.IntN(4))
	for i, n := range random.Perm(len(all))[:len(keys)] {
		keys[i] = all[n]
	}
	v.Begin()
	v.Prefetch(keys)
	key, holder := keys[0], fmt.Sprint("h", random.IntN(5))
	switch n := random.IntN(40); {
	case n < 16:
		rule := plainRule(takers[random.IntN(len(takers))], 5, 1)
		v.Take(background, key, rule, random.Int64N(6)-1, quota.Mode(random.IntN(4)))
	case n < 22:
		v.TakeAll(background, randomRequests(random, keys, holder), modeOf(n == 20))
	case n < 28:
		v.Acquire(background, key, plainRequest(9, 1, holder, 1), 4)
	case n < 30:
		v.Renew(background, key, time.Second, []byte(holder))
	case n < 32:
		v.Release(background, key, []byte(holder))
	case n < 33:
		v.Holders(background, key)
	case n < 34:
		v.Inspect(background, key)
	case n < 35:
		v.Lookup(background, key)
	case n < 36:
		v.Count(background, keys)
	case n < 37:
		v.Delete(background, keys)
	case n < 38:
		v.Scan(background, random.Uint64N(shards<<positionBits), 10, func([]byte, store.Entry) {})
	case n < 39:
		v.Random(background, nil)
	case random.IntN(20) == 0:
		v.Flush(background)
	default:
		v.Size(background)
	}
}

// randomRequests returns requests of all kinds, some of them forced.
func randomRequests(random *rand.Rand, keys [][]byte, holder string) (requests []store.LimitRequest) {
	for _, key := range keys {
		rule := plainRule(takers[len(key)%len(takers)], 50, 1)
		t := store.LimitRequest{Key: key, Rule: *rule, Quantity: random.Int64N(4) - 1}
		switch random.IntN(6) {
		case 0:
			t.Mode = quota.Force
		case 1:
			t = store.LimitRequest{Key: key, Rule: limit.Rule{Kind: limit.Lease},
				Lease: &store.LeaseRequest{Request: plainRequest(9, 1, holder, 1), MaxHolders: 4}}
		}
		requests = append(requests, t)
	}
	return requests
}

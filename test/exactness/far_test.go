package exactness

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// One of four cellservers is further away from the store than the others, and all have the same demand for one limit.
// The far server gets its share of the limit, and the limit admits what it promises.
func TestFarServerGetsItsShare(t *testing.T) {
	for name, c := range map[string]struct {
		away    time.Duration // a round trip
		timeout string
	}{"10ms": {10 * time.Millisecond, "500"}, "40ms": {40 * time.Millisecond, "1000"}} {
		t.Run(name, func(t *testing.T) {
			store := peer.StartStore(t)
			front := proxy.New(t, store.Addr)
			front.SetDelay(c.away / 2)
			addrs := []string{front.Addr, store.Addr, store.Addr, store.Addr}
			var taken [4]atomic.Int64
			began := time.Now()
			takeTogether(t, addrs, c.timeout, &taken)
			most := farBurst + int64(time.Since(began)/farEmission) + int64(c.away/farEmission) + 1
			all := int64(0)
			for i := range taken {
				all += taken[i].Load()
			}
			t.Log(taken[0].Load(), taken[1].Load(), taken[2].Load(), taken[3].Load(), "of", most)
			assert.LessOrEqual(t, all, most)
			// On a busy machine, even near servers get half of an even share; TestLimitIsShared measures shares exactly.
			assert.GreaterOrEqual(t, taken[0].Load(), all/4/10, "a tenth of an even share: a server that starves gets none")
		})
	}
}

const (
	farBurst    = 20
	farEmission = 5 * time.Millisecond
)

// takeTogether lets clients of several servers on one store take from one key, until the limit has admitted some
// hundreds of calls.
func takeTogether(t *testing.T, stores []string, timeout string, taken *[4]atomic.Int64) {
	const callers, pause = 16, 300 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var all atomic.Int64
	for i, addr := range stores {
		server := peer.Start(t, "--store", "redis://"+addr, "--store-timeout", timeout)
		for range callers {
			running.Go(func() {
				client := connect(server)
				defer client.Close()
				ticks := time.NewTicker(pause)
				defer ticks.Stop()
				for ctx.Err() == nil {
					reply, err := client.Do(ctx, "CL.THROTTLE", "far", farBurst-1, int64(time.Second/farEmission), 1).Int64Slice()
					if err == nil && reply[0] == 0 {
						taken[i].Add(1)
						all.Add(1)
					}
					<-ticks.C
				}
			})
		}
	}
	peer.Until(t, "calls that were allowed", func() bool { return all.Load() > int64(amount(500, 3000)) })
	cancel()
	running.Wait()
}

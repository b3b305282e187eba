package exactness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// repeaters are clients that repeat each call with the same ID, at one server after the other, until it
// is decided.
type repeaters struct {
	servers  []*peer.Server
	newID    bool // a planted fault: a repeated call has another ID
	repeated atomic.Int64
	decided  atomic.Int64
}

// takeAll makes calls that each take one token of limit, and returns what remained after each call.
func (r *repeaters) takeAll(t *testing.T, client, calls, limit int) (remaining []int64) {
	connections := make([]*redis.Client, len(r.servers))
	for i, s := range r.servers {
		connections[i] = connect(s)
		defer connections[i].Close()
	}
	for n := range calls {
		for try := 0; ; try++ {
			id := fmt.Sprint(client, "-", n)
			if r.newID {
				id += fmt.Sprint("-", try)
			}
			c := connections[(client+try)%len(connections)]
			reply, err := c.Do(context.Background(), "CL.FIXED", "ids", limit, 86400, 1, "ID", id).Int64Slice()
			if err == nil && assert.Len(t, reply, 5) {
				remaining = append(remaining, reply[2])
				r.decided.Add(1)
				break
			}
			r.repeated.Add(1)
		}
	}
	return remaining
}

// takeAmidFaults lets clients take while connections to the store are cut, and returns what remained after
// each call, in order.
func takeAmidFaults(t *testing.T, r *repeaters, clients, calls, limit int) (remaining []int64) {
	store := peer.StartStore(t)
	front := proxy.New(t, store.Addr)
	for range 3 {
		r.servers = append(r.servers, peer.Start(t, "--store", "redis://"+front.Addr, "--store-timeout", "1000", "--id-ttl",
			"3600", "--loglevel", "nothing"))
	}
	faults := []proxy.Fault{proxy.LoseReply, proxy.TearReply, proxy.LoseRequest}
	const match = "cl1id:"                   // the requests that set tokens contain it
	struck := front.Arm(faults[0], match, 0) // before the clients begin, so that there is a fault
	var group sync.WaitGroup
	var mu sync.Mutex
	var all []int64
	for client := range clients {
		group.Go(func() {
			found := r.takeAll(t, client, calls, limit)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found...)
		})
	}
	stop := make(chan struct{})
	var disturbance sync.WaitGroup
	disturbance.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-struck:
			case <-stop:
				return
			}
			before := r.decided.Load()
			peer.Until(t, "a decision after the fault", func() bool {
				return r.decided.Load() > before || r.decided.Load() == int64(clients*calls)
			})
			struck = front.Arm(faults[i%len(faults)], match, 0)
		}
	})
	group.Wait()
	close(stop)
	disturbance.Wait()
	slices.Sort(all)
	return all
}

// Clients that repeat calls with the same ID take exactly once with each call, whichever server they reach:
// the remaining tokens count down by one per call, although replies of the store are lost.
func TestCallsWithIDsCountOnce(t *testing.T) {
	t.Parallel()
	const clients, calls = 8, 25
	r := &repeaters{}
	remaining := takeAmidFaults(t, r, clients, calls, 10*clients*calls)
	require.NotZero(t, r.repeated.Load())
	require.Len(t, remaining, clients*calls)
	for i, n := range remaining {
		require.Equal(t, int64(9*clients*calls+i), n)
	}
}

// Clients that repeat calls with another ID take more than once, which the test finds.
func TestCallsWithOtherIDsAreFound(t *testing.T) {
	t.Parallel()
	const clients, calls = 8, 25
	remaining := takeAmidFaults(t, &repeaters{newID: true}, clients, calls, 10*clients*calls)
	require.Less(t, remaining[0], int64(9*clients*calls))
}

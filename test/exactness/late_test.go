package exactness

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"cellserver/test/peer"
)

// A server decides about a key that, as far as it knows, does not exist, and its decision reaches the
// store late. In between, another server has used the key up. By the time the decision arrives the key may
// have expired, so that it is absent again. The store must refuse the decision even then.
func TestALateDecisionDoesNotFreeTheLimit(t *testing.T) {
	t.Parallel()
	store := peer.StartStore(t)
	l := &load{t: t, decided: make([]atomic.Int64, 1)}
	l.limits = []*limit{{"CL.THROTTLE", "k", 5, 100 * time.Millisecond}}
	var clients [2]*redis.Client
	for i := range clients {
		l.servers = append(l.servers, peer.Start(t, "--store", "redis://"+store.Addr, "--store-timeout",
			"30000", "--loglevel", "nothing"))
		clients[i] = connect(l.servers[i])
		defer clients[i].Close()
	}
	h := &history{limit: l.limits[0]}
	take := func(server int, quantity int64) {
		p := &pipeline{load: l, client: clients[server]}
		h.calls = append(h.calls, p.exchange([]call{{asked: quantity}}, [][]any{h.limit.take(quantity, "UPTO", "")})...)
		l.trip.Store(max(l.trip.Load(), longestTrip(l.servers)))
	}
	take(0, 5)
	take(0, -5) // now this server knows that there is no key
	take(1, 5)
	store.Signal(syscall.SIGSTOP)
	// The store is stopped for longer than the 500 ms in which the limit recovers.
	resumed := time.AfterFunc(700*time.Millisecond, func() { store.Signal(syscall.SIGCONT) })
	defer resumed.Stop()
	take(0, 5)
	take(1, 5)
	h.wrong = l.wrong()
	assert.NoError(t, h.check())
}

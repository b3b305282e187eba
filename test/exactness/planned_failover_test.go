package exactness

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// Sentinels are asked to replace the primary, while clients take. The old primary goes on acknowledging for seconds,
// but decisions go to the new one as soon as it is promoted: less is lost than is admitted from the promotion until
// the first Sentinel says that the primary has changed. That is what a server that waits for this event would lose.
func TestPlannedFailoverLosesLittle(t *testing.T) {
	s := peer.StartSentinels(t, peer.StartStore, nil, quickly...)
	server := peer.Start(t, "--store", s.URL(), "--store-timeout", "5s")
	admitted, stop := takeSteadily(t, server)

	sentinel := peer.Client(&redis.Options{Addr: s.Addrs[0]})
	defer sentinel.Close()
	events := sentinel.PSubscribe(t.Context(), "+switch-master")
	defer events.Close()
	_, err := events.Receive(t.Context())
	require.NoError(t, err)
	peer.Until(t, "some calls", func() bool { return admitted.Load() > 100 })

	peer.Ask(t, s.Addrs[0], "sentinel", "failover", s.Name)
	peer.Says(t, s.Replica.Addr, "role:master", "info", "replication")
	promoted := admitted.Load()
	_, err = events.ReceiveMessage(t.Context())
	require.NoError(t, err)
	meanwhile := admitted.Load() - promoted
	peer.Until(t, "some more calls", func() bool { return admitted.Load() > promoted+meanwhile+100 })
	stop()

	lost := admitted.Load() - countedAt(t, s.Replica.Addr)
	t.Logf("%d calls admitted, %d from the promotion to the event, %d forgotten", admitted.Load(), meanwhile, lost)
	require.Less(t, lost, max(meanwhile, 1))
}

const (
	failoverKey   = "failover"
	failoverLimit = 1_000_000_000
)

// takeSteadily has a client take one after the other, until stop is called.
func takeSteadily(t *testing.T, server *peer.Server) (admitted *atomic.Int64, stop func()) {
	admitted, done := new(atomic.Int64), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	client := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS, MaxRetries: -1})
	go func() {
		defer close(done)
		defer client.Close()
		for ctx.Err() == nil {
			reply, err := client.Do(context.Background(), "CL.FIXED", failoverKey, failoverLimit, "1h").Int64Slice()
			if err == nil && reply[0] == 0 {
				admitted.Add(1)
			}
		}
	}()
	return admitted, func() { cancel(); <-done }
}

// countedAt returns how many calls a server counts, asked by another cellserver.
func countedAt(t *testing.T, addr string) int64 {
	server := peer.Start(t, "--store", "redis://"+addr)
	reply := peer.Ask(t, server.Addr, "CL.FIXED", failoverKey, failoverLimit, "1h", "0", "PEEK")
	return failoverLimit - reply.([]any)[2].(int64)
}

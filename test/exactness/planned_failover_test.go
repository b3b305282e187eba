package exactness

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
	"cellserver/test/proxy"
)

// Sentinels are asked to replace the primary, while clients take. The old primary acknowledges changes for seconds
// more, but decisions go to the new primary as soon as it is promoted. A server that waits for the Sentinels' event
// would lose all calls that are admitted from the promotion until the first Sentinel reports the change. The test
// requires that fewer are lost.
func TestPlannedFailoverLosesLittle(t *testing.T) {
	for range amount(2, 20) {
		var lost, meanwhile int64
		for range 5 { // on a busy machine, the test may notice the promotion only just before the event
			var span time.Duration
			lost, meanwhile, span = failOver(t)
			took := span * time.Duration(lost) / time.Duration(max(meanwhile, 1))
			t.Logf("%d calls admitted in %v from the promotion to the event, %d forgotten, those of %v",
				meanwhile, span, lost, took)
			if amount(0, 1) > 0 { // on a machine that is not busy with other tests
				require.LessOrEqual(t, took, 200*time.Millisecond)
			}
			if lost < meanwhile {
				break
			}
		}
		require.Less(t, lost, meanwhile)
	}
}

// failOver lets Sentinels replace a primary. It returns how many calls were forgotten, how many were admitted from
// the promotion to the first event that names the new primary, and how long that took.
func failOver(t *testing.T) (lost, meanwhile int64, span time.Duration) {
	s := peer.StartSentinels(t, peer.StartStore, nil, quickly...)
	admitted, stop := takeSteadily(t, s.URL(), "--store-timeout", "5s")
	event := switchEvent(t, s, admitted)

	s.FailOver(t)
	promoted, began := admitted.Load(), now()
	taken, at := event()
	meanwhile, span = taken-promoted, at-began
	takenSince(t, admitted, meanwhile+100)
	stop()
	return admitted.Load() - countedAt(t, "redis://"+s.Replica.Addr), meanwhile, span
}

// switchEvent subscribes to a Sentinel. The function that it returns asks the Sentinel to change the primary, until the
// Sentinel says that it has. It returns how many calls were admitted until then, and when that was.
func switchEvent(
	t *testing.T, s *peer.Sentinels, admitted *atomic.Int64, options ...any,
) (wait func() (taken int64, at time.Duration)) {
	sentinel := peer.Client(&redis.Options{Addr: s.Addrs[0]})
	events := sentinel.PSubscribe(t.Context(), "+switch-master")
	_, err := events.Receive(t.Context())
	require.NoError(t, err)
	var taken int64
	var at time.Duration
	received := make(chan struct{})
	go func() {
		defer close(received)
		_, err := events.ReceiveMessage(context.Background())
		taken, at = admitted.Load(), now()
		assert.NoError(t, err)
	}()
	t.Cleanup(func() { events.Close(); sentinel.Close(); <-received })
	return func() (int64, time.Duration) {
		peer.Until(t, "the event", func() bool {
			select {
			case <-received:
				return true
			default:
				s.Urge(options...)
				return false
			}
		})
		return taken, at
	}
}

// The steps of docs/scale.md replace a primary that Sentinels watch, and nothing is forgotten.
func TestPlannedFailoverLosesNothing(t *testing.T) {
	for range amount(1, 20) {
		s := peer.StartSentinels(t, peer.StartStore, nil, quickly...)
		admitted, stop := takeSteadily(t, s.URL())
		event := switchEvent(t, s, admitted)

		peer.Ask(t, s.Primary.Addr, "client", "pause", 60_000, "write")
		peer.Until(t, "the replica has everything", func() bool {
			return infoField(t, s.Primary.Addr, "replication", "master_repl_offset") ==
				infoField(t, s.Replica.Addr, "replication", "slave_repl_offset")
		})
		event()
		peer.Ask(t, s.Primary.Addr, "replicaof", "127.0.0.1", s.Replica.Port)
		peer.Ask(t, s.Primary.Addr, "client", "unpause")
		takenSince(t, admitted, 100)
		stop()
		requireNothingLost(t, admitted, "redis://"+s.Replica.Addr)
	}
}

// infoField returns a field of a section of INFO, or "" if there is no such field.
func infoField(t *testing.T, addr, section, field string) string {
	_, rest, _ := strings.Cut(fmt.Sprint(peer.Ask(t, addr, "info", section)), "\n"+field+":")
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

// Without Sentinels, FAILOVER replaces a primary, and afterwards the name in the URL is changed to lead to the new
// one.
func TestFailoverOfAPairLosesNothing(t *testing.T) {
	for range amount(1, 20) {
		primary := peer.StartStore(t, quickly...)
		follow := []string{"--replicaof", fmt.Sprintf("127.0.0.1 %d", primary.Port)}
		replica := peer.StartStore(t, append(follow, quickly...)...)
		peer.Says(t, primary.Addr, "state=online", "info", "replication")
		front := proxy.New(t, primary.Addr)
		admitted, stop := takeSteadily(t, "redis://"+front.Addr)

		peer.Ask(t, primary.Addr, "failover", "to", "127.0.0.1", replica.Port)
		peer.Says(t, replica.Addr, "role:master", "info", "replication")
		front.SetTarget(replica.Addr)
		front.Cut()
		takenSince(t, admitted, 100)
		stop()
		requireNothingLost(t, admitted, "redis://"+replica.Addr)
	}
}

// CLUSTER FAILOVER replaces a primary of a cluster.
func TestClusterFailoverLosesNothing(t *testing.T) {
	for range amount(1, 20) {
		c := peer.StartCluster(t, peer.StartStore, 3, true, nil, quickly...)
		admitted, stop := takeSteadily(t, c.URL())
		replica := c.Replicas[primaryOf(c, failoverKey)]

		c.FailOver(t, replica)
		takenSince(t, admitted, 100)
		stop()
		requireNothingLost(t, admitted, "redis+cluster://"+replica.Addr)
	}
}

const (
	failoverKey   = "failover"
	failoverLimit = 1_000_000_000
)

// takeSteadily lets a client of a cellserver on a store take one token after the other, until stop is called. It
// returns when some calls are admitted.
func takeSteadily(t *testing.T, store string, args ...string) (admitted *atomic.Int64, stop func()) {
	server := peer.Start(t, append([]string{"--store", store, "--loglevel", "nothing"}, args...)...)
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
	takenSince(t, admitted, 100)
	return admitted, func() { cancel(); <-done }
}

// takenSince waits until so many further calls are admitted.
func takenSince(t *testing.T, admitted *atomic.Int64, n int64) {
	before := admitted.Load()
	peer.Until(t, "some calls", func() bool { return admitted.Load() > before+n })
}

// requireNothingLost requires that a store has counted all admitted calls. It may also have counted calls with the
// reply STOREUNSURE.
func requireNothingLost(t *testing.T, admitted *atomic.Int64, url string) {
	t.Helper()
	counted := countedAt(t, url)
	t.Logf("%d calls admitted, %d counted", admitted.Load(), counted)
	require.LessOrEqual(t, admitted.Load(), counted)
}

// countedAt asks a store through another cellserver how many calls it has counted.
func countedAt(t *testing.T, url string) int64 {
	server := peer.Start(t, "--store", url, "--store-timeout", "30s")
	peer.Until(t, "the store is reached", func() bool {
		return strings.Contains(fmt.Sprint(peer.Ask(t, server.Addr, "info", "store")), "store_reached:1")
	})
	client := connect(server)
	defer client.Close()
	var reply []int64
	words := []any{"CL.FIXED", failoverKey, failoverLimit, "1h", "0", "PEEK"}
	peer.Until(t, "an answer", func() bool { // a node of a cluster may lead to an old primary for a while
		var err error
		reply, err = client.Do(t.Context(), words...).Int64Slice()
		return err == nil
	})
	return failoverLimit - reply[2]
}

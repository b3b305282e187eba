package remote

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/backend"
	"cellserver/internal/store/remote/combine"
	"cellserver/internal/store/storetest"
	"cellserver/test/peer"
)

// stillBackend is a backend whose servers' clocks show the time of the process, which is the test's
// clock.
type stillBackend struct{ *backend.Backend }

// Offset implements combine.Topology.
func (stillBackend) Offset(combine.Primary) int64 { return 0 }

// The store keeps the contract over a real server. The cases see a time at least an hour from now: the
// server's own time passes meanwhile, and no key must expire by it.
func TestStoreKeepsTheContract(t *testing.T) {
	server := start(t)
	storetest.RunWithoutExpiry(t, func(t *testing.T, clock store.Clock) store.Store {
		peer.Ask(t, server.Addr, "FLUSHALL")
		return openStore(t, "redis://"+server.Addr, clock.(*store.StillClock), remote.Options{Prefix: "cl:"})
	})
}

// The store keeps holds over a real server.
func TestStoreKeepsHolds(t *testing.T) {
	server := start(t)
	storetest.RunHolds(t, func(t *testing.T, clock store.Clock) store.Store {
		peer.Ask(t, server.Addr, "FLUSHALL")
		return openStore(t, "redis://"+server.Addr, clock.(*store.StillClock), remote.Options{Prefix: "cl:"})
	})
}

// The store keeps holds over a cluster, with all keys in one slot.
func TestStoreKeepsHoldsOverACluster(t *testing.T) {
	cluster := peer.StartCluster(t, start, 3, false, nil)
	storetest.RunHolds(t, func(t *testing.T, clock store.Clock) store.Store {
		for _, primary := range cluster.Primaries {
			peer.Ask(t, primary.Addr, "FLUSHALL")
		}
		o := remote.Options{Prefix: "cl:{tag}", Databases: 1, Slot: backend.Slot}
		return openStore(t, cluster.URL(), clock.(*store.StillClock), o)
	})
}

// The store keeps the contract over a cluster, with keys in all slots, and with keys in one slot for
// steps on several keys.
func TestStoreKeepsTheContractOverACluster(t *testing.T) {
	cluster := peer.StartCluster(t, start, 3, true, nil)
	storetest.RunInCluster(t, func(t *testing.T, clock store.Clock, oneSlot bool) store.Store {
		for _, primary := range cluster.Primaries {
			peer.Ask(t, primary.Addr, "FLUSHALL") // the store removes only keys with its own prefix
		}
		o := remote.Options{Prefix: "cl:", Databases: 1, Slot: backend.Slot}
		if oneSlot {
			o.Prefix = "cl:{tag}"
		}
		return openStore(t, cluster.URL(), clock.(*store.StillClock), o)
	})
}

// neverSlow is longer than the cases advance the clock at once. With a shorter timeout, a connection that
// is being opened while the clock advances would count as a failure of its server.
const neverSlow = 10_000 * time.Hour

// openStore returns a store over a server that has no keys.
func openStore(t *testing.T, url string, clock *store.StillClock, o remote.Options) store.Store {
	midnight := time.Now().Add(25 * time.Hour).Truncate(24 * time.Hour)
	clock.Advance(time.Duration(midnight.UnixNano() - clock.Now()))
	l := open(t, url)
	e := remote.NewEngine(remote.EngineOptions{
		Sender: stillBackend{l.Backend}, Monotonic: clock.Now, Self: 1, Known: 1000, KnownBytes: 1 << 20,
		Connections: 2, Timeout: neverSlow,
	})
	o.Executor, o.Keyspace, o.Clock, o.AllowFlush, o.OwnKey = e, l.Backend, clock, true, l.OwnKey
	o.Close = func() error { e.Close(l.Close); return nil }
	s := remote.New(o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

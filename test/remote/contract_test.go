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
)

// stillBackend is a backend whose servers' clocks show the time of the process, which is a test's.
type stillBackend struct{ *backend.Backend }

// Offset implements combine.Topology.
func (stillBackend) Offset(combine.Primary) int64 { return 0 }

// The store keeps the contract over a real server. The cases see a time an hour from now, because the
// server's own time passes meanwhile, and no key must expire by it.
func TestStoreKeepsTheContract(t *testing.T) {
	server := start(t)
	storetest.RunWithoutExpiry(t, func(t *testing.T, clock store.Clock) store.Store {
		still := clock.(*store.StillClock)
		still.Advance(time.Duration(time.Now().Add(time.Hour).UnixNano() - still.Now()))
		l := open(t, "redis://"+server.Addr)
		for database := range 16 {
			_, err := l.Flush(t.Context(), database)
			require.NoError(t, err)
		}
		e := remote.NewEngine(remote.EngineOptions{
			Sender: stillBackend{l.Backend}, Monotonic: still.Now, Self: 1, Known: 1000, KnownBytes: 1 << 20,
			Connections: 2, Timeout: time.Minute,
		})
		s := remote.New(remote.Options{
			Executor: e, Keyspace: l.Backend, Clock: still, Prefix: "cl:", AllowFlush: true,
			Close: func() error { e.Close(l.Close); return nil },
		})
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	})
}

package remote_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/leaktest"
	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/remote/remotetest"
	"cellserver/internal/store/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// onTable returns a store over a table.
func onTable(t *testing.T, backend *remotetest.Table, o remote.Options) *remote.Store {
	o.Executor, o.Keyspace, o.Clock, o.AllowFlush = backend, backend, backend, true
	backend.Prefix, o.Databases = o.Prefix, backend.Databases()
	s := remote.New(o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// The view keeps the contract over any backend that makes steps atomic.
func TestRemoteKeepsTheContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, clock store.Clock) store.Store {
		return onTable(t, remotetest.New(clock.(*store.StillClock), 16), remote.Options{})
	})
}

func TestRemoteKeepsHolds(t *testing.T) {
	t.Parallel()
	for _, mistakes := range []bool{false, true} {
		storetest.RunHolds(t, func(t *testing.T, clock store.Clock) store.Store {
			backend := remotetest.New(clock.(*store.StillClock), 16)
			backend.Mistakes = mistakes
			return onTable(t, backend, remote.Options{Prefix: "a prefix:"})
		})
	}
}

// The view keeps the contract if steps run several times, on values that other processes have
// written meanwhile.
func TestRemoteKeepsTheContractAmidConflicts(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, clock store.Clock) store.Store {
		backend := remotetest.New(clock.(*store.StillClock), 16)
		backend.Mistakes = true
		return onTable(t, backend, remote.Options{Prefix: "a prefix:"})
	})
}

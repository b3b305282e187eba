package remote_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"cellserver/internal/store"
	"cellserver/internal/store/remote"
	"cellserver/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onTable returns a store over a table.
func onTable(t *testing.T, backend *table, o remote.Options) *remote.Store {
	o.Executor, o.Keyspace, o.Clock, o.AllowFlush = backend, backend, backend, true
	backend.prefix, o.Databases = o.Prefix, len(backend.databases)
	s := remote.New(o)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// The view keeps the contract over any backend that makes steps atomic.
func TestRemoteKeepsTheContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, clock store.Clock) store.Store {
		return onTable(t, newTable(clock.(*store.StillClock), 16), remote.Options{})
	})
}

// The same if steps run several times, on values that other processes have written meanwhile.
func TestRemoteKeepsTheContractAmidConflicts(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, clock store.Clock) store.Store {
		backend := newTable(clock.(*store.StillClock), 16)
		backend.mistakes = true
		return onTable(t, backend, remote.Options{Prefix: "a prefix:"})
	})
}

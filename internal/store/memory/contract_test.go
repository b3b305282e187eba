package memory_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/leaktest"
	"cellserver/internal/store"
	"cellserver/internal/store/memory"
	"cellserver/internal/store/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestMemoryKeepsTheContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, clock store.Clock) store.Store {
		m := memory.New(memory.Options{Clock: clock, SweepEvery: -1})
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		return m
	})
}

func TestMemoryKeepsHolds(t *testing.T) {
	t.Parallel()
	storetest.RunHolds(t, func(t *testing.T, clock store.Clock) store.Store {
		m := memory.New(memory.Options{Clock: clock, SweepEvery: -1})
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		return m
	})
}

// The store keeps the contract while the periodic sweep runs, as in a server.
func TestMemoryKeepsTheContractWhileItSweeps(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, clock store.Clock) store.Store {
		m := memory.New(memory.Options{Clock: clock, SweepEvery: time.Millisecond})
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		return m
	})
}

// The store keeps the contract while passes are made all the time.
func TestMemoryKeepsTheContractDuringPasses(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, clock store.Clock) store.Store {
		m := memory.New(memory.Options{Clock: clock, SweepEvery: -1})
		m.TrackChanges()
		done := make(chan struct{})
		var passes sync.WaitGroup
		passes.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(time.Millisecond):
					assert.NoError(t, m.Pass(func([]byte) error { return nil }))
				}
			}
		})
		t.Cleanup(func() {
			close(done)
			passes.Wait()
			require.NoError(t, m.Close())
		})
		return m
	})
}

// The wrapper that makes a store wait keeps the contract too.
func TestWaitingStoreKeepsTheContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, clock store.Clock) store.Store {
		w := storetest.NewWaiting(memory.New(memory.Options{Clock: clock, SweepEvery: -1})).Run(1)
		t.Cleanup(func() { require.NoError(t, w.Close()) })
		return w
	})
}

package memory

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/meter"
	"cellserver/internal/store"
)

// While databases are swapped concurrently, the steps of a transaction on two of them find their
// keys locked: a step without locks would panic.
func TestDatabasesSwapDuringTransactions(t *testing.T) {
	m := New(Options{SweepEvery: -1})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			v := m.View()
			for range 3000 {
				_ = v.(store.Swapper).Swap(background, 0, 1)
			}
		})
	}
	for i := range 4 {
		v := m.View()
		from := store.KeyRef{Database: 0, Key: []byte{'a', byte(i)}}
		to := store.KeyRef{Database: 1, Key: []byte{'b', byte(i)}}
		all.Go(func() {
			for range 3000 {
				_ = v.Atomically(background, []store.KeyRef{from, to}, false, func() error {
					for _, p := range []store.KeyRef{from, to} {
						v.Select(p.Database)
						_, _ = v.Add(background, p.Key, 1)
						_, _ = v.Count(background, [][]byte{p.Key})
					}
					return nil
				})
			}
		})
	}
	all.Wait()
	require.NoError(t, m.check())
}

// A transaction that holds many locks, in several databases, for longer than a millisecond is
// measured as one hold.
func TestTransactionIsOneHold(t *testing.T) {
	if runtime.GOOS != "linux" {
		return // not measured on other systems
	}
	var measure, own meter.MaxCPUTime
	m := New(Options{SweepEvery: -1, Holds: &measure})
	v := m.View()
	for database := range 3 {
		v.Select(database)
		_, _ = v.Add(background, []byte("key"), 1)
	}
	before := measure.OverMillisecond()
	_ = v.Atomically(background, nil, true, func() error {
		for rounds := 1 << 16; own.OverMillisecond() == 0; rounds *= 2 { // CPU time, which is what is measured
			began := own.Start()
			for range rounds {
				v.Selected()
			}
			own.Stop(began)
		}
		return nil
	})
	require.Equal(t, before+1, measure.OverMillisecond())
}

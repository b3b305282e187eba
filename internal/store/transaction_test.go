package store

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// While databases change their numbers, steps on two of them find their keys locked: a step that does not would panic.
func TestDatabasesSwapBesideSteps(t *testing.T) {
	m := NewMemory(Options{SweepEvery: -1})
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			v := m.View()
			for range 3000 {
				_ = v.Swap(background, 0, 1)
			}
		})
	}
	for i := range 4 {
		v := m.View()
		from, to := Place{0, []byte{'a', byte(i)}}, Place{1, []byte{'b', byte(i)}}
		all.Go(func() {
			for range 3000 {
				v.Atomically(background, []Place{from, to}, false, func() {
					for _, p := range []Place{from, to} {
						v.Select(p.Database)
						_, _ = v.Add(background, p.Key, 1)
						_, _ = v.Count(background, [][]byte{p.Key})
					}
				})
			}
		})
	}
	all.Wait()
	require.NoError(t, m.check())
}

package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
)

// Without listeners there is no list: before the first listener is added, and after the last is
// removed.
func TestNoListenersAreNoList(t *testing.T) {
	m := New(Options{Clock: store.NewStillClock(0), SweepEvery: -1})
	require.False(t, m.listeners.any())
	listener := func(int, []byte, store.Event, int64) {}
	first, second := m.Subscribe(listener), m.Subscribe(listener)
	first()
	require.True(t, m.listeners.any())
	second()
	require.False(t, m.listeners.any())
	first()
	require.False(t, m.listeners.any())
}

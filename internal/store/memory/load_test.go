package memory

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
)

// A client may subscribe to changes, or watch a key, before the keys are loaded. A load does not
// count as a change.
func TestALoadNotifiesNoListener(t *testing.T) {
	t.Parallel()
	r := newTrackingRig(t, 0)
	for range 90 {
		r.takeBriefly("log")
		r.takeBriefly("leases")
	}
	r.write("key", "value")
	require.NoError(t, r.view.Write(context.Background(), []byte("gone"), store.Value{}, r.clock.Now()+1))
	r.pass(false)
	before := r.chunks
	_, err := r.view.Delete(context.Background(), [][]byte{[]byte("gone")})
	require.NoError(t, err)
	r.pass(false)

	var notified []string
	defer r.copy.Subscribe(func(_ int, key []byte, _ store.Event, _ int64) { notified = append(notified, string(key)) })()
	r.load(append(before, r.chunks...))
	require.Empty(t, notified)
	r.clock.Advance(time.Hour)
	for range slicesPerRound {
		r.copy.Sweep()
	}
	require.ElementsMatch(t, []string{"log:0", "leases:0"}, notified)
}

// EXEC may be called while keys are loaded, and locks the keys that its client watches. This
// creates a database that is not loaded.
func TestATransactionDuringALoad(t *testing.T) {
	t.Parallel()
	r := newTrackingRig(t, 0)
	r.write("key", "value")
	r.pass(false)
	more := New(Options{Databases: 4, Clock: r.clock, SweepEvery: -1}) // more databases than were kept
	loader := more.Load()
	v := more.newView()
	watched := []store.KeyRef{{Database: 0, Key: []byte("key")}, {Database: 3, Key: []byte("key")}}
	require.NoError(t, v.Atomically(context.Background(), watched, false, func() error { return nil }))
	for _, chunk := range r.chunks {
		require.NoError(t, loader.Apply(chunk))
	}
	require.NoError(t, loader.Done())
	more.TrackChanges()
	seen := map[uint64]int{}
	for n := range 4 {
		v.Select(n)
		require.NoError(t, v.Write(context.Background(), []byte("new"), store.Value{}, store.Never))
		g := more.database(n).generation.Load()
		require.NotContains(t, seen, g, "databases %d and %d have the same generation", n, seen[g])
		seen[g] = n
	}
}

// The error for too few databases says how many are needed.
func TestTooFewDatabases(t *testing.T) {
	ctx := context.Background()
	m := New(Options{})
	defer m.Close()
	m.TrackChanges()
	v := m.View()
	for _, database := range []int{3, 7} {
		v.Begin()
		v.Select(database)
		require.NoError(t, v.Write(ctx, []byte("k"), store.Value{Bytes: []byte("v")}, store.Never))
	}
	to := New(Options{Databases: 2, Clock: m.Clock()})
	defer to.Close()
	l := to.Load()
	require.NoError(t, m.Snapshot(l.Apply))
	require.NoError(t, m.Pass(l.Apply))
	require.EqualError(t, l.Done(),
		"database 7 has keys, and there are only 2 databases: at least --databases 8 is needed")
}

package memory

import (
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/form"
	"cellserver/internal/limit"
	"cellserver/internal/standing"
	"cellserver/internal/store"
)

// A store says that there may be standings as soon as a key holds one, however it came there.
func TestMayHaveStandings(t *testing.T) {
	const now = 1e18
	clock := store.NewStillClock(now)
	ban := func(now int64, s standing.State) standing.State { return s.BanFor(now, 1e9, "") }
	from := New(Options{Clock: clock, SweepEvery: -1})
	from.TrackChanges()
	require.NoError(t, from.View().EditStanding(background, []byte("other"),
		func(_ int64, s standing.State) standing.State {
			return s
		}))
	require.NoError(t, from.View().WriteForm(background, []byte("throttle"),
		&form.State{Kind: limit.Throttle, TAT: now + 1e9}))
	require.False(t, from.MayHaveStandings())
	require.NoError(t, from.View().EditStanding(background, []byte("key"), ban))
	require.True(t, from.MayHaveStandings())

	restored := New(Options{Clock: clock, SweepEvery: -1})
	state := &form.State{Kind: limit.Standing, Standing: ban(now, standing.State{})}
	require.NoError(t, restored.View().WriteForm(background, []byte("key"), state))
	require.True(t, restored.MayHaveStandings())

	loaded := New(Options{Clock: clock, SweepEvery: -1})
	loader := loaded.Load()
	require.NoError(t, from.Snapshot(loader.Apply))
	require.NoError(t, loader.Done())
	require.True(t, loaded.MayHaveStandings())
}

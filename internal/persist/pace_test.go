package persist

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/store"
)

// A goroutine rests three times as long as it has worked, at most 10 ms at once, until it must hurry.
func TestPace(t *testing.T) {
	now := store.Reading{Uptime: 1}
	machine := newStillMachine(now)
	pass := func(d time.Duration) {
		now.Uptime += int64(d)
		machine.Set(now)
	}
	var hurry atomic.Bool
	var rests []time.Duration
	p := pace{machine: machine, rest: 3, hurry: &hurry, busy: new(atomic.Int32), sleep: func(d time.Duration) {
		rests = append(rests, d)
		pass(d)
	}}
	p.begin()
	for _, worked := range []time.Duration{200 * time.Microsecond, 0, time.Millisecond, 5 * time.Millisecond} {
		pass(worked)
		p.after()
	}
	hurry.Store(true)
	pass(time.Millisecond)
	p.after()
	require.Equal(t, []time.Duration{600 * time.Microsecond, 3 * time.Millisecond, maxRest}, rests)
}

// The goroutine that writes a snapshot rests, unless the process is about to end. Event loops yield
// while it visits keys, and not while it rests.
func TestSnapshotRests(t *testing.T) {
	p := mustStart(t, newDisk(), Options{})
	rests := 0
	p.r.limits.rest, p.r.sleep = 3, func(time.Duration) {
		rests++
		require.Zero(t, p.r.busy.Load())
	}
	p.store.during = func(int) { require.Positive(t, p.r.busy.Load()) }
	p.store.set("1", "a", "b")
	p.r.compaction.requested = true
	p.tick()
	p.finish()
	require.Positive(t, p.r.base)
	require.Positive(t, rests)

	rests, p.r.compaction.needed = 0, true
	require.NoError(t, p.close())
	require.False(t, p.r.compaction.needed, "no snapshot was written")
	require.Zero(t, rests)
	require.Zero(t, p.r.busy.Load())
}

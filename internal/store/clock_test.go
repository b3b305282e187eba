package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A later reading is not smaller, on any core.
func TestSystemClockIsMonotonic(t *testing.T) {
	const readers, readings = 4, 20_000
	c := NewClock()
	var latest atomic.Int64 // the latest of all readings that were published
	var back atomic.Int64
	var done sync.WaitGroup
	for range readers {
		done.Go(func() {
			for range readings {
				seen := latest.Load()
				now := c.Now()
				if now < seen {
					back.Add(1)
				}
				for ; now > seen && !latest.CompareAndSwap(seen, now); seen = latest.Load() {
				}
			}
		})
	}
	done.Wait()
	require.Zero(t, back.Load(), "readings that were before an earlier one")
}

const near = float64(time.Second) // a test machine may be busy; a wrong epoch would be years off

func TestSystemClockReadsLikeUnixTime(t *testing.T) {
	c := NewClock()
	require.InDelta(t, time.Now().UnixNano(), c.Now(), near)
	require.InDelta(t, 0, c.Offset(), near)
	require.InDelta(t, time.Now().UnixNano(), c.Now()+c.Offset(), near)
}

func TestContinuedClock(t *testing.T) {
	for _, at := range []int64{0, 1e18, time.Now().Add(-time.Hour).UnixNano()} {
		c := ContinueClock(at)
		first := c.Now()
		require.GreaterOrEqual(t, first, at)
		require.InDelta(t, at, first, near)
		require.InDelta(t, time.Now().UnixNano(), c.Now()+c.Offset(), near, "the offset leads to Unix time")
	}
}

func TestMachine(t *testing.T) {
	m := NewMachine()
	before, after := m.Read(), m.Read()
	require.Equal(t, before.Boot, after.Boot)
	require.Equal(t, NewMachine().Read().Boot, before.Boot)
	require.LessOrEqual(t, before.Uptime, after.Uptime)
	require.InDelta(t, time.Now().UnixNano(), after.Wall, near)
}

// The test simulates a sleep by moving back the reading that the clock started with: as in a sleep,
// CLOCK_BOOTTIME advances and the monotonic clock does not.
func TestSystemClockCountsSleep(t *testing.T) {
	const sleep = int64(time.Hour)
	c := NewClock().(*systemClock)
	before := c.Now()
	c.bootAtStart -= sleep
	for c.elapsed()-c.checkedAt.Load() < checkInterval { // the clock checks once per millisecond
	}
	require.InDelta(t, before+sleep, c.Now(), near)
	require.InDelta(t, -sleep, c.Offset(), near, "the wall clock did not advance during the simulated sleep")
	require.GreaterOrEqual(t, c.Now(), before+sleep, "a second check must not count the sleep again")
	require.InDelta(t, before+sleep, c.Now(), near)
}

// elapsed returns the reading of the monotonic clock.
func (c *systemClock) elapsed() int64 { return int64(time.Since(c.start)) }

func TestStillClock(t *testing.T) {
	c := NewStillClock(100)
	require.Equal(t, int64(100), c.Now())
	require.Equal(t, int64(100), c.Now())
	require.Zero(t, c.Offset())
	c.Advance(50)
	c.Advance(-20)
	c.SetOffset(7)
	require.Equal(t, int64(130), c.Now())
	require.Equal(t, int64(7), c.Offset())
}

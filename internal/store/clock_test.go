package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whoever reads the clock after another has read it does not read less, on whatever core.
func TestSystemClockIsMonotonic(t *testing.T) {
	const readers, readings = 4, 20_000
	c := NewClock()
	var latest atomic.Int64 // of all readings that were told
	var back atomic.Int64
	var done sync.WaitGroup
	for range readers {
		done.Go(func() {
			for range readings {
				told := latest.Load()
				now := c.Now()
				if now < told {
					back.Add(1)
				}
				for ; now > told && !latest.CompareAndSwap(told, now); told = latest.Load() {
				}
			}
		})
	}
	done.Wait()
	require.Zero(t, back.Load(), "readings before one that had been told")
}

const near = float64(time.Second) // a test machine may be busy; the wall clock of a wrong epoch is years away

func TestSystemClockReadsLikeTheWall(t *testing.T) {
	c := NewClock()
	require.InDelta(t, time.Now().UnixNano(), c.Now(), near)
	require.InDelta(t, 0, c.Offset(), near)
	require.InDelta(t, time.Now().UnixNano(), c.Now()+c.Offset(), near)
}

// A machine that slept is made by putting back the reading that its clock began with. The monotonic
// clock stands still meanwhile, CLOCK_BOOTTIME does not.
func TestSystemClockRunsOnThroughASleep(t *testing.T) {
	const sleep = int64(time.Hour)
	c := NewClock().(*systemClock)
	before := c.Now()
	c.bootAtStart -= sleep
	for c.elapsed()-c.looked.Load() < lookEvery { // it looks once a millisecond
	}
	require.InDelta(t, before+sleep, c.Now(), near)
	require.InDelta(t, -sleep, c.Offset(), near, "nobody set the wall clock, which stood still in this test alone")
	require.GreaterOrEqual(t, c.Now(), before+sleep, "a second look counts no sleep twice")
	require.InDelta(t, before+sleep, c.Now(), near)
}

// elapsed is the monotonic clock's part of the reading.
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

package store

import (
	"math"
	"sync/atomic"
	"time"
)

// Clock tells a store what time it is. Its instants are nanoseconds of elapsed time: they run on
// through a suspend and are moved by nobody's setting of the wall clock. They are offset once, when
// the clock is made, so that they read like Unix time until somebody does set it.
type Clock interface {
	// Now is the present instant.
	Now() int64
	// Offset is what to add to an instant to get Unix nanoseconds by the wall clock of this moment,
	// in whole milliseconds: so an instant reads the same, to the nanosecond, until somebody sets
	// the wall clock. GET of a CL.THROTTLE key answers with it, because redis-cell keeps Unix
	// nanoseconds there.
	Offset() int64
}

// NewClock is the clock of the machine: CLOCK_BOOTTIME where there is one, else the monotonic
// clock.
//
// Reading CLOCK_BOOTTIME costs a system call, the monotonic clock costs none, and the two drift
// apart only while the machine sleeps. So Now reads the monotonic clock, and looks again once a
// millisecond whether there was a sleep.
func NewClock() Clock {
	c := &systemClock{start: time.Now()}
	c.base = c.start.UnixNano()
	c.bootAtStart = bootNow()
	return c
}

type systemClock struct {
	start       time.Time
	base        int64        // Unix nanoseconds at start
	bootAtStart int64        // CLOCK_BOOTTIME at start, nanoseconds
	looked      atomic.Int64 // elapsed nanoseconds when slept was last looked at
	slept       atomic.Int64 // nanoseconds that the machine has slept since start
}

const lookEvery = int64(time.Millisecond)

func (c *systemClock) Now() int64 {
	elapsed := int64(time.Since(c.start))
	if elapsed-c.looked.Load() >= lookEvery {
		elapsed = c.look()
	}
	return c.base + elapsed + c.slept.Load()
}

// look finds out whether the machine slept. The monotonic clock is read after CLOCK_BOOTTIME, so
// that a goroutine that is held up between the two readings sees less sleep than there was, never
// more: time does not run ahead.
func (c *systemClock) look() (elapsed int64) {
	boot := bootNow() - c.bootAtStart
	elapsed = int64(time.Since(c.start))
	if slept, known := boot-elapsed, c.slept.Load(); slept > known+lookEvery {
		c.slept.CompareAndSwap(known, slept) // whoever lost to another look has its answer
	}
	c.looked.Store(elapsed)
	return elapsed
}

// Offset compares two clocks that cannot be read at once. If we are held up between the readings
// the difference is wrong by as much, so it is taken again until it was quick, and the quickest
// counts.
func (c *systemClock) Offset() int64 {
	const ms, quick, tries = int64(time.Millisecond), 20 * time.Microsecond, 10
	offset, fastest := int64(0), time.Duration(math.MaxInt64)
	for try := 0; try < tries && fastest > quick; try++ {
		before := c.Now()
		wall := time.Now().UnixNano()
		if took := time.Duration(c.Now() - before); took < fastest {
			offset, fastest = wall-before, took
		}
	}
	return (offset + ms/2) / ms * ms
}

// StillClock stands still until it is told to move: the clock of tests. It is safe for use by many
// goroutines.
type StillClock struct{ now, offset atomic.Int64 }

// NewStillClock starts at an instant, in nanoseconds.
func NewStillClock(now int64) *StillClock {
	c := &StillClock{}
	c.now.Store(now)
	return c
}

// Now is the instant that the clock was told last.
func (c *StillClock) Now() int64 { return c.now.Load() }

// Offset is what SetOffset said, 0 at first.
func (c *StillClock) Offset() int64 { return c.offset.Load() }

// Advance moves the clock, backwards too.
func (c *StillClock) Advance(d time.Duration) { c.now.Add(int64(d)) }

// SetOffset sets the wall clock apart from elapsed time.
func (c *StillClock) SetOffset(d time.Duration) { c.offset.Store(int64(d)) }

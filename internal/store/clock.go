package store

import (
	"math"
	"sync/atomic"
	"time"
)

// Clock is the clock of a store. Its instants are nanoseconds of elapsed time: they continue to
// count while the machine sleeps, and setting the wall clock does not change them. They have an
// offset, fixed when the clock is made, so that they read like Unix time until the wall clock is
// set.
type Clock interface {
	// Now returns the current instant.
	Now() int64
	// Offset returns what must be added to an instant to get Unix nanoseconds by the current wall
	// clock. It is in whole milliseconds, so that the Unix time of an instant is always the same,
	// to the nanosecond, until the wall clock is set. GET of a CL.THROTTLE key needs it, because
	// redis-cell stores Unix nanoseconds there.
	Offset() int64
}

// NewClock returns a clock that reads CLOCK_BOOTTIME if the system has it, otherwise the monotonic
// clock.
//
// Reading CLOCK_BOOTTIME takes a system call, while the monotonic clock takes none, and the two
// diverge only while the machine sleeps. Therefore Now reads the monotonic clock, and checks once
// per millisecond whether the machine has slept.
func NewClock() Clock {
	start := time.Now()
	return &systemClock{start: start, base: start.UnixNano(), bootAtStart: bootNow()}
}

// ContinueClock is NewClock for a clock whose first instant is at. Instants of an earlier clock stay
// valid if at is that clock's last instant plus the time that has passed since.
func ContinueClock(at int64) Clock {
	return &systemClock{start: time.Now(), base: at, bootAtStart: bootNow()}
}

type systemClock struct {
	start       time.Time
	base        int64        // the instant at start
	bootAtStart int64        // CLOCK_BOOTTIME at start, nanoseconds
	checkedAt   atomic.Int64 // elapsed nanoseconds at the last call of checkSleep
	slept       atomic.Int64 // nanoseconds that the machine has slept since start
}

const checkInterval = int64(time.Millisecond)

func (c *systemClock) Now() int64 {
	elapsed := int64(time.Since(c.start))
	if elapsed-c.checkedAt.Load() >= checkInterval {
		elapsed = c.checkSleep()
	}
	return c.base + elapsed + c.slept.Load()
}

// checkSleep updates slept and returns the elapsed time. It reads the monotonic clock after
// CLOCK_BOOTTIME: a goroutine that is preempted between the two readings sees less sleep than there
// was, never more, so the clock does not run ahead.
func (c *systemClock) checkSleep() (elapsed int64) {
	boot := bootNow() - c.bootAtStart
	elapsed = int64(time.Since(c.start))
	if slept, known := boot-elapsed, c.slept.Load(); slept > known+checkInterval {
		c.slept.CompareAndSwap(known, slept) // a goroutine that loses the race has the winner's result
	}
	c.checkedAt.Store(elapsed)
	return elapsed
}

// Offset must compare two clocks that cannot be read at the same time. Preemption between the
// readings makes the difference wrong by that time, so they are read again until it was quick, and
// the quickest attempt counts.
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

// Reading is a moment by the clocks of the machine. With two of them, one can compute how much time
// has passed between two processes.
type Reading struct {
	Boot   [16]byte // identifier of the machine's boot; zeros if the system has none
	Uptime int64    // nanoseconds since that boot; they count while the machine sleeps, and cannot be set
	Wall   int64    // Unix nanoseconds by the wall clock
}

// Machine reads the clocks of the machine.
type Machine interface {
	Read() Reading
}

// NewMachine returns the clocks of this machine.
func NewMachine() Machine { return machine{boot: bootID()} }

type machine struct{ boot [16]byte }

func (m machine) Read() Reading {
	return Reading{Boot: m.boot, Uptime: bootNow(), Wall: time.Now().UnixNano()}
}

// StillClock is a clock for tests that changes only when a test changes it. It is safe for concurrent
// use.
type StillClock struct{ now, offset atomic.Int64 }

// NewStillClock returns a clock that stands at an instant in nanoseconds.
func NewStillClock(now int64) *StillClock {
	c := &StillClock{}
	c.now.Store(now)
	return c
}

// Now returns the instant that was set last.
func (c *StillClock) Now() int64 { return c.now.Load() }

// Offset returns the offset that was set last, initially 0.
func (c *StillClock) Offset() int64 { return c.offset.Load() }

// Advance moves the clock forward, or backward if d is negative.
func (c *StillClock) Advance(d time.Duration) { c.now.Add(int64(d)) }

// SetOffset sets the difference between the wall clock and elapsed time.
func (c *StillClock) SetOffset(d time.Duration) { c.offset.Store(int64(d)) }

package backend

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// measureEvery is the time between two measurements of the offset on one connection.
	measureEvery = int64(time.Second)
	// kept is the number of measurements that are kept. The one with the shortest round trip counts.
	kept = 10
	// jump is the change of an offset that is more than a better measurement.
	jump = int64(10 * time.Millisecond)
	// stale is the age at which a measurement is too old: two clocks drift apart by up to 50 microseconds a
	// second, even if nothing sets them. It is the time in which all kept measurements are replaced.
	stale = kept * measureEvery
	// tolerable is the largest change of an offset, after a pause, with which requests decided by the old
	// offset are still sent.
	tolerable = int64(time.Millisecond)
)

// measurement is one reading of a server's clock. The server has read it at some moment of the round
// trip, so the offset is wrong by half of the round trip at most.
type measurement struct {
	offset int64 // by how much the server's clock is ahead of this process's, nanoseconds
	trip   int64 // nanoseconds
}

// measure computes a measurement from the server's clock and the times, by the clock of this process,
// at which the request was sent and the reply received.
func measure(server, sent, received int64) measurement {
	return measurement{offset: server - (sent + (received-sent)/2), trip: received - sent}
}

// clock estimates a server's clock from measurements.
type clock struct {
	offset atomic.Int64 // of the measurement that counts
	at     atomic.Int64 // when the last measurement was made, by this process's clock
	jumps  atomic.Int64 // how often the clock was found to be set
	trip   atomic.Int64 // the shortest round trip of the measurements that are kept, 0 if there are none

	mu    sync.Mutex
	last  [kept]measurement
	count int // all measurements since the last jump; the last kept of them are in last
}

// add adds a measurement. It returns by how much the clock was set, in nanoseconds, or 0. After a
// pause, the earlier measurements are void.
//
// Two measurements of a clock that was not set differ by half of both round trips at most. If they
// differ by more than this and 10 ms, the clock was set, and the earlier measurements are void.
func (c *clock) add(m measurement, at int64) (set int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	paused := c.isStale(at)
	if c.count > 0 {
		best := c.best()
		change := m.offset - best.offset
		if max(change, -change) > jump+(m.trip+best.trip)/2 {
			set = change
			c.count = 0
			c.jumps.Add(1)
		}
	}
	if paused {
		c.count = 0
	}
	c.at.Store(at)
	c.last[c.count%kept] = m
	c.count++
	best := c.best()
	c.offset.Store(best.offset)
	c.trip.Store(best.trip)
	return set
}

// isStale reports whether the last measurement is too old to decide by it.
func (c *clock) isStale(now int64) bool { return now-c.at.Load() > stale }

// restart forgets all measurements, because they are of another server.
func (c *clock) restart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count = 0
	c.trip.Store(0)
}

// best returns the measurement with the shortest round trip, and of several the latest. c.mu is held.
func (c *clock) best() measurement {
	known := min(c.count, kept)
	best := c.last[(c.count-1)%kept]
	for i := range known {
		if c.last[i].trip < best.trip {
			best = c.last[i]
		}
	}
	return best
}

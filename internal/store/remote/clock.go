package remote

import (
	"cellserver/internal/store"
	"cellserver/internal/store/remote/combine"
)

// Servers is the part of a backend that Clocks uses. backend.Backend implements it.
type Servers interface {
	combine.Topology
	// RoundTrip returns the time of a round trip in nanoseconds, 0 as long as the clock of the server has
	// not been read.
	RoundTrip(p combine.Primary) int64
}

// Clocks are the clocks of the servers of a backend. As a store.Clock, it is the clock of this process, for
// times that concern no key: waits, pauses, idle times, the slow log. Setting the clock of a server or of
// this machine does not affect them. Instants are Unix nanoseconds.
type Clocks struct {
	machine store.Clock
	began   int64 // the Unix time of this machine at the start, minus elapsed time
	servers Servers
}

// NewClocks returns the clocks of servers, computed from this machine's clock.
func NewClocks(machine store.Clock, servers Servers) *Clocks {
	return &Clocks{machine: machine, began: machine.Offset(), servers: servers}
}

// Now implements store.Clock.
func (c *Clocks) Now() int64 { return c.machine.Now() + c.began }

// Offset returns 0: instants are Unix time already.
func (c *Clocks) Offset() int64 { return 0 }

// OfKey is Options.KeyNow.
func (c *Clocks) OfKey(key string) (now int64, known bool) { return c.of(c.servers.Primary(key)) }

// TripOf is Options.KeyTrip.
func (c *Clocks) TripOf(key string) int64 {
	p := c.servers.Primary(key)
	if p == combine.NoPrimary {
		return 0
	}
	return c.servers.RoundTrip(p)
}

// Wall is Options.WallClock.
func (c *Clocks) Wall() int64 { return c.machine.Now() + c.machine.Offset() }

func (c *Clocks) of(p combine.Primary) (now int64, known bool) {
	if p == combine.NoPrimary || c.servers.RoundTrip(p) == 0 {
		return 0, false
	}
	return c.machine.Now() + c.servers.Offset(p), true
}

package httpapi

import (
	"errors"
	"sync/atomic"
)

// The memory that the requests of all clients hold together is bounded: bodies as far as they have arrived, the calls
// that are parsed from them, and replies. It is charged to the clients that make the calls, so maxmemory-clients
// bounds it together with everything else that clients hold. Each connection has memory of its own, enough for a
// request with a few calls. Further memory is taken from a budget that all connections share. If the budget is
// exhausted, the request is refused; clients of other ports are not evicted for it.

// maxOwn is the memory that a connection has of its own, in bytes. The budget of all connections is
// client.Registry.RequestLimit.
const maxOwn = 64 << 10

// budget is memory that may be held.
type budget struct{ held atomic.Int64 }

// take takes bytes, and reports whether no more than most are held.
func (b *budget) take(n, most int64) bool {
	if b.held.Add(n) > most {
		b.held.Add(-n)
		return false
	}
	return true
}

// The memory of a byte of a body when it has become a part of a call (an argument of one digit has two bytes in
// JSON and five in session.Calls, and buffers grow by doubling), and of a byte of a reply, with its JSON.
const (
	bytesPerBodyByte  = 12
	bytesPerReplyByte = 4
)

var (
	errMemory = errors.New("OOM the requests over HTTP hold too much memory at present")
	errNever  = errors.New("ERR the body is too long for the memory that requests may hold: see maxmemory-clients")
)

// share is the memory that a request holds. It counts for its connection, and for all connections together.
type share struct {
	of                  *caller
	heldOwn, heldShared int64
}

// take adds bytes to the share, and returns an error if there are not as many.
func (s *share) take(n int64) error {
	c := s.of.conn
	switch most := c.api.instance.Clients.RequestLimit(); {
	case c.own.take(n, maxOwn):
		s.heldOwn += n
	case n > most:
		return errNever
	case c.api.memory.take(n, most):
		s.heldShared += n
	default:
		return errMemory
	}
	s.of.Charge(int(n))
	return nil
}

// giveBack returns the share.
func (s *share) giveBack() {
	if s.heldOwn+s.heldShared == 0 {
		return
	}
	c := s.of.conn
	c.own.held.Add(-s.heldOwn)
	c.api.memory.held.Add(-s.heldShared)
	s.of.Charge(int(-s.heldOwn - s.heldShared))
	s.heldOwn, s.heldShared = 0, 0
}

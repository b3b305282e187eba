package grpcapi

import "sync/atomic"

// The memory that the requests of all connections hold together is bounded. Each connection has memory of its own,
// which is enough for the requests of a busy Envoy. Further memory is taken from a budget that all connections share;
// if the budget is exhausted, the connection is closed.

// maxOwn is the memory that a connection has of its own, in bytes. maxShared is the budget of all connections if
// maxmemory-clients is 0; otherwise the budget is half of maxmemory-clients.
const (
	maxOwn    = 64 << 10
	maxShared = 256 << 20
)

// bytesPerByte is the memory, in bytes, for each byte that has arrived: the byte itself, and its part of a decoded
// message.
const bytesPerByte = 3

// frameBytes is the memory, in bytes, of a request besides its message: frames, headers and pings.
const frameBytes = 512

// budget is memory that may be held.
type budget struct{ held atomic.Int64 }

// hold counts bytes that have arrived. It returns false if there is no memory for them.
func (c *conn) hold(n int64) bool {
	held := c.held.Add(n)
	for {
		shared := c.shared.Load()
		wanted := max(held-maxOwn, 0) * bytesPerByte
		if wanted <= shared {
			return true
		}
		if c.shared.CompareAndSwap(shared, wanted) {
			if c.server.memory.held.Add(wanted-shared) <= c.server.maxShared() {
				return true
			}
			return false // the connection is closed, and gives back all of it
		}
	}
}

// answered stops counting a request with a message of so many bytes, and frameBytes for its frames. The request may
// have had fewer frames than that, so held may be too small by the frames of the requests that are answered at once.
func (c *conn) answered(message int) {
	n := int64(message) + frameBytes
	for {
		held := c.held.Load()
		left := max(held-n, 0)
		if !c.held.CompareAndSwap(held, left) {
			continue
		}
		shared := c.shared.Load()
		wanted := max(left-maxOwn, 0) * bytesPerByte
		if wanted < shared && c.shared.CompareAndSwap(shared, wanted) {
			c.server.memory.held.Add(wanted - shared)
		}
		return
	}
}

// maxShared returns the size of the budget of all connections, in bytes.
func (s *Server) maxShared() int64 {
	if limit := s.instance.Clients.MemoryLimit(); limit > 0 {
		return limit / 2
	}
	return maxShared
}

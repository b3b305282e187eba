package web

import (
	"net/http"
	"sync"

	"cellserver/internal/client"
)

// The memory of a connection is estimated from the bytes that arrive on it, and counts before net/http allocates it.
// While the peer is not authenticated, it counts with the memory of all clients that have not logged in. Their bound is
// maxmemory-unauthenticated; beyond it, the oldest connection is cut. Afterwards, the memory counts for the client
// that makes the calls of the connection, and maxmemory-clients bounds it.

const (
	// connBytes is the memory of a connection without TLS: stacks, the buffers and the structures of net/http, and
	// includedBytes for a request. tlsBytes is what TLS adds.
	connBytes     = 24 << 10
	tlsBytes      = 24 << 10
	includedBytes = 4 << 10
	// headerFactor is the memory of a byte of a header when it has been read into a map (15 measured: a field
	// may have as few as 5 bytes), and handshakeFactor is the memory of a byte of a handshake. A byte of a header
	// of an unauthenticated peer counts as half as much again, for headers that have been answered and are not
	// collected yet: without that, a flood on a busy machine was measured to exceed its bound.
	headerFactor          = 16
	unauthenticatedFactor = 24
	handshakeFactor       = 4
	// bufferBytes is the size of the buffer from which net/http reads headers.
	bufferBytes = 4 << 10
	// http2Bytes is what HTTP/2 adds to a connection: tables of fields, a frame, and bodies that have arrived. A
	// request over HTTP/2 has stacks, buffers and structures of its own, and its header is shorter on the wire:
	// streamBytes, and the memory of its fields.
	http2Bytes  = 128 << 10
	streamBytes = 24 << 10
	fieldBytes  = 200
)

// memory is the memory that a connection holds, as it is counted.
type memory struct {
	mu              sync.Mutex
	factor          int  // of a byte that arrives
	inBody          bool // what arrives is the body of a request, which its handler counts
	request         int  // bytes for the part of a request that has arrived
	latest          int  // bytes for the latest input, which may be part of the next request
	counted         int  // bytes that are counted at present
	unauthenticated *client.UnauthenticatedConn
	charge          func(bytes int) // of the peer's client; nil while the peer is not authenticated
}

// begin begins to count the memory of the connection of an unauthenticated peer.
func (c *conn) begin(bytes, factor int) {
	c.memory.counted = bytes
	c.toUnauthenticated()
	c.memory.factor = factor
}

// toUnauthenticated makes the memory count among the unauthenticated clients'.
func (c *conn) toUnauthenticated() {
	all, m := c.server.config.Unauthenticated, &c.memory
	if all == nil {
		return
	}
	m.mu.Lock()
	charge, counted := m.charge, m.counted
	m.charge, m.factor = nil, unauthenticatedFactor
	m.mu.Unlock()
	if charge != nil {
		charge(-counted)
	}
	entered := all.Enter(counted, c.isIdle, c.cut)
	m.mu.Lock()
	m.unauthenticated = entered
	missed := m.counted - counted
	m.mu.Unlock()
	entered.Grow(missed)
}

// toClient makes the memory count for a client from now on.
func (m *memory) toClient(charge func(bytes int)) {
	m.mu.Lock()
	entered, before, counted := m.unauthenticated, m.charge, m.counted
	m.unauthenticated, m.charge, m.factor = nil, charge, headerFactor
	m.mu.Unlock()
	switch {
	case entered != nil:
		entered.Leave()
	case before != nil:
		before(-counted) // the connection has another user now
	}
	charge(counted)
}

// grow counts bytes, which may be negative.
func (m *memory) grow(bytes int) {
	if bytes == 0 {
		return
	}
	m.mu.Lock()
	m.counted += bytes
	entered, charge := m.unauthenticated, m.charge
	m.mu.Unlock()
	switch {
	case entered != nil:
		entered.Grow(bytes)
	case charge != nil:
		charge(bytes)
	}
}

// arrived counts bytes that have arrived.
func (m *memory) arrived(n int) {
	m.mu.Lock()
	before := m.excess()
	m.latest = min(n, bufferBytes) * m.factor
	if !m.inBody {
		m.request += n * m.factor
	}
	more := m.excess() - before
	m.mu.Unlock()
	m.grow(more)
}

// parsed is called when the header of a request with a body has been read.
func (m *memory) parsed() {
	m.mu.Lock()
	m.inBody = true
	m.mu.Unlock()
}

// answered stops counting a request that has been answered. What arrived at last may belong to the next one.
func (m *memory) answered() {
	m.mu.Lock()
	before := m.excess()
	m.request, m.inBody = m.latest, false
	less := m.excess() - before
	m.mu.Unlock()
	m.grow(less)
}

// secured is called when a handshake has ended.
func (m *memory) secured() {
	m.mu.Lock()
	m.factor, m.latest = unauthenticatedFactor, 0
	m.mu.Unlock()
	m.answered()
}

// excess returns the bytes of a request beyond what a connection includes. The caller holds mu.
func (m *memory) excess() int { return max(m.request-includedBytes, 0) }

// end stops counting.
func (m *memory) end() {
	m.mu.Lock()
	entered, charge, counted := m.unauthenticated, m.charge, m.counted
	m.unauthenticated, m.charge = nil, nil
	m.mu.Unlock()
	switch {
	case entered != nil:
		entered.Leave()
	case charge != nil:
		charge(-counted)
	}
}

// streamMemory estimates the memory of a request over HTTP/2.
func streamMemory(r *http.Request) int {
	bytes := streamBytes
	for _, values := range r.Header {
		for _, value := range values {
			bytes += fieldBytes + len(value)
		}
	}
	return bytes
}

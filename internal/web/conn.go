package web

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// conn is a connection of a port. It counts the memory and the computing time that its peer costs. It does so
// below crypto/tls and net/http, because they allocate before they call a handler.
type conn struct {
	net.Conn // the socket
	server   *Server
	turn     turn
	memory   memory
	closed   sync.Once
	trusted  bool // Config.Trusted says so

	// since is the number of the moment at which the server began to wait for the peer: for a request, for the
	// rest of a body, or until it reads a response. It is 0 while the server does not wait.
	since    atomic.Uint64
	active   atomic.Bool           // it has a request
	reading  atomic.Bool           // it waits for bytes of the peer
	arriving atomic.Bool           // the rest of a body may be awaited: see body.go
	handling atomic.Bool           // the handler of a request with a body runs, and does not read the body
	atPeer   atomic.Bool           // nothing can be done before the peer sends or reads more
	answered atomic.Bool           // it has had a response
	owner    atomic.Pointer[owner] // nil while the peer is not authenticated; Server.mu guards changes
}

// ownConn returns the conn under a connection that net/http knows.
func ownConn(c net.Conn) *conn {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return c.(*conn)
}

// connKey is the key of a request's *conn in its context.
type connKey struct{}

// connOf returns the connection of a request, or nil if it has none, as in a test of a handler.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// Read implements net.Conn. The connection of an unauthenticated peer waits without a turn. Bytes are counted before
// net/http sees them.
//
// While a handler runs, net/http reads a single byte on another goroutine, to learn that the peer is gone. The
// handler has the turn then, and keeps it.
func (c *conn) Read(b []byte) (int, error) {
	if len(b) == 1 {
		n, err := c.Conn.Read(b)
		c.memory.arrived(n)
		return n, err
	}
	c.turn.give()
	c.atPeer.Store(true)
	c.reading.Store(true)
	n, err := c.Conn.Read(b)
	c.reading.Store(false)
	c.atPeer.Store(false)
	c.memory.arrived(n)
	if err == nil {
		c.turn.await()
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if c.handling.Load() {
		c.arriving.Store(false)
	}
	c.turn.give()
	begun := c.startWaiting()
	c.atPeer.Store(true)
	n, err := c.Conn.Write(b)
	c.atPeer.Store(false)
	if err == nil {
		c.turn.await()
	}
	if begun {
		c.stopWaiting()
	}
	return n, err
}

// Close implements net.Conn. net/http calls it when it has nothing left to do for the connection.
func (c *conn) Close() error {
	c.leave()
	err := c.Conn.Close()
	c.memory.end()
	return err
}

// cut closes the socket, from any goroutine. The connection's memory counts until its own goroutine has noticed.
// There is no alert of TLS, for which the peer might let the caller wait.
func (c *conn) cut() {
	c.leave()
	c.Conn.Close()
}

// leave gives the connection's place and its turn to others.
func (c *conn) leave() {
	c.closed.Do(func() { c.server.removeConn(c) })
	c.turn.end()
}

// CloseWrite closes one direction. After a response to a request that it has not read to the end, net/http
// does so and waits: if it closed the connection at once, the peer might never see the response.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// isIdle reports whether the connection of an unauthenticated peer may be cut before others: it waits for its peer, or
// its first request has been answered and did not make the peer known.
func (c *conn) isIdle() bool { return !c.trusted && (c.atPeer.Load() || c.answered.Load()) }

// startWaiting notes that the server begins to wait for the peer. It returns false if the server waits already.
func (c *conn) startWaiting() bool { return c.since.CompareAndSwap(0, c.server.moments.Add(1)) }

// stopWaiting notes that the peer has done what the server was waiting for, or is gone.
func (c *conn) stopWaiting() { c.since.Store(0) }

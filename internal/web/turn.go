package web

import (
	"crypto/tls"
	"sync/atomic"
)

// turn bounds the computing time of a connection while its peer is unauthenticated: the connection computes only while
// it has one of Config.Turns. It gives the turn back whenever it waits for its peer and, when it continues, waits for
// another turn, in the order of arrival. net/http answers each connection on a goroutine. So of a thousand connections
// with requests, only as many are runnable as there are turns, and event loops and known peers do not wait behind the
// others. Without TLS, a connection answers a request or two in its turn. With TLS, a handshake takes turns too. If the
// channel is nil, there is no bound.
type turn struct {
	of     chan struct{}
	held   atomic.Bool
	awaits atomic.Bool // a goroutine of the connection waits for the turn
	over   atomic.Bool // the peer is known, or the connection is closed
}

// await waits for a turn, unless the connection has one, or another of its goroutines waits for it: with TLS,
// net/http may read while it writes. If the connection is closed meanwhile, it has none.
func (t *turn) await() {
	if t.of == nil || t.over.Load() || !t.awaits.CompareAndSwap(false, true) {
		return
	}
	defer t.awaits.Store(false)
	if t.held.Load() {
		return
	}
	t.of <- struct{}{}
	if t.held.Store(true); t.over.Load() {
		t.give()
	}
}

func (t *turn) give() {
	if t.held.CompareAndSwap(true, false) {
		<-t.of
	}
}

func (t *turn) end() {
	t.over.Store(true)
	t.give()
}

// resume makes the connection take turns again.
func (t *turn) resume() { t.over.Store(false) }

// watchHandshakes arranges that a connection is told when its handshake has signed with the server's key, and has
// verified the peer's certificate, or has resumed a session. What is left of it costs little.
func watchHandshakes(c *tls.Config) {
	given := c.Clone()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		own := given.Clone() // the session tickets are c's nevertheless
		own.VerifyConnection = func(state tls.ConnectionState) error {
			hello.Conn.(*conn).secured(state.NegotiatedProtocol)
			return nil
		}
		return own, nil
	}
}

// secured is called when a handshake has ended. Over HTTP/2, which only peers with a certificate speak, goroutines of
// many requests write, so that there is no turn of the connection.
func (c *conn) secured(protocol string) {
	c.memory.secured()
	if protocol == "h2" {
		c.memory.grow(http2Bytes)
		c.turn.end()
	}
	c.turn.give()
}

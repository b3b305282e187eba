package web

import (
	"crypto/tls"
	"sync/atomic"
)

// turn is the part of a TLS handshake in the processors' time: a handshake computes only while it has one of
// Config.Handshakes. It gives it back whenever it waits for its peer. A nil channel is no bound.
type turn struct {
	of   chan struct{}
	held atomic.Bool
	over atomic.Bool // the handshake has done its work, or its connection is closed
}

// await waits for a turn. If the connection is closed meanwhile, which another goroutine may do, it has none.
func (t *turn) await() {
	if t.of == nil || t.over.Load() {
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

// limitHandshakes arranges that the turn of a connection ends when its handshake has signed with the server's key,
// and has verified the peer's certificate, or has resumed a session. What is left of it costs little.
func limitHandshakes(c *tls.Config) {
	given := c.Clone()
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		own := given.Clone() // the session tickets are those of c nevertheless
		own.VerifyConnection = func(tls.ConnectionState) error {
			hello.Conn.(*boundedConn).turn.end()
			return nil
		}
		return own, nil
	}
}

// Read implements net.Conn. During a handshake, it waits for the peer without a turn.
func (c *boundedConn) Read(b []byte) (int, error) {
	c.turn.give()
	n, err := c.Conn.Read(b)
	if err == nil {
		c.turn.await()
	}
	return n, err
}

// Write implements net.Conn.
func (c *boundedConn) Write(b []byte) (int, error) {
	c.turn.give()
	n, err := c.Conn.Write(b)
	if err == nil {
		c.turn.await()
	}
	return n, err
}

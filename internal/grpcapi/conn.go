package grpcapi

import (
	"math"
	"net"
	"sync"

	"cellserver/internal/client"
	"cellserver/internal/session"
)

// trustedListener accepts the connections of trusted peers, up to maxConns at once. It closes other connections, unless
// their peers may show a certificate that names a user.
type trustedListener struct {
	net.Listener
	server    *Server
	isSecured bool // connections begin with a TLS handshake
}

func (l *trustedListener) Accept() (net.Conn, error) {
	for {
		socket, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: socket, server: l.server, isSecured: l.isSecured}
		c.holding.requests, c.holding.last, c.holding.received.skipped = map[uint32]*request{}, math.MaxInt32, preface
		if !l.server.mayConnect(c) {
			l.server.counts.untrusted.Add(1)
			socket.Close()
			continue
		}
		if l.server.admit(c) {
			return c, nil
		}
		l.server.counts.refused.Add(1)
		socket.Close()
	}
}

// maxStrangers bounds the connections of strangers: peers at addresses that are not trusted, which have not yet shown
// the certificate of a user. They count towards maxConns, too.
const maxStrangers = 64

// admit gives a connection a place, and reports whether there was one. There is none while the handlers of connections
// that are closed hold too much.
func (s *Server) admit(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= maxConns || !c.isTrusted && s.strangers >= maxStrangers ||
		s.memory.closed.Load() > s.instance.Clients.RequestLimit() {
		return false
	}
	s.conns[c] = true
	if c.isStranger = !c.isTrusted; c.isStranger {
		s.strangers++
	}
	return true
}

// endStranger no longer counts a connection as a stranger's. s.mu must be locked.
func (s *Server) endStranger(c *conn) {
	if c.isStranger {
		c.isStranger = false
		s.strangers--
	}
}

// conn is a connection. It keeps the sessions in which its requests make calls: as many as requests are answered at
// once.
type conn struct {
	net.Conn   // the socket
	server     *Server
	isSecured  bool   // it begins with a TLS handshake
	isTrusted  bool   // the address of the peer is trusted
	isStranger bool   // it is counted in Server.strangers; Server.mu guards this field
	shakes     bool   // the handshake is under way
	user       string // the user that the peer's certificate names; empty for none
	closed     sync.Once
	holding    holding

	mu       sync.Mutex
	free     []*caller // sessions that no request uses
	sessions int       // number of all sessions
	ended    bool
}

// maxFree bounds the sessions that a connection keeps while it has fewer requests.
const maxFree = 64

// handshakeFactor is the memory, in bytes, of a byte of a handshake.
const handshakeFactor = 3

// Read implements net.Conn. The bytes of a handshake count until it ends.
func (c *conn) Read(b []byte) (int, error) {
	if !c.shakes {
		return c.Conn.Read(b)
	}
	c.server.giveTurn()
	defer c.server.awaitTurn()
	n, err := c.Conn.Read(b)
	if full := c.hold(handshakeFactor * n); full != nil {
		return 0, full
	}
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(c.leave)
	return err
}

// leave ends the sessions, and gives the place of the connection to others when its last handler has returned.
func (c *conn) leave() {
	c.mu.Lock()
	free := c.free
	c.free, c.ended = nil, true
	c.mu.Unlock()
	for _, k := range free {
		k.Close()
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.endStranger(c)
	if runs := c.holding.close(&c.server.memory); !runs {
		delete(c.server.conns, c)
	}
}

// free gives the place of a connection to others.
func (s *Server) free(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// caller makes the calls of a request. One goroutine at a time may use it.
type caller struct {
	*session.Caller
	calls session.Calls
	key   []byte
	asked []ask
}

// take returns a session for a request; nil if the user of the connection no longer exists.
func (c *conn) take() *caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := len(c.free) - 1; last >= 0 {
		k := c.free[last]
		c.free = c.free[:last]
		return k
	}
	account := c.account()
	if account == nil {
		return nil
	}
	c.sessions++
	k := &caller{Caller: c.server.instance.OpenCaller(client.Peer{
		Remote: address(c.RemoteAddr(), c), Local: address(c.LocalAddr(), c), FD: -1, IsStream: c.sessions > 1,
		Cut: func() { c.Conn.Close() },
	})}
	k.SwitchProtocol(3)
	k.SetAccount(account)
	return k
}

// address returns an address as CLIENT LIST shows it: for a Unix socket, its path.
func address(a net.Addr, socket net.Conn) string {
	if a.Network() == "unix" {
		return socket.LocalAddr().String() + ":0"
	}
	return a.String()
}

// release makes a session available for the next request.
func (c *conn) release(k *caller) {
	k.calls.Reset()
	clear(k.asked)
	k.asked = k.asked[:0]
	c.mu.Lock()
	keep := !c.ended && len(c.free) < maxFree && k.IsIdle()
	if keep {
		c.free = append(c.free, k)
	} else {
		c.sessions--
	}
	c.mu.Unlock()
	if !keep {
		k.Close()
	}
}

package web

import (
	"crypto/tls"
	"net"
	"sync"
)

// boundedListener accepts up to Config.MaxConns connections. For a further one, it closes the connection
// that has been without a whole request for longest, so that peers that open connections, and send nothing or
// a header alone, cannot keep others away. If all connections have requests, it refuses the new one.
type boundedListener struct {
	net.Listener
	server *Server
}

// errMaxConns is sent to a peer that is refused, unless it expects TLS: such a peer could not read it.
const errMaxConns = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		s := l.server
		if s.admit() {
			return s.secure(&boundedConn{Conn: conn, server: s}), nil
		}
		s.config.Log.Warn("max number of HTTP connections reached", "port", s.config.Name, "peer", conn.RemoteAddr())
		if s.config.TLS == nil {
			_, _ = conn.Write([]byte(errMaxConns)) // the empty socket buffer takes it, unless the peer is gone
		}
		conn.Close()
	}
}

// admit counts a new connection, and reports whether there is room for it.
func (s *Server) admit() bool {
	for s.conns.Add(1) > int64(s.config.MaxConns) {
		s.conns.Add(-1)
		if !s.closeLongestWaiting() {
			return false
		}
	}
	return true
}

// closeLongestWaiting closes the connection that has been without a whole request for longest. It returns
// false if there is none.
func (s *Server) closeLongestWaiting() bool {
	s.mu.Lock()
	var longest net.Conn
	for conn, w := range s.waiting {
		if longest == nil || w.since < s.waiting[longest].since {
			longest = conn
		}
	}
	delete(s.waiting, longest)
	s.mu.Unlock()
	if secured, ok := longest.(*tls.Conn); ok {
		longest = secured.NetConn() // without an alert, for which the peer might let it wait
	}
	if longest == nil {
		return false
	}
	longest.Close()
	return true
}

// boundedConn is a connection that counts until it is closed.
type boundedConn struct {
	net.Conn
	server *Server
	closed sync.Once
	turn   turn // of its handshake; without TLS there is none
}

func (c *boundedConn) Close() error {
	c.turn.end()
	c.closed.Do(func() { c.server.conns.Add(-1) })
	return c.Conn.Close()
}

// CloseWrite closes one direction. After a response to a request that it has not read to the end, net/http
// does so and waits: if it closed the connection at once, the peer might never see the response.
func (c *boundedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Conns returns the number of open connections.
func (s *Server) Conns() int { return int(s.conns.Load()) }

// securedConfig is a configuration of TLS, and the same with the protocols of HTTP.
type securedConfig struct{ given, offered *tls.Config }

// secure returns a connection with TLS if the port has it; net/http makes the handshake. Each configuration has
// session tickets of its own, so a peer that is no longer trusted cannot resume a session.
func (s *Server) secure(conn *boundedConn) net.Conn {
	if s.config.TLS == nil {
		return conn
	}
	given := s.config.TLS()
	kept := s.secured.Load()
	if kept == nil || kept.given != given {
		kept = &securedConfig{given, given.Clone()}
		kept.offered.NextProtos = []string{"h2", "http/1.1"}
		if s.config.Handshakes != nil {
			limitHandshakes(kept.offered)
		}
		s.secured.Store(kept)
	}
	conn.turn.of = s.config.Handshakes
	return tls.Server(conn, kept.offered)
}

package web

import (
	"crypto/tls"
	"net"
)

// boundedListener accepts up to Config.MaxConns connections. A further one takes the place of a connection that
// waits for its peer: see places.go. If there is none, it is refused.
type boundedListener struct {
	net.Listener
	server *Server
}

// errMaxConns is sent to a peer that is refused, unless it expects TLS: such a peer could not read it.
const errMaxConns = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

func (l *boundedListener) Accept() (net.Conn, error) {
	s := l.server
	for {
		socket, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if s.config.Unauthenticated != nil {
			s.config.Unauthenticated.AwaitRoom()
		}
		c := &conn{Conn: socket, server: s, trusted: s.config.Trusted != nil && s.config.Trusted(socket.RemoteAddr())}
		c.turn.of = s.config.Turns
		if s.admit(c) {
			return s.secure(c), nil
		}
		s.config.Log.Warn("max number of HTTP connections reached", "port", s.config.Name, "peer", socket.RemoteAddr())
		if s.config.TLS == nil {
			_, _ = socket.Write([]byte(errMaxConns)) // the empty socket buffer takes it, unless the peer is gone
		}
		socket.Close()
	}
}

// securedConfig is a configuration of TLS, and the same with the protocols of HTTP.
type securedConfig struct{ given, offered *tls.Config }

// secure returns a connection with TLS if the port has it, and begins to count its memory; net/http makes the
// handshake. Each configuration has session tickets of its own, so a peer that is no longer trusted cannot resume a
// session.
//
// HTTP/2 is offered only if every peer must have a certificate: a header of a kilobyte, and each of a hundred
// requests on a connection, makes net/http hold a hundred times as much before it asks a handler.
func (s *Server) secure(c *conn) net.Conn {
	if s.config.TLS == nil {
		c.begin(connBytes, unauthenticatedFactor)
		return c
	}
	c.begin(connBytes+tlsBytes, handshakeFactor)
	given := s.config.TLS()
	kept := s.secured.Load()
	if kept == nil || kept.given != given {
		kept = &securedConfig{given, given.Clone()}
		kept.offered.NextProtos = []string{"http/1.1"}
		if given.ClientAuth == tls.RequireAndVerifyClientCert {
			kept.offered.NextProtos = []string{"h2", "http/1.1"}
		}
		watchHandshakes(kept.offered)
		s.secured.Store(kept)
	}
	return tls.Server(c, kept.offered)
}

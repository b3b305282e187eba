package grpcapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"

	"cellserver/internal/client"
)

// transport implements grpc-go's credentials. It makes the handshakes of connections, and lets requests find their
// connection: see Server.tap.
type transport struct{}

// ServerHandshake implements credentials.TransportCredentials.
func (transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := raw.(*conn)
	if !c.isSecured {
		return &watched{Conn: c, of: c}, c, nil
	}
	secured, err := c.shakeHands()
	if err != nil {
		c.server.config.Log.Debug("a handshake on --grpc-tls-port failed", "peer", c.RemoteAddr(), "error", err)
		return nil, nil, err
	}
	return &watched{Conn: secured, of: c}, c, nil
}

// ClientHandshake implements credentials.TransportCredentials. There are no clients.
func (transport) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("not a client")
}

// Info implements credentials.TransportCredentials.
func (transport) Info() credentials.ProtocolInfo { return credentials.ProtocolInfo{} }

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials { return t }

// OverrideServerName implements credentials.TransportCredentials.
func (transport) OverrideServerName(string) error { return nil }

// AuthType implements credentials.AuthInfo.
func (c *conn) AuthType() string {
	if c.isSecured {
		return "tls"
	}
	return "insecure"
}

var errName = errors.New("the peer has no certificate with the name of --grpc-certificate-name")

func hasName(c *tls.Conn, name string) bool {
	shown := c.ConnectionState().PeerCertificates
	return len(shown) > 0 && shown[0].VerifyHostname(name) == nil
}

var errStranger = errors.New("the peer is not in --grpc-trusted, and its certificate names no user")

// shakeHands makes the TLS handshake. The handshake computes only while it has one of the few turns that all ports
// share. grpc-go has set the deadline.
func (c *conn) shakeHands() (net.Conn, error) {
	secured := tls.Server(c, c.server.offered())
	c.server.awaitTurn()
	c.shakes = true
	err := secured.Handshake()
	c.shakes = false
	c.server.giveTurn()
	if err != nil {
		return nil, err
	}
	_ = c.hold(-int(c.holding.bytes.Load())) // the messages of the handshake
	if c.server.config.CertificateUser != nil {
		c.user = c.server.config.CertificateUser(secured.ConnectionState())
	}
	if name := c.server.config.Settings.CertificateName; name != "" && !hasName(secured, name) {
		return nil, errName
	}
	if c.account() == nil {
		c.server.counts.untrusted.Add(1)
		return nil, errStranger
	}
	c.server.mu.Lock()
	c.server.endStranger(c)
	c.server.mu.Unlock()
	return secured, nil
}

// account returns the account for the calls of a connection: the account of the user that its certificate names; if
// there is none and its address is trusted, the account of all Envoys; otherwise nil.
func (c *conn) account() *client.Account {
	if c.user != "" {
		named := c.server.instance.Accounts.NamedBy(c.RemoteAddr().String(), c.LocalAddr().String(), c.user)
		if named != nil {
			return named
		}
	}
	if c.isTrusted {
		return c.server.account
	}
	return nil
}

// securedConfig is a TLS configuration as given, and the same configuration as offered to peers, with HTTP/2.
type securedConfig struct{ given, offered *tls.Config }

// offered returns the TLS configuration for a new connection. After certificates have changed, it is a new one with
// session tickets of its own, so that a peer that is no longer trusted cannot resume a session.
func (s *Server) offered() *tls.Config {
	given := s.config.TLS()
	kept := s.secured.Load()
	if kept == nil || kept.given != given {
		kept = &securedConfig{given, given.Clone()}
		kept.offered.NextProtos = []string{"h2"}
		s.secured.Store(kept)
	}
	return kept.offered
}

// awaitTurn waits for a turn to compute, and giveTurn gives it back.
func (s *Server) awaitTurn() {
	if s.config.Turns != nil {
		s.config.Turns <- struct{}{}
	}
}

func (s *Server) giveTurn() {
	if s.config.Turns != nil {
		<-s.config.Turns
	}
}

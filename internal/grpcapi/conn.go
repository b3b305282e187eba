package grpcapi

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"cellserver/internal/client"
	"cellserver/internal/session"
)

// trustedListener accepts the connections of trusted peers, up to maxConns at once. It closes others.
type trustedListener struct {
	net.Listener
	server *Server
}

func (l *trustedListener) Accept() (net.Conn, error) {
	for {
		socket, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !l.server.isTrusted(socket.RemoteAddr()) {
			l.server.counts.untrusted.Add(1)
			socket.Close()
			continue
		}
		if c := l.server.admit(socket); c != nil {
			return c, nil
		}
		l.server.counts.refused.Add(1)
		socket.Close()
	}
}

// admit gives a connection a place; it returns nil if there is none.
func (s *Server) admit(socket net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns >= maxConns {
		return nil
	}
	s.conns++
	return &conn{Conn: socket, server: s}
}

// conn is a connection. It keeps the sessions in which its requests make calls: one for each that is answered at once.
type conn struct {
	net.Conn // the socket
	server   *Server
	closed   sync.Once
	held     atomic.Int64 // bytes that have arrived and are not known to be answered
	shared   atomic.Int64 // bytes of these that are in the budget of all connections

	mu       sync.Mutex
	free     []*caller // sessions that no request uses
	sessions int       // number of all sessions
	ended    bool
}

// maxFree bounds the sessions that a connection keeps while it has fewer requests.
const maxFree = 64

// Read implements net.Conn. What arrives counts until it is answered, because grpc-go keeps the messages of up to
// maxStreams requests, before it asks a handler.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.hold(int64(n)) {
		c.server.counts.cut.Add(1)
		return 0, errMemory
	}
	return n, err
}

var errMemory = errors.New("the requests over gRPC hold too much memory at present")

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(c.leave)
	return err
}

// leave ends the sessions, and gives the place of the connection to others.
func (c *conn) leave() {
	c.mu.Lock()
	free := c.free
	c.free, c.ended = nil, true
	c.mu.Unlock()
	for _, k := range free {
		k.Close()
	}
	c.server.memory.held.Add(-c.shared.Swap(0))
	c.server.mu.Lock()
	c.server.conns--
	c.server.mu.Unlock()
}

// caller makes the calls of a request. One goroutine at a time may use it.
type caller struct {
	*session.Caller
	calls session.Calls
	key   []byte
	asked []ask
}

// take returns a session for a request.
func (c *conn) take() *caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := len(c.free) - 1; last >= 0 {
		k := c.free[last]
		c.free = c.free[:last]
		return k
	}
	c.sessions++
	k := &caller{Caller: c.server.instance.OpenCaller(client.Peer{
		Remote: address(c.RemoteAddr(), c), Local: address(c.LocalAddr(), c), FD: -1, IsStream: c.sessions > 1,
		Cut: func() { c.Conn.Close() },
	})}
	k.SwitchProtocol(3)
	k.SetAccount(c.server.account)
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

// transport makes connections known to the requests on them, as credentials of grpc-go.
type transport struct{}

// ServerHandshake implements credentials.TransportCredentials.
func (transport) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return raw, raw.(*conn), nil
}

// ClientHandshake implements credentials.TransportCredentials. There are no clients.
func (transport) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("not a client")
}

// Info implements credentials.TransportCredentials.
func (transport) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "insecure"}
}

// Clone implements credentials.TransportCredentials.
func (t transport) Clone() credentials.TransportCredentials { return t }

// OverrideServerName implements credentials.TransportCredentials.
func (transport) OverrideServerName(string) error { return nil }

// AuthType implements credentials.AuthInfo.
func (c *conn) AuthType() string { return "insecure" }

// connOf returns the connection of a request.
func connOf(ctx context.Context) *conn {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(*conn)
}

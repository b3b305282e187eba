package backend

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"
)

// socket is the network connection of a client of go-redis. It counts the bytes written: if there are
// any, a request without a reply may have been carried out. It notes when the first bytes were sent and
// received, which gives the offset of the server's clock, and when the last bytes were received, which
// ends the round trip.
type socket struct {
	net.Conn
	raw    net.Conn // without TLS
	now    func() int64
	closed atomic.Bool

	// Of the exchange under way, or else of the last one, and used only by its goroutine.
	written        int
	sent, received int64 // 0: not yet
	ended          int64 // when the last bytes were received
}

// dial connects, and makes the TLS handshake.
func dial(ctx context.Context, network, address string, secure *tls.Config, now func() int64) (*socket, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s := &socket{Conn: conn, raw: conn, now: now}
	if secure == nil {
		return s, nil
	}
	if secure.ServerName == "" {
		secure = secure.Clone()
		secure.ServerName, _, _ = net.SplitHostPort(address) // empty if there is no host: the handshake says so
	}
	secured := tls.Client(conn, secure)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	s.Conn = secured
	return s, nil
}

// begin begins an exchange.
func (s *socket) begin() { s.written, s.sent, s.received, s.ended = 0, 0, 0, 0 }

func (s *socket) Write(b []byte) (int, error) {
	if s.sent == 0 {
		s.sent = s.now()
	}
	n, err := s.Conn.Write(b)
	s.written += n
	if err != nil && s.Conn != s.raw {
		s.written++ // TLS: a part of a record may have been sent
	}
	return n, err
}

func (s *socket) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if n > 0 {
		s.ended = s.now()
		if s.received == 0 {
			s.received = s.ended
		}
	}
	return n, err
}

// Close closes the socket at once. A TLS connection would first announce it to the other side, which may
// take seconds if the other side does not read any more.
func (s *socket) Close() error {
	s.closed.Store(true)
	return s.raw.Close()
}

// idleAfter is the time, in nanoseconds, after the last reply from which on a connection is idle.
const idleAfter = int64(time.Millisecond)

// isLost reports whether the connection was closed by either side. It is called before anything is sent,
// when the server has nothing to say: bytes that have arrived then are the end of a TLS connection, or a
// reply to nothing. The server is not likely to have closed a connection that is not idle, so this is not looked at,
// which would take a system call.
func (s *socket) isLost() bool {
	return s.closed.Load() || s.now()-s.ended >= idleAfter && hasInput(s.raw)
}

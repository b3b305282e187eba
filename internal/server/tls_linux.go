package server

import (
	"crypto/tls"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tlsConn is the TLS of a link, once hands are shaken. crypto/tls takes it for the network; it
// never waits: there is nothing yet to be read, which passes, and what is written is kept until the
// socket takes it.
type tlsConn struct {
	loop    *loop
	fd      int
	conn    *tls.Conn
	out     []byte // what crypto/tls has written
	sent    int    // bytes of it that the socket has taken
	drained bool   // all that epoll has told of was read
	more    bool   // of what was read, crypto/tls may hold some
}

// seal puts the loop in the place of a connection's socket; nil if there is no TLS. What arrived
// behind the handshake has been read already.
func (l *loop) seal(conn net.Conn, fd int) *tlsConn {
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	e := &tlsConn{loop: l, fd: fd, conn: secured, more: true}
	secured.NetConn().(*wire).Conn = e
	return e
}

// receive is read, and opens what it reads.
func (e *tlsConn) receive(buffer []byte) (int, error) {
	n, err := e.conn.Read(buffer)
	e.more = n > 0
	switch {
	case n > 0:
		return n, nil // an error is met again
	case isNothingYet(err):
		return -1, unix.EAGAIN
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return 0, nil
	}
	return -1, unix.EPROTO
}

// transmit seals a piece, all of it, unless an earlier one waits, and gives the socket what it
// takes.
func (e *tlsConn) transmit(piece []byte) (int, error) {
	if err := e.flush(); err != nil || len(piece) == 0 {
		return 0, err
	}
	e.out, e.loop.cipher = e.loop.cipher, nil
	if _, err := e.conn.Write(piece); err != nil {
		return 0, unix.EPROTO
	}
	return len(piece), e.flush()
}

// flush gives the socket what it takes. Most of the time that is all, and the loop's other
// connections have the memory.
func (e *tlsConn) flush() error {
	if e.unsent() == 0 {
		return nil
	}
	n, err := write(e.fd, e.out[e.sent:])
	if err != nil && err != unix.EAGAIN && err != unix.EINTR {
		return err
	}
	e.sent += max(n, 0)
	if e.unsent() > 0 {
		return unix.EAGAIN
	}
	e.loop.cipher, e.out, e.sent = e.out[:0], nil, 0
	return nil
}

// unsent is the number of encrypted bytes that the socket has not taken.
func (e *tlsConn) unsent() int { return len(e.out) - e.sent }

// goodbye tells the client that the conversation is over, if the socket takes it.
func (e *tlsConn) goodbye() {
	if e.unsent() == 0 {
		_ = e.conn.CloseWrite()
		_ = e.flush()
	}
}

// Read and Write are crypto/tls's network.
func (e *tlsConn) Read(b []byte) (int, error) {
	if e.drained {
		return 0, errNothingYet
	}
	n, err := read(e.fd, b)
	e.drained = n < len(b)
	switch {
	case n > 0:
		return n, nil
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, errNothingYet
	case err != nil:
		return 0, err
	}
	return 0, io.EOF
}

func (e *tlsConn) Write(b []byte) (int, error) {
	e.out = append(e.out, b...)
	return len(b), nil
}

// The rest of net.Conn is not crypto/tls's to use: the link closes the socket, and nothing waits
// that could be late.
func (e *tlsConn) Close() error                     { return nil }
func (e *tlsConn) LocalAddr() net.Addr              { return nil }
func (e *tlsConn) RemoteAddr() net.Addr             { return nil }
func (e *tlsConn) SetDeadline(time.Time) error      { return nil }
func (e *tlsConn) SetReadDeadline(time.Time) error  { return nil }
func (e *tlsConn) SetWriteDeadline(time.Time) error { return nil }

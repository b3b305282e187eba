package server

import (
	"crypto/tls"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// tlsConn is the TLS of a loopConn after the handshake. It is the net.Conn under crypto/tls, and
// never blocks: Read returns a temporary error if nothing has arrived, and Write buffers its bytes
// until the socket accepts them.
type tlsConn struct {
	loop         *loop
	fd           int
	conn         *tls.Conn
	out          []byte // bytes that crypto/tls has written
	sent         int    // bytes of out that the socket has accepted
	inputDrained bool   // everything that epoll has reported has been read
	hasMore      bool   // crypto/tls may have buffered input
}

// useTLS replaces the socket under crypto/tls by a tlsConn, and returns the tlsConn, or nil without
// TLS. crypto/tls may have read input after the handshake already.
func (l *loop) useTLS(conn net.Conn, fd int) *tlsConn {
	secured, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	e := &tlsConn{loop: l, fd: fd, conn: secured, hasMore: true}
	secured.NetConn().(*baseConn).Conn = e
	return e
}

// receive returns what read does, for decrypted bytes.
func (e *tlsConn) receive(buffer []byte) (int, error) {
	n, err := e.conn.Read(buffer)
	e.hasMore = n > 0
	switch {
	case n > 0:
		return n, nil // the next read returns the error again
	case isWouldBlock(err):
		return -1, unix.EAGAIN
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return 0, nil
	}
	return -1, unix.EPROTO
}

// transmit encrypts a piece, unless an earlier piece waits, and writes as much to the socket as it
// accepts. It returns the number of bytes encrypted: all or 0.
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

// flush writes encrypted bytes to the socket. If the socket accepts all of them, as usual, the
// buffer is returned to the loop for its other connections.
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

// unsent returns the number of encrypted bytes that the socket has not accepted.
func (e *tlsConn) unsent() int { return len(e.out) - e.sent }

// closeNotify sends the alert that ends TLS, if the socket accepts it.
func (e *tlsConn) closeNotify() {
	if e.unsent() == 0 {
		_ = e.conn.CloseWrite()
		_ = e.flush()
	}
}

// Read is called by crypto/tls for encrypted bytes.
func (e *tlsConn) Read(b []byte) (int, error) {
	if e.inputDrained {
		return 0, errWouldBlock
	}
	n, err := read(e.fd, b)
	e.inputDrained = n < len(b)
	switch {
	case n > 0:
		return n, nil
	case err == unix.EAGAIN || err == unix.EINTR:
		return 0, errWouldBlock
	case err != nil:
		return 0, err
	}
	return 0, io.EOF
}

// Write is called by crypto/tls with encrypted bytes, and never fails.
func (e *tlsConn) Write(b []byte) (int, error) {
	e.out = append(e.out, b...)
	return len(b), nil
}

// The other methods of net.Conn have no effect: the loopConn closes the socket, and no call blocks,
// so no call needs a deadline.
func (e *tlsConn) Close() error                     { return nil }
func (e *tlsConn) LocalAddr() net.Addr              { return nil }
func (e *tlsConn) RemoteAddr() net.Addr             { return nil }
func (e *tlsConn) SetDeadline(time.Time) error      { return nil }
func (e *tlsConn) SetReadDeadline(time.Time) error  { return nil }
func (e *tlsConn) SetWriteDeadline(time.Time) error { return nil }

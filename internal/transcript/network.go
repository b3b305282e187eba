package transcript

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// Conn is a connection that can be closed in one direction, as TCP, Unix sockets and TLS allow.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Network returns the Stage of a server at an address, on TCP ("tcp") or a Unix socket ("unix").
func Network(network, address string) Stage {
	return Dialer(func() (Conn, error) {
		conn, err := net.DialTimeout(network, address, replyTimeout)
		if err != nil {
			return nil, err
		}
		half, ok := conn.(Conn)
		if !ok {
			return nil, errors.Join(fmt.Errorf("%s cannot close one direction", network), conn.Close())
		}
		return half, nil
	})
}

// Dialer returns the Stage of a server to which dial connects, for instance over TLS.
func Dialer(dial func() (Conn, error)) Stage { return dialer(dial) }

type dialer func() (Conn, error)

func (d dialer) Dial() (Peer, error) {
	conn, err := d()
	if err != nil {
		return nil, err
	}
	s := &socket{conn: conn, replies: make(chan received, 64)}
	go s.readReplies()
	return s, nil
}

// Advance waits, because the server's clock cannot be set.
func (d dialer) Advance(by time.Duration) error {
	if by < 0 {
		return errors.New("a real clock cannot go back")
	}
	time.Sleep(by)
	return nil
}

// Late implements Stage: on a busy machine, the calls of a transcript may take a minute.
func (d dialer) Late() time.Duration { return time.Minute }

// socket is a Peer on a connection. Another goroutine reads from it, so that Receive can have a
// timeout without losing a part of a reply.
type socket struct {
	conn    Conn
	replies chan received // closed after an error
}

type received struct {
	line string
	err  error // in place of the reply
}

func (s *socket) readReplies() {
	defer close(s.replies)
	r := bufio.NewReader(s.conn)
	for {
		line, err := ReadReply(r)
		if isHangUp(err) {
			err = io.EOF
		}
		s.replies <- received{line, err}
		if err != nil {
			return
		}
	}
}

// Send returns no error if the server has closed the connection: Receive does, after the earlier
// replies.
func (s *socket) Send(b []byte) error {
	// If the server does not read, the test must fail and not hang.
	alarm := time.AfterFunc(replyTimeout, func() { s.conn.Close() })
	defer alarm.Stop()
	if _, err := s.conn.Write(b); !isHangUp(err) {
		return err
	}
	return nil
}

func (s *socket) Receive(timeout time.Duration) (string, error) {
	select {
	case h, more := <-s.replies:
		return h.result(more)
	default: // a reply that has arrived is returned even if the timeout is 0
	}
	if timeout == 0 {
		return "", ErrSilent
	}
	select {
	case h, more := <-s.replies:
		return h.result(more)
	case <-time.After(timeout):
		return "", ErrSilent
	}
}

func (h received) result(more bool) (string, error) {
	if !more {
		return "", io.EOF
	}
	return h.line, h.err
}

// Close finds the replies that were not received without waiting for silence. It sends a PING and
// closes its direction of the connection. The last reply before the server closes the connection is
// that to the PING, whatever it is (+PONG, +QUEUED, -NOAUTH); all replies before it were not
// received.
func (s *socket) Close() []string {
	defer func() {
		s.conn.Close()
		for range s.replies { // wait until the reading goroutine has ended
		}
	}()
	if err := s.Send(appendCommand(nil, []string{"PING"})); err != nil {
		return []string{err.Error()}
	}
	line, err := s.Receive(replyTimeout)
	switch {
	case errors.Is(err, io.EOF):
		return []string{closed}
	case errors.Is(err, ErrSilent):
		return []string{"no reply to the final PING"}
	case err != nil:
		return []string{err.Error()}
	}
	s.conn.CloseWrite() // an error means that the server has closed the connection
	return s.beforeLast(line)
}

// beforeLast receives all further replies. It returns line and these replies, without the last of
// them.
func (s *socket) beforeLast(line string) (all []string) {
	for len(all) < maxReplies {
		next, err := s.Receive(replyTimeout)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, ErrSilent):
			return all
		case err != nil:
			return append(all, err.Error())
		}
		all, line = append(all, line), next
	}
	return all
}

// isHangUp reports whether an error means that the other side has closed the connection.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, net.ErrClosed)
}

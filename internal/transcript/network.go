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

// Conn is a connection of which one direction can be closed. TCP, Unix sockets and TLS have it.
type Conn interface {
	net.Conn
	CloseWrite() error
}

// Network is the server at an address, over TCP ("tcp") or a Unix socket ("unix").
func Network(network, address string) Stage {
	return Dialer(func() (Conn, error) {
		conn, err := net.DialTimeout(network, address, due)
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

// Dialer is a server that is reached in some other way, such as TLS.
func Dialer(dial func() (Conn, error)) Stage { return dialer(dial) }

type dialer func() (Conn, error)

func (d dialer) Dial() (Peer, error) {
	conn, err := d()
	if err != nil {
		return nil, err
	}
	s := &socket{conn: conn, heard: make(chan heard, 64)}
	go s.listen()
	return s, nil
}

// Advance waits: there is no other way to move a clock that belongs to somebody else.
func (d dialer) Advance(by time.Duration) error {
	if by < 0 {
		return errors.New("a real clock does not go back")
	}
	time.Sleep(by)
	return nil
}

// socket is a peer on a connection. A goroutine of its own reads it, so that a reply can be waited
// for with a timer and an impatient reader never leaves half a reply behind.
type socket struct {
	conn  Conn
	heard chan heard // closed behind the error that ended the reading
}

type heard struct {
	line string
	err  error // takes the place of the reply
}

func (s *socket) listen() {
	defer close(s.heard)
	r := bufio.NewReader(s.conn)
	for {
		line, err := ReadReply(r)
		if isHangUp(err) {
			err = io.EOF
		}
		s.heard <- heard{line, err}
		if err != nil {
			return
		}
	}
}

// Send does not tell that the server hung up: Receive does, after the replies that came before.
func (s *socket) Send(b []byte) error {
	// A server that does not read must not hang the test.
	alarm := time.AfterFunc(due, func() { s.conn.Close() })
	defer alarm.Stop()
	if _, err := s.conn.Write(b); !isHangUp(err) {
		return err
	}
	return nil
}

func (s *socket) Receive(patience time.Duration) (string, error) {
	select {
	case h, more := <-s.heard:
		return h.orEnd(more)
	default: // a reply that is there goes before a patience that is over
	}
	if patience == 0 {
		return "", ErrSilent
	}
	select {
	case h, more := <-s.heard:
		return h.orEnd(more)
	case <-time.After(patience):
		return "", ErrSilent
	}
}

func (h heard) orEnd(more bool) (string, error) {
	if !more {
		return "", io.EOF
	}
	return h.line, h.err
}

// Close proves that the server had nothing more to say without waiting for silence: it asks for one
// more answer and then says that it asks for no other, so the last reply before the server hangs up
// answers the PING, and all before it was too much. Which reply that is (+PONG, +QUEUED, -NOAUTH)
// does not matter.
func (s *socket) Close() []string {
	defer func() {
		s.conn.Close()
		for range s.heard { // lets the reading goroutine end, and waits for it
		}
	}()
	if err := s.Send(appendCommand(nil, []string{"PING"})); err != nil {
		return []string{err.Error()}
	}
	line, err := s.Receive(due)
	switch {
	case errors.Is(err, io.EOF):
		return []string{closed}
	case errors.Is(err, ErrSilent):
		return []string{"no answer to a last PING"}
	case err != nil:
		return []string{err.Error()}
	}
	s.conn.CloseWrite() // if this fails, the server hung up by itself
	return s.beforeLast(line)
}

// beforeLast reads to the end and returns all replies but the last of them, of which line is the
// first.
func (s *socket) beforeLast(line string) (all []string) {
	for len(all) < maxReplies {
		next, err := s.Receive(due)
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

// isHangUp recognizes the ways in which a socket says that the other side is gone.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, net.ErrClosed)
}

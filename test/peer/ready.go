package peer

import (
	"bytes"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"time"
)

// isReady returns a channel that is closed when the server is ready, as its log says. It asks a server whose log
// cannot tell, because the test has the log or because the log has no lines at the level INFO.
func (s *Server) isReady() chan struct{} {
	switch {
	case s.cmd.Stderr != &s.stderr, slices.Contains(s.cmd.Args, "nothing"):
		return s.answering()
	case binary != "" && slices.Contains(s.cmd.Args, binary): // not only Args[0]: a shell may start it, see StartIn
		return s.stderr.ready
	default: // Redis and Valkey log to stdout
		return s.stdout.ready
	}
}

// answering returns a channel that is closed when the server answers.
func (s *Server) answering() chan struct{} {
	answers := make(chan struct{})
	go func() {
		ticks := time.NewTicker(10 * time.Millisecond)
		defer ticks.Stop()
		for !s.Answers() {
			select {
			case <-s.ended:
				return
			case <-ticks.C:
			}
		}
		close(answers)
	}()
	return answers
}

// Answers reports whether the server has loaded its keys and answers at its address.
func (s *Server) Answers() bool {
	conn, err := net.DialTimeout("tcp", s.Addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	if strings.Contains(strings.Join(s.cmd.Args, " "), "--port 0 --tls-port ") { // see door
		conn = tls.Client(conn, both.client)
	}
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	reply := make([]byte, len("-LOADING"))
	n, _ := conn.Read(reply)
	return n > 0 && !bytes.Equal(reply, []byte("-LOADING"))
}

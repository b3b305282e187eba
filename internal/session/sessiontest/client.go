// Package sessiontest has clients in this process for tests of an instance: they pass bytes to sessions as a
// transport would.
package sessiontest

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/command"
	"cellserver/internal/session"
	"cellserver/internal/store"
	"cellserver/internal/transcript"
)

// TickingClock moves by a second whenever it is read.
type TickingClock struct {
	Start    int64 // instant
	Readings atomic.Int64
}

// Now implements store.Clock.
func (c *TickingClock) Now() int64 { return c.Start + c.Readings.Add(1)*int64(time.Second) }

// Offset implements store.Clock.
func (c *TickingClock) Offset() int64 { return 0 }

// Server is an instance, on a clock that moves only when a test moves it. It implements transcript.Stage.
type Server struct {
	Clock    *store.StillClock // nil if the instance has another clock
	Instance *session.Instance
}

// New returns a server with an instance, whose store is closed at the end of the test.
func New(t testing.TB, in *session.Instance) *Server {
	t.Cleanup(func() { in.Store.Close() })
	clock, _ := in.Store.Clock().(*store.StillClock)
	return &Server{Clock: clock, Instance: in}
}

// Dial implements transcript.Stage.
func (s *Server) Dial() (transcript.Peer, error) { return s.Connect(), nil }

// Connect opens a session.
func (s *Server) Connect() *Client {
	c := &Client{instance: s.Instance, Woken: make(chan struct{}, 1), Disconnected: make(chan struct{})}
	c.Session = s.Instance.Open(client.Peer{Remote: "127.0.0.1:50000", Local: "127.0.0.1:6379", FD: 7, Wake: c.Wake,
		Cut: sync.OnceFunc(func() { close(c.Disconnected) })})
	return c
}

// Advance stops the clock at each instant at which a call that waits is due.
func (s *Server) Advance(d time.Duration) error {
	for end := s.Clock.Now() + int64(d); ; {
		next := s.Instance.RunWaiting()
		if next > end {
			s.Clock.Advance(time.Duration(end - s.Clock.Now()))
			break
		}
		s.Clock.Advance(time.Duration(next - s.Clock.Now()))
	}
	s.Instance.Blocked.Tick()
	s.Instance.RunWaiting()
	return nil
}

// Late implements transcript.Stage: only Advance moves the clock.
func (s *Server) Late() time.Duration { return 0 }

// Client is a client in this process. It passes bytes to its session as a transport would.
type Client struct {
	instance     *session.Instance
	Session      *session.Session
	Woken        chan struct{} // receives a value when the session calls Wake
	Disconnected chan struct{} // closed when the session cuts the connection
	Received     []byte        // and not taken by Receive
}

// Wake is the Wake of the client's Peer.
func (c *Client) Wake() {
	select {
	case c.Woken <- struct{}{}:
	default:
	}
}

// Send feeds bytes in a buffer that it overwrites afterwards, as a transport does: so a row that
// keeps a borrowed word is found.
func (c *Client) Send(b []byte) error {
	if c.Session.Closing() {
		return io.EOF
	}
	lent := append([]byte(nil), b...)
	c.Session.Feed(lent)
	for i := range lent {
		lent[i] = 0xdd
	}
	c.Settle()
	if c.instance != nil {
		c.instance.RunWaiting()
	}
	return nil
}

// Settle resumes the session until it has nothing to do, or waits for the clock or another client,
// or has more output than a turn makes.
func (c *Client) Settle() {
	for (c.Session.HasUnanswered() || c.Session.HasMail()) && len(c.Session.Output()) < command.TurnOutput {
		if c.Session.State() != client.Running && !c.Session.HasMail() {
			if c.Session.State() > client.Parked {
				return
			}
			<-c.Woken // by the goroutine that makes the call
		}
		c.Read() // a turn ends when there are TurnOutput bytes of replies
		c.Session.Resume()
	}
}

// Read moves the session's output to Received.
func (c *Client) Read() {
	for out := c.Session.Output(); len(out) > 0; out = c.Session.Output() {
		c.Received = append(c.Received, out...)
		c.Session.Sent()
	}
}

// Receive implements transcript.Peer.
func (c *Client) Receive(time.Duration) (string, error) {
	if c.Session.HasMail() {
		c.Settle()
	}
	c.Read()
	line, rest, err := transcript.NextReply(c.Received)
	if err == io.EOF && !c.Session.Closing() && !c.IsDisconnected() {
		err = transcript.ErrSilent
	}
	c.Received = rest
	return line, err
}

// IsDisconnected reports whether the session has cut the connection.
func (c *Client) IsDisconnected() bool {
	select {
	case <-c.Disconnected:
		return true
	default:
		return false
	}
}

// Close implements transcript.Peer.
func (c *Client) Close() (unread []string) {
	for {
		line, err := c.Receive(0)
		if err != nil {
			c.Session.Close()
			return unread
		}
		unread = append(unread, line)
	}
}

// Do sends an inline command, and returns all replies in RESP.
func (c *Client) Do(t testing.TB, line string) string {
	t.Helper()
	require.NoError(t, c.Send([]byte(line+"\r\n")))
	for len(c.Session.Output()) >= command.TurnOutput { // pushes have filled the turn; the reply comes in the next
		c.Read()
		c.Settle()
	}
	return c.Output()
}

// Output returns what has been received, and removes it.
func (c *Client) Output() string {
	c.Read()
	out := string(c.Received)
	c.Received = nil
	return out
}

// Ask sends a call, and returns the reply, or "" if there is none.
func (c *Client) Ask(t require.TestingT, format string, words ...any) string {
	require.NoError(t, c.Send(fmt.Appendf(nil, format+"\r\n", words...)))
	return c.Reply()
}

// Reply returns the next reply, or "" if there is none.
func (c *Client) Reply() string {
	line, err := c.Receive(0)
	if err != nil {
		return ""
	}
	return line
}

// Plant replaces the code of a row.
func (s *Server) Plant(name string, by func(c *command.Call, run func(*command.Call) error) error) {
	row := s.Instance.Table.ByName[name]
	run := row.Run
	row.Run = func(c *command.Call) error { return by(c, run) }
}

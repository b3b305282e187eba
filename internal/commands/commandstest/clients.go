package commandstest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/session/sessiontest"
)

// Pushed returns the messages that were pushed to the client since it was called last.
func Pushed(c *sessiontest.Client) string {
	c.Session.Resume()
	return c.Output()
}

// Subscribers connects clients that subscribe to a channel.
func Subscribers(t *testing.T, s *Server, count int, channel string) (all []*sessiontest.Client) {
	for range count {
		c := s.Connect()
		c.Do(t, "SUBSCRIBE "+channel)
		all = append(all, c)
	}
	return all
}

// Invalidate returns the push by which a client learns that a key has changed.
func Invalidate(key string) string {
	return fmt.Sprintf(">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%s\r\n", len(key), key)
}

// ConnectAs connects a client that is logged in as a user with these rules.
func (s *Server) ConnectAs(t *testing.T, rules string) *sessiontest.Client {
	require.Equal(t, "+OK\r\n", s.Connect().Do(t, "ACL SETUSER u reset on nopass "+rules))
	c := s.Connect()
	require.Equal(t, "+OK\r\n", c.Do(t, "AUTH u x"))
	return c
}

// ConnectTracking connects a client with CLIENT TRACKING.
func (s *Server) ConnectTracking(t *testing.T, options string) *sessiontest.Client {
	c := s.Connect()
	c.Do(t, "HELLO 3")
	require.Equal(t, "+OK\r\n", c.Do(t, "CLIENT TRACKING ON "+options))
	return c
}

// WaitForPush waits for a push from outside the event loops, and returns it.
func WaitForPush(c *sessiontest.Client) string {
	for {
		<-c.Woken
		c.Session.Resume()
		if out := Pushed(c); out != "" {
			return out
		}
	}
}

// CountReplies sends input, and returns the number of replies that begin with prefix, and the end
// of the replies.
func CountReplies(c *sessiontest.Client, t *testing.T, input []byte, prefix string) (n int, last string) {
	t.Helper()
	for piece := range slices.Chunk(input, 16<<10) {
		require.NoError(t, c.Send(piece))
	}
	for c.Settle(); len(c.Session.Output()) > 0; c.Settle() {
		c.Read()
	}
	heard := c.Output()
	return strings.Count(heard, prefix), heard[max(len(heard)-200, 0):]
}

// Mebibyte is 1 MiB.
const Mebibyte = 1 << 20

// WaitUntil waits until a condition holds, which other goroutines make true.
func WaitUntil(t *testing.T, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, time.Minute, time.Millisecond)
}

// Fill creates keys that do not expire.
func (s *Server) Fill(t *testing.T, keys int) {
	c := s.Connect()
	for i := range keys {
		c.Session.Feed(fmt.Appendf(nil, "CL.THROTTLE key:%d 15 1 1000000\r\n", i))
		c.Session.Sent()
	}
}

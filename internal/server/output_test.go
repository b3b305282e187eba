package server

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/session"
)

// newSession returns a session, and an output buffer with low limits.
func newSession(t *testing.T) (*session.Session, *outputBuffer) {
	s := newServer(t)
	limits := new(atomic.Pointer[classLimits])
	limits.Store(&classLimits{normal: OutputLimit{2000, 1000, 5 * time.Second}, pubsub: OutputLimit{Hard: 100}})
	session := s.instance.Open(client.Peer{Wake: func() {}, Cut: func() {}})
	t.Cleanup(session.Close)
	return session, &outputBuffer{limits: limits}
}

func echo(n int) []byte {
	return fmt.Appendf(nil, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", n, strings.Repeat("x", n))
}

// TestExceedsLimit checks the limits of both classes of clients, and that all unsent bytes count.
func TestExceedsLimit(t *testing.T) {
	session, o := newSession(t)
	second := int64(time.Second)
	require.False(t, o.exceedsLimit(session, second))
	session.Feed(echo(980)) // its reply has 8 bytes more
	require.False(t, o.exceedsLimit(session, second))
	session.Feed(echo(100))
	require.False(t, o.exceedsLimit(session, 2*second))
	require.False(t, o.exceedsLimit(session, 7*second), "disconnected before the time is over")
	require.True(t, o.exceedsLimit(session, 7*second+1))
	o.markSent(session, 500)
	require.False(t, o.exceedsLimit(session, 8*second), "disconnected below the soft limit")
	session.Feed(echo(800))
	require.False(t, o.exceedsLimit(session, 9*second))
	require.False(t, o.exceedsLimit(session, 14*second), "the time did not begin again")
	session.Feed(echo(1000))
	require.True(t, o.exceedsLimit(session, 9*second), "not disconnected beyond the hard limit")

	for o.waiting(session) > 0 {
		o.markSent(session, len(o.next(session)))
	}
	require.Zero(t, o.overSoftSince)
	session.Feed([]byte("SUBSCRIBE a\r\n"))
	require.False(t, o.exceedsLimit(session, second))
	session.Feed([]byte("SUBSCRIBE a b c\r\n"))
	require.True(t, o.exceedsLimit(session, second), "the limit of subscribers was not applied")
}

// TestOutputInPieces checks that a long reply is sent in pieces, and stays the session's output
// until all of it has been sent.
func TestOutputInPieces(t *testing.T) {
	session, o := newSession(t)
	session.Feed(echo(600 << 10))
	all := len(session.Output())
	require.Len(t, o.next(session), maxWrite)
	o.markSent(session, maxWrite)
	require.Equal(t, all-maxWrite, o.waiting(session))
	require.Len(t, o.next(session), maxWrite)
	o.markSent(session, 10) // the socket accepted no more
	require.Len(t, o.next(session), maxWrite)
	require.Len(t, session.Output(), all)
	o.markSent(session, maxWrite)
	require.Len(t, o.next(session), all-2*maxWrite-10)
	o.markSent(session, all-2*maxWrite-10)
	require.Empty(t, session.Output())
	require.Empty(t, o.next(session))
	require.Zero(t, o.waiting(session))
}

// TestCloseTimeout checks that a connection that will be closed gives its client closeTimeout to
// read, counted from the first check.
func TestCloseTimeout(t *testing.T) {
	o := new(outputBuffer)
	require.False(t, o.closeTimedOut(false, 1))
	require.False(t, o.closeTimedOut(true, 1000))
	require.False(t, o.closeTimedOut(true, 1000+int64(closeTimeout)))
	require.True(t, o.closeTimedOut(true, 1001+int64(closeTimeout)))
	require.False(t, o.closeTimedOut(false, 1001+int64(closeTimeout)))
}

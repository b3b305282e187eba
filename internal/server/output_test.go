package server

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/commands"
)

// talker is a session that has an outlet, and limits of so many bytes.
func talker(t *testing.T) (*commands.Session, *outputBuffer) {
	s := newServer(t)
	limits := new(atomic.Pointer[outputs])
	limits.Store(&outputs{normal: OutputLimit{2000, 1000, 5 * time.Second}, listens: OutputLimit{Hard: 100}})
	session := s.instance.Open(client.Peer{Wake: func() {}, Cut: func() {}})
	t.Cleanup(session.Close)
	return session, &outputBuffer{limits: limits}
}

func echo(n int) []byte {
	return fmt.Appendf(nil, "*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", n, strings.Repeat("x", n))
}

// What waits counts from its first byte to its last; the limits are of the client's class.
func TestTooMuchOutput(t *testing.T) {
	session, o := talker(t)
	second := int64(time.Second)
	require.False(t, o.tooMuch(session, second))
	session.Feed(echo(980)) // and 8 bytes around it
	require.False(t, o.tooMuch(session, second))
	session.Feed(echo(100))
	require.False(t, o.tooMuch(session, 2*second))
	require.False(t, o.tooMuch(session, 7*second), "as long as it may")
	require.True(t, o.tooMuch(session, 7*second+1))
	o.wasSent(session, 500)
	require.False(t, o.tooMuch(session, 8*second), "below the soft limit")
	session.Feed(echo(800))
	require.False(t, o.tooMuch(session, 9*second))
	require.False(t, o.tooMuch(session, 14*second), "the time begins again")
	session.Feed(echo(1000))
	require.True(t, o.tooMuch(session, 9*second), "beyond the hard limit")

	for o.waiting(session) > 0 {
		o.wasSent(session, len(o.next(session)))
	}
	require.Zero(t, o.overdue)
	session.Feed([]byte("SUBSCRIBE a\r\n"))
	require.False(t, o.tooMuch(session, second))
	session.Feed([]byte("SUBSCRIBE a b c\r\n"))
	require.True(t, o.tooMuch(session, second), "a subscriber's limit is less")
}

// A long reply is sent in pieces, and is the session's until the last byte.
func TestOutputInPieces(t *testing.T) {
	session, o := talker(t)
	session.Feed(echo(600 << 10))
	all := len(session.Output())
	require.Len(t, o.next(session), piece)
	o.wasSent(session, piece)
	require.Equal(t, all-piece, o.waiting(session))
	require.Len(t, o.next(session), piece)
	o.wasSent(session, 10) // the socket took no more
	require.Len(t, o.next(session), piece)
	require.Len(t, session.Output(), all)
	o.wasSent(session, piece)
	require.Len(t, o.next(session), all-2*piece-10)
	o.wasSent(session, all-2*piece-10)
	require.Empty(t, session.Output())
	require.Empty(t, o.next(session))
	require.Zero(t, o.waiting(session))
}

// A connection that ends waits a while for its client to read, from when it was first looked at.
func TestTheLastRepliesWaitAWhile(t *testing.T) {
	o := new(outputBuffer)
	require.False(t, o.stuck(false, 1))
	require.False(t, o.stuck(true, 1000))
	require.False(t, o.stuck(true, 1000+int64(patience)))
	require.True(t, o.stuck(true, 1001+int64(patience)))
	require.False(t, o.stuck(false, 1001+int64(patience)))
}

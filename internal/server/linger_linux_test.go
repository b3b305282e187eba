package server

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// So many connections linger at once; others are closed without.
func TestPlacesToLinger(t *testing.T) {
	l := new(lingering)
	for range maxLingering {
		require.True(t, l.enter())
	}
	require.False(t, l.enter())
	require.EqualValues(t, maxLingering, l.count.Load())
	l.leave()
	require.True(t, l.enter())
}

// refused is a loop, and a connection that it has refused in the middle of a value.
func refused(t *testing.T) (l *loop, here net.Conn) {
	l, ls := newLoop(t, newServer(t), epollWait)
	here, there := pair(t)
	require.NoError(t, ls.enroll(there))
	require.True(t, l.readMail())
	t.Cleanup(l.end)
	_, err := here.Write([]byte("*2\r\n$3\r\nGET\r\n$16000000\r\n"))
	require.NoError(t, err)
	for _, k := range l.links {
		for n := 0; n == 0; n = k.read() { // until it has arrived
		}
	}
	require.Empty(t, l.links, "its session has ended")
	require.Len(t, l.partings, 1)
	require.EqualValues(t, 1, l.lingering.count.Load())
	said, err := io.ReadAll(here)
	require.NoError(t, err)
	require.Equal(t, "-ERR Protocol error: invalid bulk length\r\n", string(said), "and then the end")
	return l, here
}

// A client that still sends its value is listened to; one that has sent nothing since the last look
// is not.
func TestASilentClientLingersNotForLong(t *testing.T) {
	l, here := refused(t)
	l.lookAtPartings(l.instance.Now())
	require.Len(t, l.partings, 1)
	_, err := here.Write([]byte("more"))
	require.NoError(t, err)
	for fd, p := range l.partings {
		for p.bytes < len("more") {
			l.throwAway(fd, p)
		}
	}
	l.lookAtPartings(l.instance.Now())
	require.Len(t, l.partings, 1)
	l.lookAtPartings(l.instance.Now())
	require.Empty(t, l.partings)
	require.Zero(t, l.lingering.count.Load())
}

// Nobody lingers longer than a client may take to read its last replies, or sends more than the
// longest value.
func TestLingeringIsBounded(t *testing.T) {
	l, _ := refused(t)
	l.lookAtPartings(l.instance.Now() + int64(lingerFor) + 1e9)
	require.Empty(t, l.partings)

	l, here := refused(t)
	_, err := here.Write([]byte("x"))
	require.NoError(t, err)
	for fd, p := range l.partings {
		for p.bytes = lingerBytes; len(l.partings) > 0; { // until it has arrived
			l.throwAway(fd, p)
		}
	}
	require.Zero(t, l.lingering.count.Load())

	l, here = refused(t)
	require.NoError(t, here.Close())
	for fd, p := range l.partings {
		for len(l.partings) > 0 {
			l.throwAway(fd, p)
		}
	}
	require.Zero(t, l.lingering.count.Load())
}

// When the server stops nobody lingers.
func TestADrainEndsLingering(t *testing.T) {
	l, _ := refused(t)
	l.drain()
	require.Empty(t, l.partings)
}

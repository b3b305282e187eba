package server

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMaxLingering checks that at most maxLingering connections linger.
func TestMaxLingering(t *testing.T) {
	l := new(lingering)
	for range maxLingering {
		require.True(t, l.enter())
	}
	require.False(t, l.enter())
	require.EqualValues(t, maxLingering, l.count.Load())
	l.leave()
	require.True(t, l.enter())
}

// refuseCall returns a loop, and the client's end of a connection whose call it has refused in the
// middle of a value.
func refuseCall(t *testing.T) (l *loop, here net.Conn) {
	l, ls := newLoop(t, newServer(t), epollWait)
	here, there := pair(t)
	require.NoError(t, ls.attach(there))
	require.True(t, l.handleMessages())
	t.Cleanup(l.end)
	_, err := here.Write([]byte("*2\r\n$3\r\nGET\r\n$16000000\r\n"))
	require.NoError(t, err)
	for _, k := range l.connByFD {
		for n := 0; n == 0; n = k.read() { // until it has arrived
		}
	}
	require.Empty(t, l.connByFD, "the session has not ended")
	require.Len(t, l.lingeringConns, 1)
	require.EqualValues(t, 1, l.lingering.count.Load())
	said, err := io.ReadAll(here)
	require.NoError(t, err)
	require.Equal(t, "-ERR Protocol error: invalid bulk length\r\n", string(said),
		"the connection was not closed after the error")
	return l, here
}

// TestSilentClientIsClosed checks that a connection lingers while its client sends, and is closed
// if it has sent nothing since the last check.
func TestSilentClientIsClosed(t *testing.T) {
	l, here := refuseCall(t)
	l.checkLingering(l.instance.Now())
	require.Len(t, l.lingeringConns, 1)
	_, err := here.Write([]byte("more"))
	require.NoError(t, err)
	for fd, p := range l.lingeringConns {
		for p.bytes < len("more") {
			l.discardLingering(fd, p)
		}
	}
	l.checkLingering(l.instance.Now())
	require.Len(t, l.lingeringConns, 1)
	l.checkLingering(l.instance.Now())
	require.Empty(t, l.lingeringConns)
	require.Zero(t, l.lingering.count.Load())
}

// TestLingeringIsBounded checks that a connection lingers at most for maxLingerTime, and for
// maxLingerBytes.
func TestLingeringIsBounded(t *testing.T) {
	l, _ := refuseCall(t)
	l.checkLingering(l.instance.Now() + int64(maxLingerTime) + 1e9)
	require.Empty(t, l.lingeringConns)

	l, here := refuseCall(t)
	_, err := here.Write([]byte("x"))
	require.NoError(t, err)
	for fd, p := range l.lingeringConns {
		for p.bytes = maxLingerBytes; len(l.lingeringConns) > 0; { // until it has arrived
			l.discardLingering(fd, p)
		}
	}
	require.Zero(t, l.lingering.count.Load())

	l, here = refuseCall(t)
	require.NoError(t, here.Close())
	for fd, p := range l.lingeringConns {
		for len(l.lingeringConns) > 0 {
			l.discardLingering(fd, p)
		}
	}
	require.Zero(t, l.lingering.count.Load())
}

// TestDrainEndsLingering checks that no connection lingers when the server shuts down.
func TestDrainEndsLingering(t *testing.T) {
	l, _ := refuseCall(t)
	l.drain()
	require.Empty(t, l.lingeringConns)
}

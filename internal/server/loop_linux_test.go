package server

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"cellserver/internal/commands"
	"cellserver/internal/store"
)

// A loop whose epoll fails goes on with another, and with all of its connections.
func TestALoopRecovers(t *testing.T) {
	memory := store.NewMemory(store.Options{})
	t.Cleanup(func() { memory.Close() })
	instance, err := commands.New(commands.Config{Store: memory})
	require.NoError(t, err)
	settings := NewSettings()
	settings.Transport, settings.IOThreads = string(EventLoop), 1
	s, err := New(instance, Config{Settings: settings})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Shutdown(t.Context()) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = s.Serve(listener) }()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", listener.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	ping := func(conn net.Conn) {
		_, err := conn.Write([]byte("PING\r\n"))
		require.NoError(t, err)
		reply := make([]byte, len("+PONG\r\n"))
		_, err = io.ReadFull(conn, reply)
		require.NoError(t, err)
		require.Equal(t, "+PONG\r\n", string(reply))
	}
	before, other := dial(), dial()
	ping(before)
	ping(other)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	l := s.transport.(*loops).all[0]
	for range 3 {
		// What waits still waits for the old one; the wait after it fails.
		require.NoError(t, unix.Dup3(int(null.Fd()), epollOf(l), unix.O_CLOEXEC))
		ping(before)
		ping(other)
		ping(dial())
	}
}

// epollOf is the descriptor, read when the loop has answered and before it is asked again.
func epollOf(l *loop) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoll
}

package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"cellserver/internal/commands"
	"cellserver/internal/store/memory"
	"cellserver/internal/store/storetest"
)

// listenOverWaiting returns a server over a store whose calls wait, and a connection to it.
func listenOverWaiting(t *testing.T) (*Server, *storetest.Waiting, net.Conn) {
	data := storetest.NewWaiting(memory.New(memory.Options{SweepEvery: -1}))
	t.Cleanup(func() { data.Close() })
	s := newServerOn(t, EventLoop, data, func(*commands.Settings) {})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go s.Serve(listener)
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return s, data, conn
}

// Over a store that may block, connections are served by goroutines, whatever the option transport
// says.
func TestStoreThatMayBlockIsNotUsedByEventLoops(t *testing.T) {
	s, data, conn := listenOverWaiting(t)
	require.IsType(t, &goroutineTransport{}, s.transport)
	data.Run(1)
	var calls, want []byte
	for i := range 2000 {
		calls = fmt.Appendf(calls, "INCRBY k%d %d\r\n", i, i)
		want = fmt.Appendf(want, ":%d\r\n", i)
	}
	_, err := conn.Write(calls)
	require.NoError(t, err)
	got := make([]byte, len(want))
	_, err = io.ReadFull(conn, got)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// When the time for the shutdown is over, connections end although the store answers none of their
// calls.
func TestShutdownEndsCallsThatWait(t *testing.T) {
	s, data, conn := listenOverWaiting(t)
	_, err := conn.Write([]byte("INCR a\r\nINCR b\r\n"))
	require.NoError(t, err)
	require.True(t, data.AwaitSteps(1))
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.Shutdown(over), context.Canceled)
	s.transport.(*goroutineTransport).conns.Wait()
	require.Zero(t, data.Steps())
}

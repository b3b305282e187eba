package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"cellserver/internal/commands"
	"cellserver/internal/leaktest"
	"cellserver/internal/store/memory"
	"cellserver/internal/store/storetest"
)

// Clients that pipeline, and clients that leave in the middle of their calls, are served side by side.
// Afterwards, no goroutine and no coroutine is left.
func TestClientsOverAWaitingStore(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s, data, conn := listenOverWaiting(t)
	data.Run(1)
	var clients sync.WaitGroup
	for client := range 6 {
		clients.Go(func() {
			conn, err := net.Dial("tcp", conn.RemoteAddr().String())
			if !assert.NoError(t, err) {
				return
			}
			defer conn.Close()
			for round := range 5 {
				calls, want := pipeline(fmt.Sprintf("%d-%d", client, round), 100)
				if _, err = conn.Write(calls); round == 4 && client%2 == 0 {
					return // without reading the replies
				}
				got := make([]byte, len(want))
				_, failed := io.ReadFull(conn, got)
				assert.NoError(t, errors.Join(err, failed))
				assert.Equal(t, string(want), string(got))
			}
		})
	}
	clients.Wait()
	conn.Close()
	require.NoError(t, s.Shutdown(t.Context()))
	require.NoError(t, data.Close())
	require.NoError(t, leaktest.Find(before))
}

// pipeline returns calls on keys with a prefix, with a few transactions between them, and the replies.
func pipeline(prefix string, n int) (calls, want []byte) {
	for i := range n {
		calls = fmt.Appendf(calls, "INCRBY %s-%d %d\r\n", prefix, i%7, i)
		sum := 0
		for k := i % 7; k <= i; k += 7 {
			sum += k
		}
		want = fmt.Appendf(want, ":%d\r\n", sum)
		if i%40 == 39 {
			calls = append(calls, "MULTI\r\nPING\r\nEXEC\r\n"...)
			want = append(want, "+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n"...)
		}
	}
	return calls, want
}

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
	calls, want := pipeline("k", 2000)
	_, err := conn.Write(calls)
	require.NoError(t, err)
	got := make([]byte, len(want))
	_, err = io.ReadFull(conn, got)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// When the time for the shutdown is over, connections end although the store does not answer their
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

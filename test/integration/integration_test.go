// Package integration tests the cellserver binary with the calls that clients send.
package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/internal/transcript"
	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// patience is the timeout of every wait. It is long because a test machine may be busy.
const patience = 60 * time.Second

// client returns go-redis, speaking RESP2 or RESP3.
func client(t *testing.T, server *peer.Server, protocol int) *redis.Client {
	return connect(t, &redis.Options{Addr: server.Addr, TLSConfig: server.TLS, Protocol: protocol})
}

func connect(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	o.ReadTimeout, o.WriteTimeout = patience, patience
	c := peer.Client(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func inTime(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// eachProtocol runs a test with RESP2 and with RESP3, each on a server of its own.
func eachProtocol(t *testing.T, test func(t *testing.T, c *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) { test(t, client(t, peer.Start(t), protocol)) })
	}
}

// dial opens a plain connection to the server.
func dial(t *testing.T, server *peer.Server) *peer.Conn {
	t.Helper()
	conn, err := peer.Dial(server.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// send writes from a goroutine of its own, because a client that writes much without reading would
// wait for ever. The returned function waits for the goroutine.
func send(conn *peer.Conn, pieces ...[]byte) (sent func() error) {
	done := make(chan error, 1)
	go func() {
		for _, piece := range pieces {
			if _, err := conn.Write(piece); err != nil {
				done <- err
				return
			}
		}
		done <- conn.CloseWrite()
	}()
	return func() error { return <-done }
}

// exchange sends pieces, closes the sending direction, and returns all replies.
func exchange(t *testing.T, server *peer.Server, pieces ...[]byte) string {
	t.Helper()
	conn := dial(t, server)
	sent := send(conn, pieces...)
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.NoError(t, sent())
	return string(answer)
}

// expect reads replies, and compares them in the notation of internal/transcript.
func expect(t *testing.T, r *bufio.Reader, want ...string) {
	t.Helper()
	for _, w := range want {
		got, err := transcript.ReadReply(r)
		require.NoError(t, err)
		require.Equal(t, w, got)
	}
}

// command returns a call in RESP.
func command(words ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

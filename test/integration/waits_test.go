package integration

import (
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A client that waits for the end of a pause, for replicas, or for CLIENT UNBLOCK is answered in
// time, and other clients are served meanwhile.
func TestBlockedClients(t *testing.T) {
	for _, transport := range []string{"event-loop", "goroutines"} {
		t.Run(transport, func(t *testing.T) {
			server := peer.Start(t, "--transport", transport, "--io-threads", "1")
			open := func() *redis.Client {
				c := peer.Client(&redis.Options{Addr: server.Addr, TLSConfig: server.TLS, PoolSize: 1, ReadTimeout: patience,
					MaxRetries: -1})
				t.Cleanup(func() { c.Close() })
				return c
			}
			boss, worker := open(), open()
			answered := make(chan error, 1)
			pauseAndWait(t, boss, worker, answered)
			unblockAndKill(t, server, boss, worker, answered)
			go func() { answered <- open().Do(t.Context(), "WAIT", 1, 0).Err() }() // must not delay the server's stop
			require.NoError(t, boss.Ping(t.Context()).Err())
		})
	}
}

// pauseAndWait delays a client by a pause and by WAIT, and checks when they end.
func pauseAndWait(t *testing.T, boss, worker *redis.Client, answered chan error) {
	require.NoError(t, boss.Do(t.Context(), "CLIENT", "PAUSE", 600_000, "WRITE").Err())
	go func() { answered <- worker.Do(t.Context(), "CL.THROTTLE", "k", 15, 30, 60).Err() }()
	require.NoError(t, boss.Ping(t.Context()).Err())
	select {
	case err := <-answered:
		assert.Fail(t, "not held", "%v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, boss.ClientUnpause(t.Context()).Err())
	require.NoError(t, <-answered)

	require.NoError(t, boss.Do(t.Context(), "CLIENT", "PAUSE", 20, "ALL").Err())
	require.NoError(t, worker.Ping(t.Context()).Err(), "the pause did not end")
	require.NoError(t, worker.Do(t.Context(), "WAIT", 1, 20).Err())
	require.Equal(t, []any{int64(0), int64(0)}, worker.Do(t.Context(), "WAITAOF", 0, 1, 20).Val())
}

// unblockAndKill ends the WAIT of a client by CLIENT UNBLOCK, by CLIENT KILL, and by closing its
// connection.
func unblockAndKill(t *testing.T, server *peer.Server, boss, worker *redis.Client, answered chan error) {
	id := worker.ClientID(t.Context()).Val()
	go func() { answered <- worker.Do(t.Context(), "WAIT", 1, 0).Err() }()
	require.Eventually(t, func() bool {
		return boss.ClientUnblockWithError(t.Context(), id).Val() == 1
	}, patience, time.Millisecond)
	require.EqualError(t, <-answered, "UNBLOCKED client unblocked via CLIENT UNBLOCK")

	becomes := func(waiting bool) {
		require.Eventually(t, func() bool {
			return waiting == strings.Contains(boss.ClientList(t.Context()).Val(), " flags=b ")
		}, patience, time.Millisecond)
	}
	go func() { answered <- worker.Do(t.Context(), "WAIT", 1, 0).Err() }()
	becomes(true) // if the connection were killed before WAIT arrives, the client would send WAIT on another
	require.EqualValues(t, 1, boss.ClientKillByFilter(t.Context(), "ID", fmt.Sprint(id)).Val())
	require.Error(t, <-answered)
	gone := dial(t, server)
	_, err := gone.Write([]byte("WAIT 1 0\r\n"))
	require.NoError(t, err)
	becomes(true)
	gone.Close()
	becomes(false)
}

// A call that waits for a limiter is admitted when a token is there. When the server stops, the call is
// limited, and its client receives the reply before the connection is closed.
func TestCallsThatWait(t *testing.T) {
	for _, transport := range []string{"event-loop", "goroutines"} {
		t.Run(transport, func(t *testing.T) {
			server := peer.Start(t, "--transport", transport)
			conn := dial(t, server)
			_, err := conn.Write([]byte("CL.THROTTLE k 0 1000 1\r\nCL.THROTTLE k 0 1000 1 1 WAIT 60000\r\n"))
			require.NoError(t, err)
			const admitted = "*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:1\r\n"
			replies := make([]byte, 2*len(admitted))
			_, err = io.ReadFull(conn, replies)
			require.NoError(t, err)
			require.Equal(t, admitted+admitted, string(replies))

			_, err = conn.Write([]byte("CL.THROTTLE k 0 1 600 4 FORCE\r\nCL.THROTTLE k 0 1 600 1 UPTO WAIT 3600000\r\n"))
			require.NoError(t, err)
			boss := client(t, server, 2)
			require.Eventually(t, func() bool { return strings.Contains(boss.ClientList(t.Context()).Val(), " flags=b ") },
				patience, time.Millisecond)
			server.Signal(syscall.SIGTERM)
			rest, err := io.ReadAll(conn)
			require.NoError(t, err)
			require.Regexp(t, `^\*5\r\n:1\r\n(:\d+\r\n){4}\*6\r\n:1\r\n:1\r\n:0\r\n:\d+\r\n:\d+\r\n:0\r\n$`, string(rest))
			require.Zero(t, server.Wait())
		})
	}
}

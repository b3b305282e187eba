package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// The line of a client in CLIENT INFO counts the client's bytes, its calls and the keys that it watches, with
// either transport.
func TestClientListCounts(t *testing.T) {
	for _, transport := range []string{"event-loop", "goroutines"} {
		server := peer.Start(t, "--transport", transport)
		c, err := peer.Dial(server.Addr)
		require.NoError(t, err)
		defer c.Close()
		line := func(call string) string {
			_, err := c.Write([]byte(call))
			require.NoError(t, err)
			reply := make([]byte, 4096)
			n, err := c.Read(reply)
			require.NoError(t, err)
			return string(reply[:n])
		}
		require.Equal(t, "+OK\r\n", line("WATCH a b\r\n")) // a call of 11 bytes, and a reply of 5
		require.Equal(t, "+PONG\r\n", line("PING\r\n"))    // a call of 6 bytes, and a reply of 7
		assert.Regexp(t, ` multi=-1 watch=2 qbuf=\d+ .* io-thread=0 tot-net-in=30 tot-net-out=12 tot-cmds=2\n`,
			line("CLIENT INFO\r\n"), transport) // a call of 13 bytes
	}
}

// DEBUG SLEEP in a transaction takes its time before EXEC answers.
func TestDebugSleepInTransaction(t *testing.T) {
	c := peer.Client(&redis.Options{Addr: peer.StartPlain(t, "--enable-debug-command", "yes").Addr})
	began := time.Now()
	_, err := c.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		return p.Do(t.Context(), "DEBUG", "SLEEP", "0.05").Err()
	})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)
}

// A client that calls scripts gets Redis's error, and the log says once where to read more, whichever call is first.
func TestScriptsAreHinted(t *testing.T) {
	digest := strings.Repeat("0", 40)
	for _, call := range [][]any{{"eval", "return 1", 0}, {"EVALSHA", digest, 0}, {"SCRIPT", "LOAD", "x"}} {
		server := peer.StartPlain(t)
		c := peer.Client(&redis.Options{Addr: server.Addr})
		require.ErrorContains(t, c.Do(t.Context(), "EVALUATE", "x").Err(), "ERR unknown command 'EVALUATE'")
		require.NoError(t, c.Ping(t.Context()).Err())
		assert.NotContains(t, server.Log(), "docs/migrate.md", "EVALUATE is no command of Redis")
		for range 3 {
			require.ErrorContains(t, c.Do(t.Context(), call...).Err(), fmt.Sprintf("ERR unknown command '%s'", call[0]))
		}
		peer.Until(t, "the log has the hint", func() bool { return strings.Contains(server.Log(), "docs/migrate.md") })
		assert.Equal(t, 1, strings.Count(server.Log(), "docs/migrate.md"), server.Log())
		assert.Contains(t, server.Log(), fmt.Sprintf("command=%s ", call[0]))
	}
}

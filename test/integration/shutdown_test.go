package integration

import (
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// SHUTDOWN ends the process as SIGTERM does: clients receive the replies to the calls that they
// have sent, and nothing else.
func TestShutdown(t *testing.T) {
	for _, transport := range []string{"event-loop", "goroutines"} {
		server := peer.StartLogging(t, devNull(t), "--transport", transport)
		conn := dial(t, server)
		_, err := conn.Write([]byte("PING\r\nSHUTDOWN NOSAVE\r\nPING\r\n"))
		require.NoError(t, err)
		heard, err := io.ReadAll(conn)
		require.NoError(t, err)
		assert.Equal(t, "+PONG\r\n", string(heard))
		assert.Zero(t, server.Wait())
	}
}

// Only the clients that the option allows may use DEBUG.
func TestDebugIsAllowedByOption(t *testing.T) {
	for option, allowed := range map[string]bool{"no": false, "yes": true, "local": true} {
		c := client(t, peer.Start(t, "--enable-debug-command", option), 2)
		err := c.Do(inTime(t), "DEBUG", "SLEEP", "0.001").Err()
		assert.Equal(t, allowed, err == nil, "%s: %v", option, err)
		if !allowed {
			assert.ErrorContains(t, err, "ERR DEBUG command not allowed. If the enable-debug-command option is set to")
		}
	}
}

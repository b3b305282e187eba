package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// A health check needs no option besides the server's configuration file, which has the address, the port or
// the socket, and the password.
func TestServersConfigurationFile(t *testing.T) {
	for name, format := range map[string]string{
		"port":   "port %d\nrequirepass \"a secret\"\n",
		"bind":   "port %d\nbind 127.0.0.2 -::1\nrequirepass \"a secret\"\n",
		"socket": "port 0\nunixsocket %[2]s\nrequirepass \"a secret\"\n",
	} {
		dir := t.TempDir()
		file, socket := filepath.Join(dir, "cellserver.conf"), filepath.Join(dir, "s")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, format+"# socket %[2]s\n", peer.FreePort(t), socket), 0o600))
		server := peer.Launch(t, peer.Command("--config", file))
		require.Eventually(t, func() bool { return strings.Contains(server.Log(), peer.Ready) }, patience,
			time.Millisecond)
		out := run(t, ours("--config", file, "PING"), "")
		assert.Equal(t, outcome{"PONG\n", "", 0}, out, name)
		ready := peer.Command("ready", "--config", file)
		ready.Env = nil
		assert.Equal(t, outcome{"ready\n", "", 0}, run(t, ready, ""), name)
		out = run(t, ours("--config", file, "-a", "", "PING"), "")
		assert.Contains(t, out.stdout, "NOAUTH", "an option takes precedence")
	}
	out := run(t, ours("--config", filepath.Join(t.TempDir(), "nosuch"), "PING"), "")
	assert.Equal(t, 1, out.status)
	assert.Contains(t, out.stderr, "no such file")
}

// The configuration file of a server that has only a TLS port leads the client to this port.
func TestConfigurationFileWithTLS(t *testing.T) {
	s := startTLS(t)
	file := filepath.Join(t.TempDir(), "cellserver.conf")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "port 0\ntls-port %s\ntls-cert-file %s\ntls-key-file %s\n",
		s.port, s.own.Cert, s.own.Key), 0o600))
	assert.Equal(t, outcome{"PONG\n", "", 0}, run(t, ours("--config", file, "PING"), ""))
}

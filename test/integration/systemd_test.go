package integration

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// The server tells systemd that it starts, is ready, works and stops, in this order. TestSystemd in test/packaging
// uses a real systemd.
func TestSystemdIsTold(t *testing.T) {
	for _, transport := range []string{"event-loop", "goroutines"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "notify")
		socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		require.NoError(t, err)
		defer socket.Close()
		next := func() string {
			message := make([]byte, 4096)
			n, err := socket.Read(message)
			require.NoError(t, err)
			return string(message[:n])
		}
		t.Setenv("NOTIFY_SOCKET", path)
		t.Setenv("WATCHDOG_USEC", "20000") // the server notifies the watchdog every 10 ms
		server := peer.Launch(t, peer.Command("--port", strconv.Itoa(peer.FreePort(t)), "--bind", "127.0.0.1",
			"--transport", transport, "--dir", filepath.Join(dir, "state")))
		message := next()
		assert.True(t, strings.HasPrefix(message, "EXTEND_TIMEOUT_USEC=30000000\nSTATUS="), message)
		for strings.HasPrefix(message, "EXTEND_TIMEOUT_USEC=") {
			message = next()
		}
		assert.Equal(t, "READY=1\nSTATUS=ready to accept connections", message)
		for range 3 {
			assert.Equal(t, "WATCHDOG=1", next())
		}
		server.Signal(syscall.SIGTERM)
		for message = next(); message == "WATCHDOG=1"; {
			message = next()
		}
		assert.Equal(t, "STOPPING=1\nEXTEND_TIMEOUT_USEC=40000000\nSTATUS=stopping", message)
		require.Zero(t, server.Wait())
		assert.Empty(t, server.Stderr())
	}
}

// A server that cannot reach systemd starts nevertheless.
func TestSystemdIsGone(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	server := peer.Launch(t, peer.Command("--port", strconv.Itoa(peer.FreePort(t)), "--bind", "127.0.0.1"))
	peer.Until(t, "the server is ready", func() bool { return strings.Contains(server.Log(), peer.Ready) })
	server.Signal(syscall.SIGTERM)
	require.Zero(t, server.Wait())
	assert.Contains(t, server.Stderr(), `level=WARN msg="systemd is not told how the server does"`)
}

// When a start fails, the log says why, in the format that the options choose. The reason may be a wrong option, or
// something that an option names. Standard error has the reason once.
func TestFailedStartsAreLogged(t *testing.T) {
	dir := t.TempDir()
	log, conf := filepath.Join(dir, "log"), filepath.Join(dir, "conf")
	require.NoError(t, os.WriteFile(conf, []byte("port 0\nlog-format json\nlogfile "+log+"\nno-such 1\n"), 0o600))
	for _, c := range []struct{ args, why string }{
		{"--port x --log-format json --logfile " + log, `invalid argument \"x\" for \"--port\" flag`},
		{"--log-format=json --logfile=" + log + " --no-such-option", "unknown option --no-such-option"},
		{"--log-format json --logfile " + log + " --port 0", "no listeners"},
		{"--config " + conf, "conf:4: no-such: unknown directive"},
	} {
		message := refusesToStart(t, strings.Fields(c.args)...)
		assert.Contains(t, message, strings.ReplaceAll(c.why, `\`, ""))
		assert.Equal(t, 1, strings.Count(message, "\n"), message)
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		assert.Regexp(t, `(?m)^{"time":"[^"]+","level":"ERROR","msg":"the server ends because of an error",.*`,
			string(text))
		assert.Contains(t, string(text), c.why)
		require.NoError(t, os.Remove(log))
	}
	assert.Regexp(t, `^{"time":.*"error":"unknown option --nonsense; .*"}\n$`,
		refusesToStart(t, "--log-format", "json", "--nonsense"))
	t.Setenv("CELLSERVER_LOG_FORMAT", "json")
	assert.Regexp(t, `^{"time":.*"error":"CELLSERVER_PORT=x: .*"}\n$`, refusesWith(t, "CELLSERVER_PORT", "x"))
}

// refusesWith starts a server with an environment variable that is wrong.
func refusesWith(t *testing.T, name, value string) string {
	t.Helper()
	t.Setenv(name, value)
	return refusesToStart(t)
}

package hostile

import (
	"net"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"cellserver/test/peer"
)

// When the process may open no more files, connected clients are served, and new connections are
// accepted later.
func TestNoMoreFiles(t *testing.T) {
	server := peer.Start(t, "--tls-handshake-timeout", "3") // also bounds how long a connection waits for a descriptor
	w := watch(t, server)
	pid, err := strconv.Atoi(w.pid)
	require.NoError(t, err)
	var before unix.Rlimit
	few := unix.Rlimit{Cur: uint64(w.files() + 6), Max: 4096}
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before))
	few.Max = before.Max
	require.NoError(t, unix.Prlimit(pid, unix.RLIMIT_NOFILE, &few, nil))

	began := time.Now()
	var knocking []net.Conn
	for range 50 {
		conn := connect(t, server)
		go func() { _, _ = conn.Write(Command("PING")) }() // with TLS it waits to be accepted
		knocking = append(knocking, conn)
	}
	until(t, func() bool { return strings.Contains(server.Stderr(), "too many open files") },
		func() string { return "a warning: " + server.Stderr() })
	for range 100 {
		require.NoError(t, w.Ping(w.ctx).Err())
	}
	for _, conn := range knocking {
		conn.Close()
	}
	conn := connect(t, server)
	write(t, conn, Command("PING"))
	reads(t, conn, "+PONG\r\n")
	w.becomes("connected_clients", 2)
	server.Signal(syscall.SIGTERM)
	assert.Zero(t, server.Wait())
	for line := range strings.Lines(server.Stderr()) {
		assert.Contains(t, line, "level=WARN")
	}
	seconds := int(time.Since(began).Seconds())
	assert.Less(t, strings.Count(server.Stderr(), "\n"), 200+20*seconds, "the server retries without a pause")
}

// With a low limit of open files from the start, maxclients is lowered, and the log says so.
func TestFewFiles(t *testing.T) {
	const files, most = 100, 36 // 64 are the server's own
	port := peer.FreePort(t)
	own := peer.Command("--port", strconv.Itoa(port), "--maxclients", "1000")
	server := peer.Launch(t,
		exec.Command("sh", append([]string{"-c", "ulimit -n 100; exec \"$@\"", "sh"}, own.Args...)...))
	until(t, func() bool { return strings.Contains(server.Log(), peer.Ready) }, server.Stderr)
	server.Addr, server.Port = net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), port
	until(t, func() bool { return strings.Contains(server.Stderr(), "maxclients was lowered") },
		server.Stderr) // from the other end of the pipe
	w := watch(t, server)
	assert.Equal(t, map[string]string{"maxclients": strconv.Itoa(most)}, w.ConfigGet(w.ctx, "maxclients").Val())
	for range most - 1 {
		conn := connect(t, server)
		write(t, conn, Command("PING"))
		reads(t, conn, "+PONG\r\n")
	}
	for range 2 * files {
		ends(t, connect(t, server), refusal(server))
	}
	assert.Less(t, w.files(), files)
	server.Signal(syscall.SIGTERM)
	assert.Zero(t, server.Wait())
	assert.NotContains(t, server.Stderr(), "too many open files")
}

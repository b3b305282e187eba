package hostile

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// startLogging starts a server that may log warnings, because the tests of this package cause them
// on purpose. A report of the race detector still fails the test.
func startLogging(t *testing.T, args ...string) *peer.Server {
	t.Helper()
	return peer.Start(t, append([]string{"--loglevel", "nothing"}, args...)...)
}

// watcher is a well-behaved client with one connection, which observes the server.
type watcher struct {
	*redis.Client
	t   *testing.T
	ctx context.Context
	pid string
}

func watch(t *testing.T, server *peer.Server) *watcher {
	t.Helper()
	w := &watcher{t: t, ctx: t.Context(), Client: peer.Client(&redis.Options{
		Addr: server.Addr, TLSConfig: server.TLS, PoolSize: 1, MaxRetries: -1, ReadTimeout: patience, WriteTimeout: patience,
	})}
	t.Cleanup(func() { w.Close() })
	w.pid = w.field("process_id")
	return w
}

// watchAlone is watch, and waits until the watcher is the only client: see filesAtRest.
func watchAlone(t *testing.T, server *peer.Server) *watcher {
	t.Helper()
	w := watch(t, server)
	w.becomes("connected_clients", 1)
	return w
}

// field returns the value of a line of INFO.
func (w *watcher) field(name string) string {
	w.t.Helper()
	text, err := w.Info(w.ctx).Result()
	require.NoError(w.t, err, "another client was not served")
	_, rest, found := strings.Cut(text, "\r\n"+name+":")
	require.True(w.t, found, name)
	value, _, _ := strings.Cut(rest, "\r\n")
	return value
}

func (w *watcher) number(name string) int {
	n, err := strconv.Atoi(w.field(name))
	require.NoError(w.t, err)
	return n
}

// files counts the server's open file descriptors.
func (w *watcher) files() int {
	list, err := os.ReadDir(filepath.Join("/proc", w.pid, "fd"))
	require.NoError(w.t, err)
	return len(list)
}

// filesAtRest counts the server's open file descriptors when the watcher is the only client. The connection by
// which the test has found out that the server is ready may be open for longer than the test waits.
func (w *watcher) filesAtRest() int {
	w.t.Helper()
	w.becomes("connected_clients", 1)
	return w.files()
}

// releases waits until the server has no more descriptors open than before.
func (w *watcher) releases(before int) {
	w.t.Helper()
	until(w.t, func() bool { return w.files() <= before }, func() string {
		return fmt.Sprint(w.files(), " files, before ", before)
	})
}

// becomes waits until a field of INFO has a value.
func (w *watcher) becomes(name string, want int) {
	w.t.Helper()
	got := 0
	until(w.t, func() bool { got = w.number(name); return got == want }, func() string {
		return fmt.Sprintf("%s becomes %d, it is %d", name, want, got)
	})
}

// until waits until a condition is true.
func until(t *testing.T, holds func() bool, what func() string) {
	t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(soon); !holds(); <-ticker.C {
		require.True(t, time.Now().Before(end), "waited %s: %s", soon, what())
	}
}

// soon is the longest wait for what the server does by itself.
const soon = time.Minute

// connect is dial for tests.
func connect(t *testing.T, server *peer.Server) *peer.Conn {
	t.Helper()
	conn, err := dial(server.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// write sends bytes. A test on a busy machine may use a connection for longer than patience, so each step on it has a
// deadline of its own.
func write(t *testing.T, conn net.Conn, b []byte) {
	t.Helper()
	renew(t, conn)
	_, err := conn.Write(b)
	require.NoError(t, err)
}

// renew sets the deadline for the next step on a connection.
func renew(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
}

// reads expects exactly these bytes next.
func reads(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	renew(t, conn)
	got := make([]byte, len(want))
	_, err := io.ReadFull(conn, got)
	require.NoError(t, err)
	require.Equal(t, shorten(want), shorten(string(got)))
}

// ends expects exactly these bytes, and then that the server closes the connection.
func ends(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	renew(t, conn)
	got, err := io.ReadAll(conn)
	require.NoError(t, unlessReset(err), "the connection is still open")
	require.Equal(t, want, string(got))
}

func shorten(s string) string {
	if len(s) > 200 {
		return s[:100] + "..." + s[len(s)-100:]
	}
	return s
}

// bulk returns a reply of this many bytes x.
func bulk(n int) string { return "$" + strconv.Itoa(n) + "\r\n" + strings.Repeat("x", n) + "\r\n" }

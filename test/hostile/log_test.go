package hostile

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// pipe returns a pipe for the server's log. If its reader is gone, writes fail; otherwise the pipe
// is full, and writes block.
func pipe(t *testing.T, gone bool) (reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { reader.Close(); writer.Close() })
	if gone {
		reader.Close()
		return reader, writer
	}
	fd := int(writer.Fd())
	require.NoError(t, syscall.SetNonblock(fd, true))
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 4096))
	}
	require.Equal(t, syscall.EAGAIN, err)
	require.NoError(t, syscall.SetNonblock(fd, false))
	return reader, writer
}

// speakHTTP makes clients speak HTTP. They are disconnected, and the log says so, once a second.
func speakHTTP(t *testing.T, server *peer.Server, n int) {
	t.Helper()
	for range n {
		conn := connect(t, server)
		write(t, conn, []byte("POST / HTTP/1.1\r\n\r\n"))
		ends(t, conn, "")
		conn.Close()
	}
}

// A log that is not read, or whose reader is gone, blocks no client and does not end the server.
func TestLogWithoutAReader(t *testing.T) {
	for name, gone := range map[string]bool{"gone": true, "stalled": false} {
		t.Run(name, func(t *testing.T) {
			_, stderr := pipe(t, gone)
			server := peer.StartLogging(t, stderr, "--loglevel", "debug")
			w := watch(t, server)
			for range 5 {
				speakHTTP(t, server, 20)
				require.NoError(t, w.Ping(w.ctx).Err())
			}
			server.Signal(syscall.SIGTERM)
			assert.Zero(t, server.Wait())
		})
	}
}

// When the reader continues, the log says how many lines were lost, in its own format.
func TestLogContinues(t *testing.T) {
	reader, stderr := pipe(t, false)
	server := peer.StartLogging(t, stderr, "--log-format", "json", "--enable-debug-command", "yes")
	w := watch(t, server)
	const lines = 20_000
	pipeline := w.Pipeline()
	for range lines {
		pipeline.Do(w.ctx, "DEBUG", "LOG", "line\r\n\"\xff\x00")
	}
	_, err := pipeline.Exec(w.ctx)
	require.NoError(t, err)

	log := bufio.NewReader(reader)
	_, err = log.Discard(64 << 10) // the bytes that filled the pipe
	require.NoError(t, err)
	seen, lost := 0, 0
	for lost == 0 {
		line, err := log.ReadString('\n')
		require.NoError(t, err)
		var entry struct {
			Msg   string
			Lines int
		}
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		if lost = entry.Lines; lost == 0 {
			require.Equal(t, "DEBUG LOG: line\r\n\"\ufffd\x00", entry.Msg)
			seen++
		}
	}
	assert.Equal(t, lines, seen+lost)
	server.Signal(syscall.SIGTERM)
	assert.Zero(t, server.Wait())
}

// A flood of clients that speak HTTP is logged in a line or two, with a count.
func TestLogOfAFloodIsShort(t *testing.T) {
	reader, stderr, err := os.Pipe()
	require.NoError(t, err)
	server := peer.StartLogging(t, stderr)
	stderr.Close()
	w := watch(t, server)
	before := w.number("uptime_in_seconds")
	speakHTTP(t, server, 300)
	seconds := w.number("uptime_in_seconds") - before
	server.Signal(syscall.SIGTERM)
	require.Zero(t, server.Wait())
	said, err := io.ReadAll(reader)
	require.NoError(t, err)
	assert.Positive(t, strings.Count(string(said), "speaks HTTP"))
	assert.LessOrEqual(t, strings.Count(string(said), "\n"), seconds+2, "%s", said)
}

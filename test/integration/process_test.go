package integration

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// The log has one line for each kind of listener that is ready. Testcontainers waits for this line, including its
// asterisk.
func TestReadyIsPrintedOncePerKindOfListener(t *testing.T) {
	tcp, unix := "* Ready to accept connections tcp", "* Ready to accept connections unix"
	if os.Getenv(peer.OverTLS) == "yes" {
		tcp = "* Ready to accept connections tls"
	}
	assert.Equal(t, []string{tcp}, readyLines(t, "--bind", "127.0.0.1"))
	assert.Equal(t, []string{tcp, unix},
		readyLines(t, "--bind", "127.0.0.1", "--unixsocket", filepath.Join(t.TempDir(), "s")))
	assert.Equal(t, []string{tcp}, readyLines(t), "by default, with IPv4 and IPv6")
	assert.Empty(t, readyLines(t, "--loglevel", "nothing"))
}

// readyLine matches the log's line about a listener that is ready.
var readyLine = regexp.MustCompile(`(?m)^time=\S+ level=INFO msg="(.*Ready.*)"$`)

// readyLines runs a server, and returns its log's lines about listeners that are ready. The server prints nothing
// but its log, on standard error.
func readyLines(t *testing.T, args ...string) (lines []string) {
	server := peer.Start(t, args...)
	server.Signal(syscall.SIGTERM)
	assert.Zero(t, server.Wait())
	assert.Empty(t, server.Stderr())
	assert.Empty(t, server.Stdout())
	for _, line := range readyLine.FindAllStringSubmatch(server.Log(), -1) {
		lines = append(lines, line[1])
	}
	return lines
}

func TestSignalEndsTheServerAndItsConnections(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		path := filepath.Join(t.TempDir(), "s")
		server := peer.Start(t, "--unixsocket", path)
		busy, idle := dial(t, server), dial(t, server)
		for _, conn := range []net.Conn{busy, idle} {
			_, err := conn.Write([]byte("PING\r\n"))
			require.NoError(t, err)
			_, err = io.ReadFull(conn, make([]byte, len("+PONG\r\n")))
			require.NoError(t, err)
		}
		_, err := busy.Write([]byte("*2\r\n$4\r\nEC")) // an incomplete call
		require.NoError(t, err)
		server.Signal(signal)
		assert.Zero(t, server.Wait(), signal)
		assert.Empty(t, server.Stderr())
		_, err = idle.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
		_, err = busy.Read(make([]byte, 1))
		assert.Error(t, err)
		assert.NotErrorIs(t, err, net.ErrClosed)
		_, err = net.Dial("tcp", server.Addr)
		assert.Error(t, err)
		assert.NoFileExists(t, path)
	}
}

func TestTakenPortIsNamed(t *testing.T) {
	first := peer.Start(t)
	says := refusesToStart(t, "--port", strconv.Itoa(first.Port))
	assert.Contains(t, says, first.Addr)
	assert.Contains(t, says, "address already in use")
	assert.Equal(t, "+PONG\r\n", exchange(t, first, command("PING")))
}

func TestWrongOptionsAreNamed(t *testing.T) {
	for args, want := range map[string]string{
		"--port 70000":     "cellserver: invalid argument \"70000\" for \"--port\" flag: it must be a number from 0 to 65535\n",
		"--nosuch":         "cellserver: unknown option --nosuch; --help lists the options\n",
		"6379":             "cellserver: unexpected argument \"6379\": options start with --; see --help\n",
		"--databases zero": "cellserver: invalid argument \"zero\" for \"--databases\" flag: it must be a number from 1 to 1024\n",
	} {
		server := peer.Launch(t, peer.Command(strings.Fields(args)...))
		assert.Equal(t, 1, server.Wait(), args)
		assert.Equal(t, want, server.Stderr())
		assert.Empty(t, server.Stdout())
	}
}

func TestVersion(t *testing.T) {
	server := peer.Launch(t, peer.Command("--version"))
	assert.Zero(t, server.Wait())
	assert.Regexp(t, `^cellserver `+peer.Version+`\ntime zones 20\d\d[a-z]+\n$`, server.Stdout())
}

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// refusesToStart starts a server that must fail, and returns the one line that says why.
func refusesToStart(t *testing.T, args ...string) string {
	t.Helper()
	server := peer.Launch(t, peer.Command(args...))
	assert.Equal(t, 1, server.Wait(), args)
	assert.Empty(t, server.Stdout())
	says := server.Stderr()
	assert.Equal(t, 1, strings.Count(says, "\n"), says)
	return says
}

// A socket that an ended server has left behind is replaced. A socket on which a process listens,
// or another kind of file, is refused and left alone.
func TestUnixSocketPaths(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	require.FileExists(t, path)
	first := peer.Start(t, "--unixsocket", path, "--unixsocketperm", "700")
	require.Eventually(t, func() bool { return strings.Contains(first.Log(), peer.Ready+" unix") }, patience,
		time.Millisecond)
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())

	assert.Contains(t, refusesToStart(t, "--port", "0", "--unixsocket", path), "another process listens on it")
	conn, err := net.Dial("unix", path)
	require.NoError(t, err, "the first server still listens there")
	conn.Close()

	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	assert.Contains(t, refusesToStart(t, "--port", "0", "--unixsocket", file), "the file is not a socket")
	assert.FileExists(t, file)
	assert.Contains(t, refusesToStart(t, "--port", "0", "--unixsocket", filepath.Join(dir, "nosuch", "x")),
		"no such file or directory")
	assert.Contains(t, refusesToStart(t, "--port", "0"), "no listeners")
	assert.Contains(t, refusesToStart(t, "--policies-prefix", "{}"), "--policies-prefix: the prefix may not contain {")
	assert.Contains(t, refusesToStart(t, "--port", strconv.Itoa(peer.FreePort(t)), "--bind", "192.0.2.1"),
		"this machine does not have that address")
	assert.Contains(t, refusesToStart(t, "--port", "0", "--unixsocket", path+"2", "--logfile",
		filepath.Join(dir, "nosuch", "log")), "--logfile chooses another file")
}

// The log goes to the file, in JSON, from the first line to the last. After SIGHUP, it goes to a new
// file with the same name.
func TestLogFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	server := peer.Launch(t, peer.Command("--logfile", file, "--log-format", "json", "--port",
		strconv.Itoa(peer.FreePort(t)), "--bind", "127.0.0.1"))
	rotated := file + ".1"
	untilContains(t, file, "* Ready to accept connections tcp")
	require.NoError(t, os.Rename(file, rotated))
	server.Signal(syscall.SIGHUP)
	untilContains(t, file, "the log file was opened again")
	server.Signal(os.Interrupt)
	require.Zero(t, server.Wait())
	assert.Empty(t, server.Log()+server.Stdout())
	assert.Equal(t, []string{"cellserver starts", "listening", "* Ready to accept connections tcp"},
		jsonMessages(t, rotated))
	assert.Equal(t, []string{"SIGHUP: the log file was opened again", "shutting down: draining clients", "stopped"},
		jsonMessages(t, file))
	text, err := os.ReadFile(rotated)
	require.NoError(t, err)
	assert.Regexp(t, `"version":"`+peer.Version+`","pid":\d+,.*"keys":"memory","auth":"none","tls":"off","time_zones":"20\d\d[a-z]+","maxmemory":"[^"]+"}`,
		string(text))
	assert.Regexp(t, `"address":"127.0.0.1:\d+"`, string(text))
}

// untilContains waits until a file contains a text.
func untilContains(t *testing.T, path, part string) {
	t.Helper()
	peer.Until(t, path+" contains "+part, func() bool {
		text, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(text), part)
	})
}

// jsonMessages returns the messages in a log, which must all be for information.
func jsonMessages(t *testing.T, path string) (messages []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var entry struct{ Level, Msg string }
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		assert.Equal(t, "INFO", entry.Level)
		messages = append(messages, entry.Msg)
	}
	return messages
}

// A server that every client can use logs a warning, whichever options make it so open.
func TestOpenServerIsReported(t *testing.T) {
	for args, warns := range map[string]bool{
		"--bind 0.0.0.0 --protected-mode no":                      true,
		"--bind 0.0.0.0":                                          false,
		"--bind 127.0.0.1 --protected-mode no":                    false,
		"--bind 0.0.0.0 --protected-mode no --requirepass secret": false,
	} {
		log := filepath.Join(t.TempDir(), "log")
		words := append(strings.Fields(args), "--port", strconv.Itoa(peer.FreePort(t)), "--logfile", log)
		server := peer.Launch(t, peer.Command(words...))
		untilContains(t, log, "Ready to accept connections")
		server.Signal(syscall.SIGTERM)
		require.Zero(t, server.Wait())
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		assert.Equal(t, warns, strings.Contains(string(text), "any client that can reach this address"), args)
	}
}

// --help prints the options to standard output, with exit status 0.
func TestHelp(t *testing.T) {
	server := peer.Launch(t, peer.Command("--help"))
	assert.Zero(t, server.Wait())
	assert.Empty(t, server.Stderr())
	for _, part := range []string{"Usage:", "--port number", "default 6379)", "CELLSERVER_TCP_BACKLOG", "Examples:",
		"cellserver cli"} {
		assert.Contains(t, server.Stdout(), part)
	}
}

// When the server is told to stop, or a client sends QUIT, replies that are being sent arrive
// whole, and calls that were received meanwhile are answered too.
func TestTheLastRepliesArriveWhole(t *testing.T) {
	const keys = 20_000
	for _, ending := range []string{"SIGTERM", "QUIT"} {
		t.Run(ending, func(t *testing.T) {
			server := peer.Start(t, "--shutdown-timeout", "3600")
			fill := bytes.Buffer{}
			for i := range keys {
				fill.Write(command("CL.THROTTLE", fmt.Sprintf("%0400d", i), "15", "1", "1000000"))
			}
			exchange(t, server, fill.Bytes())

			conn := dial(t, server)
			require.NoError(t, conn.SetReadBuffer(256<<10))
			r := bufio.NewReader(conn)
			ask := command("KEYS", "*")
			if ending == "QUIT" {
				ask = append(ask, command("QUIT")...)
			}
			_, err := conn.Write(ask)
			require.NoError(t, err)
			start, err := r.Peek(8) // the reply has begun, and is longer than sockets hold
			require.NoError(t, err)
			require.Equal(t, "*20000\r\n", string(start))
			_, err = conn.Write(bytes.Repeat(command("PING"), 3))
			require.NoError(t, err)
			last := strings.Repeat("+PONG\r\n", 3)
			if ending == "QUIT" {
				last = "+OK\r\n" // after QUIT, no later call is answered
			} else {
				server.Signal(os.Interrupt)
			}
			all, err := io.ReadAll(r)
			require.NoError(t, err)
			require.Len(t, all, len("*20000\r\n")+keys*len("$400\r\n"+strings.Repeat("0", 400)+"\r\n")+len(last))
			require.True(t, bytes.HasSuffix(all, []byte(last)))
			if ending == "SIGTERM" {
				require.Zero(t, server.Wait())
			}
		})
	}
}

// An idle client neither sends nor reads. A client that waits for a long reply, or reads it slowly, is not idle. If
// the server disconnects a client that has read nothing for more than a second, because the machine is busy, the
// test tries again.
func TestReadingClientIsNotIdle(t *testing.T) {
	server := peer.Start(t, "--timeout", "2") // the whole reply takes twice as long
	fill := bytes.Buffer{}
	for i := range 3000 {
		fill.Write(command("CL.THROTTLE", fmt.Sprintf("%04000d", i), "15", "1", "1000000"))
	}
	exchange(t, server, fill.Bytes())
	whole := len("*3000\r\n") + 3000*(len("$4000\r\n\r\n")+4000)
	for tries := 1; ; tries++ {
		longest, err := readSlowly(t, server, whole)
		if err == nil {
			return
		}
		require.Greater(t, longest, time.Second, err)
		require.Less(t, tries, 10, err)
	}
}

// readSlowly asks for the names of all keys and reads the reply in a few seconds. It returns the longest time from one
// piece to the next.
func readSlowly(t *testing.T, server *peer.Server, whole int) (longest time.Duration, err error) {
	conn := dial(t, server)
	defer conn.Close()
	require.NoError(t, conn.SetReadBuffer(256<<10))
	_, err = conn.Write(command("KEYS", "*"))
	require.NoError(t, err)
	ticker := time.NewTicker(30 * time.Millisecond)
	defer ticker.Stop()
	piece, last := make([]byte, 96<<10), time.Now()
	for read := 0; read < whole; <-ticker.C {
		n, err := io.ReadFull(conn, piece[:min(len(piece), whole-read)])
		read += n
		longest, last = max(longest, time.Since(last)), time.Now()
		if err != nil {
			return longest, fmt.Errorf("after %d of %d bytes: %w", read, whole, err)
		}
	}
	return longest, nil
}

// When the disk is full, log lines are lost, and nothing else happens.
func TestFullDisk(t *testing.T) {
	stderr, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer stderr.Close()
	server := peer.StartLogging(t, stderr, "--loglevel", "debug")
	conn := dial(t, server)
	_, err = conn.Write([]byte("*1\r\n$x\r\n")) // a protocol error, which is logged
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Equal(t, "-ERR Protocol error: invalid bulk length\r\n", string(all))
	assert.Equal(t, "+OK\r\n$1\r\n1\r\n", exchange(t, server, append(command("SET", "a", "1"), command("GET", "a")...)))
}

// A file of users that does not exist is refused as in Redis, with what to do about it.
func TestMissingACLFile(t *testing.T) {
	says := refusesToStart(t, "--port", "0", "--aclfile", filepath.Join(t.TempDir(), "users.acl"))
	assert.Contains(t, says, "no such file or directory; create the file")
}

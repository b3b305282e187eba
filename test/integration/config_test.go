package integration

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// debianConfig is the configuration file of Debian's package redis-server.
const debianConfig = "/etc/redis/redis.conf"

// writeConfig writes a configuration file.
func writeConfig(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "cellserver.conf")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// settings returns CONFIG GET * of a server, by name, without the port, which the tests choose.
func settings(t *testing.T, server *peer.Server) map[string]string {
	t.Helper()
	words, is := peer.Ask(t, server.Addr, "CONFIG", "GET", "*").([]any)
	require.True(t, is)
	found := make(map[string]string)
	for pair := range slices.Chunk(words, 2) {
		found[pair[0].(string)] = pair[1].(string)
	}
	delete(found, "port")
	return found
}

// launchWith starts a server whose file makes it listen only on a Unix socket. It returns a client, and a
// function that ends the server. The client is nil if the server has ended by itself.
func launchWith(t *testing.T, cmd *exec.Cmd, socket, password string) (*redis.Client, func()) {
	t.Helper()
	server := peer.Launch(t, cmd)
	client := peer.Client(&redis.Options{Network: "unix", Addr: socket, Password: password, Protocol: 2,
		DisableIdentity: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { client.Close() })
	listens := false
	peer.Until(t, "the server listens, or has ended", func() bool {
		conn, err := net.Dial("unix", socket)
		if listens = err == nil; listens {
			conn.Close()
		}
		return listens || cmd.Process.Signal(syscall.Signal(0)) != nil
	})
	if !listens {
		return nil, nil
	}
	return client, func() {
		server.Signal(syscall.SIGTERM)
		require.Zero(t, server.Wait(), server.Stderr())
	}
}

// allSettings returns CONFIG GET *.
func allSettings(t *testing.T, client *redis.Client) map[string]string {
	t.Helper()
	found, err := client.ConfigGet(t.Context(), "*").Result()
	require.NoError(t, err)
	return found
}

// The configuration file of Debian's redis-server starts a cellserver. CONFIG REWRITE keeps the comments of the
// file. The rewritten file gives the same settings when it starts a cellserver or a real redis-server.
func TestDebiansConfigurationStarts(t *testing.T) {
	const password = `it's "x" #`
	text, err := os.ReadFile(debianConfig)
	require.NoError(t, err, "it is part of the package redis-server")
	path, dir := writeConfig(t, string(text)), t.TempDir()
	socket := filepath.Join(dir, "s")
	first, stop := launchWith(t, peer.Command("--config", path, "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--logfile", ""), socket, "")
	require.NoError(t, first.Do(t.Context(), "CONFIG", "SET", "maxmemory", "100mb", "slowlog-max-len", "7").Err())
	require.NoError(t, first.Do(t.Context(), "ACL", "SETUSER", "bob", "on", ">secret", "~b:*", "+get").Err())
	require.NoError(t, first.ConfigSet(t.Context(), "requirepass", password).Err())
	require.NoError(t, first.ConfigRewrite(t.Context()).Err())
	want, users := allSettings(t, first), first.ACLList(t.Context()).Val()
	assert.Equal(t, "yes", want["appendonly"])
	stop()
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	rewritten, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, strings.Count(string(text), "\n#")+1, strings.Count(string(rewritten), "\n#"), "the comments")

	second, stop := launchWith(t, peer.Command("--config", path), socket, password)
	assert.Equal(t, want, allSettings(t, second))
	assert.Equal(t, users, second.ACLList(t.Context()).Val())
	stop()
	if os.Getenv("CELLSERVER_TRANSPORT")+os.Getenv("CELLSERVER_TEST_TLS") != "" {
		return // CONFIG REWRITE has also written settings that redis-server does not know
	}
	other, stop := launchWith(t, exec.Command("redis-server", path, "--daemonize", "no", "--save", "", "--pidfile", ""),
		socket, password)
	of := allSettings(t, other)
	for _, name := range []string{"maxmemory", "slowlog-max-len", "requirepass", "client-output-buffer-limit", "bind"} {
		assert.Equal(t, want[name], of[name], name)
	}
	stop()
}

// Every setting of a real redis-server is accepted in a file, with the value that it has by default.
func TestEverySettingOfRedisIsKnown(t *testing.T) {
	found := settings(t, peer.StartRedis(t))
	require.Greater(t, len(found), 150)
	var lines strings.Builder
	for name, value := range found {
		if name != "dir" && name != "logfile" {
			fmt.Fprintf(&lines, "%s %q\n", name, value)
		}
	}
	server := peer.StartPlain(t, "--config", writeConfig(t, lines.String()))
	assert.Equal(t, found["maxclients"], settings(t, server)["maxclients"])
}

// The server splits a file into words as a real redis-server does, and both refuse the same lines.
func TestQuotesAreThoseOfRedis(t *testing.T) {
	for _, line := range []string{
		`dbfilename "a b"`, `dbfilename 'a "b'`, `dbfilename "\x41\t\\\"\q"`, `dbfilename 'it\'s\x41'`,
		`dbfilename a"b c"`, "\tdbfilename\t a#b \t", `DBFILENAME 'ä'`, `dbfilename "a`, `dbfilename "a"b`,
		`dbfilename`, `dbfilename a b`,
	} {
		socket := filepath.Join(t.TempDir(), "s")
		path := writeConfig(t, "port 0\nunixsocket "+socket+"\n"+line+"\n")
		name := fileNameOf(t, peer.Command("--config", path), socket)
		assert.Equal(t, fileNameOf(t, exec.Command("redis-server", path, "--save", ""), socket), name, line)
	}
}

// fileNameOf returns a server's setting dbfilename, or "" if the server refuses to start.
func fileNameOf(t *testing.T, cmd *exec.Cmd, socket string) string {
	t.Helper()
	client, stop := launchWith(t, cmd, socket, "")
	if client == nil {
		return ""
	}
	defer stop()
	return client.ConfigGet(t.Context(), "dbfilename").Val()["dbfilename"]
}

// The server refuses settings that it cannot keep. The error names the line, and says what to do.
func TestPromisesThatCannotBeKeptAreRefused(t *testing.T) {
	for line, says := range map[string]string{
		"appendonly yes": ":2: appendonly yes: there is no folder for the journal; name one with --dir",
		"replicaof x 1":  ":2: replicaof: there is no replication: leave it out; several servers share their limits",
		"prot 7000":      ":2: prot: unknown directive; did you mean port?",
	} {
		path := writeConfig(t, "port 0\n"+line+"\n")
		assert.Contains(t, refusesToStart(t, "--config", path), path+says)
	}
	assert.Contains(t, refusesToStart(t, "x.conf"), "a configuration file is given as --config x.conf")
}

// CONFIG REWRITE says why it cannot replace a file, and leaves the file as it is.
func TestRewriteSaysWhyItCannot(t *testing.T) {
	server := peer.Start(t)
	assert.Equal(t, "-ERR The server is running without a config file\r\n",
		exchange(t, server, command("CONFIG", "REWRITE")))
	path := writeConfig(t, "timeout 7\n")
	server = peer.StartLogging(t, devNull(t), "--config", path)
	assert.Contains(t, exchange(t, server, command("MULTI"), command("CONFIG", "REWRITE"), command("EXEC")),
		"CONFIG REWRITE is not allowed inside a transaction")
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700))
	assert.Contains(t, exchange(t, server, command("CONFIG", "REWRITE")), "-ERR Rewriting config file: read "+path)
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	file, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	return file
}

// cellserver cli shows the usage of a command as the server describes it, for a cellserver and for a real
// redis-server.
func TestClientHelp(t *testing.T) {
	own, redis := peer.StartPlain(t), peer.StartRedis(t)
	for _, c := range []struct {
		server     *peer.Server
		args, says string
	}{
		{own, "help CL.THROTTLE", "CL.THROTTLE key max_burst count_per_period period [quantity] "},
		{own, "help config set", "CONFIG SET parameter value [parameter value ...]\nChanges settings"},
		{own, "help nosuch", "NOSUCH: the server has no such command"},
		{own, "help", "help COMMAND "},
		{redis, "help expire", "EXPIRE key seconds [NX | XX | GT | LT]\nSet a key's time to live in seconds\n"},
		{redis, "help mset", "MSET key value [key value ...]\n"},
		{own, "-a bad PING", "PONG\n"},
	} {
		args := append([]string{"cli", "-p", strconv.Itoa(c.server.Port)}, strings.Fields(c.args)...)
		client := peer.Launch(t, peer.Command(args...))
		assert.Zero(t, client.Wait(), client.Stderr())
		assert.Contains(t, client.Stdout(), c.says)
		assert.Equal(t, strings.Contains(c.args, "bad"), strings.Contains(client.Stderr(), "the server needs no password"))
	}
}

// Package cli tests cellserver cli: compared with redis-cli, against both servers; on a terminal;
// and against servers that fail.
package cli

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

func TestMain(m *testing.M) { peer.Main(m) }

// patience is the timeout of every wait. It is long because a test machine may be busy.
const patience = 60 * time.Second

// outcome is a program's output and exit status.
type outcome struct {
	stdout, stderr string
	status         int
}

// environment returns an environment without passwords and with an empty home directory. It also
// removes the second for which a program with the race detector sleeps before it exits.
func environment(t *testing.T) []string {
	inherited := slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return strings.HasPrefix(entry, "REDISCLI_") || strings.HasPrefix(entry, "CELLSERVER_")
	})
	return append(inherited, "GORACE=atexit_sleep_ms=0", "HOME="+t.TempDir())
}

func run(t *testing.T, cmd *exec.Cmd, stdin string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if cmd.Env == nil {
		cmd.Env = environment(t)
	}
	require.NoError(t, cmd.Start())
	tooLate := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait() // ProcessState has the exit status
	require.True(t, tooLate.Stop(), "%v does not end", cmd.Args)
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// ours is cellserver cli.
func ours(args ...string) *exec.Cmd {
	cmd := peer.Command(append([]string{"cli"}, args...)...)
	cmd.Env = nil // run sets it
	return cmd
}

// theirs is redis-cli. If it is not installed, the test fails: a skipped comparison must not look
// like a successful one.
func theirs(t *testing.T, args ...string) *exec.Cmd {
	path, err := exec.LookPath("redis-cli")
	require.NoError(t, err, "this test compares with a real redis-cli (7.0.15): install it")
	return exec.Command(path, args...)
}

// modes are the output formats with each version of the protocol.
var modes = [][]string{{}, {"-3"}, {"--no-raw"}, {"--no-raw", "-3"}, {"--json"}, {"--json", "-2"}}

// compare runs a call with both clients, in all modes, and expects the same bytes.
func compare(t *testing.T, server *peer.Server, call ...string) {
	t.Helper()
	for _, mode := range modes {
		args := append(append([]string{"-p", strconv.Itoa(server.Port)}, mode...), call...)
		want, got := run(t, theirs(t, args...), ""), run(t, ours(args...), "")
		require.Zero(t, want.status, want.stderr)
		assert.Equal(t, want.stdout, got.stdout, "%q", args)
		assert.Empty(t, got.stderr, "%q", args)
	}
}

func TestPrintsAsRedisCLIDoes(t *testing.T) {
	server := peer.Start(t)
	for _, call := range []string{
		"PING", "ECHO", "CL.THROTTLE user123 15 30 60 1 PEEK", "cl.throttle user123 15 30 60 3 PEEK UPTO",
		"CL.THROTTLE user123 -1 30 60", "CL.INSPECT nosuch", "EXISTS a b", "GET nosuch", "TYPE nosuch", "SCAN 0", "KEYS *",
		"COMMAND INFO GET nosuch PING", "COMMAND DOCS CL.THROTTLE CLIENT", "COMMAND COUNT", "COMMAND LIST", "COMMAND",
		"CLIENT HELP",
		"CLIENT LIST ID 99999", "INFO cluster", "INFO nosuch", "CONFIG GET *", "HELLO 4", "SELECT 3", "SELECT 99", "RESET",
		"QUIT",
		"NOSUCH a",
	} {
		compare(t, server, strings.Fields(call)...)
	}
	compare(t, server, "ECHO", "")
	compare(t, server, "ECHO", "a \"b\"\\ \x01\xff\r\n\t\a\b'é")
	compare(t, server, "NOSUCH", "a\nb")
}

// Some types of replies come only from Redis. (The test does not ask for COMMAND DOCS of all
// commands: Redis walks its tables while they grow, so two calls may list subcommands in different
// orders.)
func TestPrintsOtherRepliesAsRedisCLIDoes(t *testing.T) {
	server := peer.StartRedis(t)
	for _, call := range []string{"PING", "LOLWUT", "MEMORY DOCTOR", "LATENCY DOCTOR",
		"COMMAND DOCS SET EXPIRE XADD GEOADD BITFIELD", "XINFO HELP", "ACL GETUSER default"} {
		compare(t, server, strings.Fields(call)...)
	}
	for _, script := range []string{
		"return {map={a={map={}},b={1,2},c={},d={set={}},e={map={f={map={g=1}}}}}}",
		"return {map={a={{1,2}}}}", "return {map={a={map={b={1,2}}}}}", "return {map={[{map={x={1,2}}}]=1}}",
		"return {map={a={map={[{1,2}]=1}}}}", "return {map={[1]={set={x=true}}}}", "return {set={[{1,2}]=true}}",
		"return {double=3.14}", "return {double=1e300}", "return {double=-1/0}", "return {true,false,1,'x'}",
		"return {verbatim_string={string='hello\\nyou',format='txt'}}",
		"return {{},{{}},{1,{2,{3,'4\\n5'}}},1,2,3,4,5,6,7,8}",
		"return {redis.status_reply('fine'), redis.error_reply('BAD thing'), 'x'}",
	} {
		compare(t, server, "EVAL", "redis.setresp(3); "+script, "0")
	}
}

const commandLines = "PING\r\nSELECT 3\n\n \t\nCL.THROTTLE \"a key\" 15 30 60 1 PEEK\nECHO \"\\x41\\n'\"\nNOSUCH\n*1\nECHO '*1'\nexit\nPING\n"

// Without a command, each line of stdin is a command.
func TestCommandsFromStdin(t *testing.T) {
	server := peer.Start(t)
	port := strconv.Itoa(server.Port)
	for _, mode := range modes {
		args := append([]string{"-p", port}, mode...)
		want, got := run(t, theirs(t, args...), commandLines), run(t, ours(args...), commandLines)
		assert.Equal(t, want.stdout, got.stdout, "%q", args)
		assert.Empty(t, got.stderr)
		assert.Equal(t, 1, got.status, "there was an error")
	}
	assert.Equal(t, outcome{stdout: "PONG\na\n"}, run(t, ours("-p", port), "PING\nECHO a"))
	assert.Equal(t, outcome{}, run(t, ours("-p", port), ""))
	got := run(t, ours("-p", port), "PING 'a\nPING\n")
	assert.Equal(t, "PONG\n", got.stdout)
	assert.Equal(t, 1, got.status)
	assert.Contains(t, got.stderr, "cellserver cli: unbalanced quotes")
}

func TestExitStatus(t *testing.T) {
	server := peer.Start(t)
	port := strconv.Itoa(server.Port)
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, ours("-p", port, "PING"), ""))
	assert.Equal(t, outcome{stdout: "0\n2\n1\n-1\n1\n"},
		run(t, ours("-p", port, "CL.THROTTLE", "k", "1", "1", "1", "1"), ""))
	assert.Equal(t, 1, run(t, ours("-p", port, "CL.THROTTLE", "k"), "").status)
	inContainer := ours("PING")
	inContainer.Env = append(environment(t), "CELLSERVER_PORT="+port)
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, inContainer, ""))
	assert.Equal(t, outcome{stdout: "\n"}, run(t, ours("-p", port, "GET", "nosuch"), ""), "nil is no error")
	help := run(t, ours("--help"), "")
	assert.Zero(t, help.status)
	assert.Contains(t, help.stdout, "cellserver cli -h limits.internal -p 7000 CL.THROTTLE user123 15 30 60 1\n")
	mistake := run(t, ours("--nosuch"), "")
	assert.Equal(t, outcome{stderr: "cellserver cli: unknown flag: --nosuch; see cellserver cli --help\n", status: 1},
		mistake)
}

func TestUnixSocketAndDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	server := peer.Start(t, "--unixsocket", path)
	limited := run(t, ours("-s", path, "-n", "3", "CL.THROTTLE", "k", "1", "1", "1000"), "")
	assert.Equal(t, outcome{stdout: "0\n2\n1\n-1\n1000\n"}, limited)
	port := strconv.Itoa(server.Port)
	assert.Equal(t, outcome{stdout: "1\n"}, run(t, ours("-p", port, "-n", "3", "EXISTS", "k"), ""))
	assert.Equal(t, outcome{stdout: "0\n"}, run(t, ours("-p", port, "EXISTS", "k"), ""))
	refused := run(t, ours("-p", port, "-n", "99", "PING"), "")
	assert.Equal(t, outcome{status: 1, stderr: "cellserver cli: " + server.Addr +
		" refuses: ERR DB index is out of range. -a gives a password, -n a database\n"}, refused)
}

func TestPassword(t *testing.T) {
	server := peer.StartRedis(t)
	port := strconv.Itoa(server.Port)
	require.Zero(t, run(t, ours("-p", port, "CONFIG", "SET", "requirepass", "secret"), "").status)
	got := run(t, ours("-p", port, "PING"), "")
	assert.Equal(t, outcome{stdout: "NOAUTH Authentication required.\n\n", status: 1}, got)
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, ours("-p", port, "-a", "secret", "PING"), ""))
	fromEnvironment := ours("-p", port, "-n", "1", "PING")
	fromEnvironment.Env = append(environment(t), "REDISCLI_AUTH=secret")
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, fromEnvironment, ""))
	assert.Equal(t, outcome{stdout: "OK\nPONG\n"}, run(t, ours("-p", port), "AUTH secret\nPING\n"))
	got = run(t, ours("-p", port, "-a", "wrong", "PING"), "")
	assert.Equal(t, 1, got.status)
	assert.Empty(t, got.stdout)
	assert.Contains(t, got.stderr, "refuses: WRONGPASS")
	assert.Contains(t, got.stderr, "-a gives the password, --user the name of its user")
	counted := run(t, ours("-p", port, "-a", "secret", "INFO", "errorstats"), "").stdout
	assert.Contains(t, counted, "errorstat_WRONGPASS:count=1", "one failed login is counted once")
	assert.Equal(t, outcome{}, run(t, ours("-p", port, "-a", "secret", "SHUTDOWN", "NOSAVE"), ""))
	assert.Equal(t, 0, server.Wait())
}

func TestNoServer(t *testing.T) {
	port := strconv.Itoa(peer.FreePort(t))
	for _, stdin := range []string{"", "PING\nPING\n"} {
		args := []string{"-p", port}
		if stdin == "" {
			args = append(args, "PING")
		}
		assert.Equal(t, outcome{status: 1, stderr: "cellserver cli: cannot connect to 127.0.0.1:" + port +
			": connection refused. Is cellserver running there? -h and -p name another address, -s a Unix socket\n"},
			run(t, ours(args...), stdin))
	}
	path := filepath.Join(t.TempDir(), "s")
	assert.Equal(t, outcome{status: 1, stderr: "cellserver cli: cannot connect to " + path +
		": no such file or directory. Is cellserver running there? -s names another socket; without it, -h and -p name an address\n"},
		run(t, ours("-s", path, "PING"), ""))
}

// talk is a server that answers each line with the next of these lines, and then disconnects.
func talk(t *testing.T, lines ...string) (port string) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for _, line := range lines {
			if _, err := conn.Read(make([]byte, 4096)); err != nil {
				return
			}
			if _, err := conn.Write([]byte(line)); err != nil {
				return
			}
		}
	}()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
}

func TestServersThatFail(t *testing.T) {
	const noHello = "-ERR unknown command 'HELLO'\r\n"
	for _, c := range []struct {
		lines []string
		says  string
	}{
		{[]string{}, "closed the connection before its reply was complete"},
		{[]string{noHello}, "closed the connection before its reply was complete"},
		{[]string{noHello, "*2\r\n:1\r\n$10\r\nhalf"}, "closed the connection before its reply was complete"},
		{[]string{noHello, "$10"}, "closed the connection before its reply was complete"},
		{[]string{"HTTP/1.1 400 Bad Request\r\n\r\n"}, "does not answer in the Redis protocol"},
		{[]string{noHello, "SSH-2.0\r\n"}, "does not answer in the Redis protocol"},
		{[]string{noHello, "*1\r\n?\r\n"}, "does not answer in the Redis protocol"},
	} {
		got := run(t, ours("-p", talk(t, c.lines...), "CL.THROTTLE", "k", "1", "1", "1"), "")
		assert.Equal(t, 1, got.status, "%q", c.lines)
		assert.Empty(t, got.stdout, "%q", c.lines)
		assert.Contains(t, got.stderr, c.says, "%q", c.lines)
		assert.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
	}
	// A server that does not know HELLO works too.
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, ours("-p", talk(t, noHello, "+PONG\r\n"), "PING"), ""))
}

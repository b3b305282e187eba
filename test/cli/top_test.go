//go:build linux

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// topOf is cellserver top for a server.
func topOf(port int, args ...string) *exec.Cmd {
	cmd := peer.Command(append([]string{"top", "--interval", "100ms", "-p", strconv.Itoa(port)}, args...)...)
	cmd.Env = nil
	return cmd
}

func limitKey(t *testing.T, port int, key string) {
	for range 2 {
		out := run(t, ours("-p", strconv.Itoa(port), "CL.THROTTLE", key, "0", "1", "60"), "")
		require.Zero(t, out.status, out.stderr)
	}
}

func TestTopOnce(t *testing.T) {
	server := peer.Start(t)
	limitKey(t, server.Port, "<script>\n\x1b[2J")
	out := run(t, topOf(server.Port, "--once"), "")
	require.Zero(t, out.status, out.stderr)
	assert.Empty(t, out.stderr)
	assert.Regexp(t, `^cellserver 1\.2\.3 at 127\.0\.0\.1:\d+, up `, out.stdout)
	assert.Regexp(t, `\nCL\.THROTTLE +0 +0 +-\n`, out.stdout)
	assert.Regexp(t, `\nLIMITED MOST, in the last minute\n +1  "<script>\\n\\x1b\[2J"\n`, out.stdout)
	assert.Regexp(t, `\nASKED ABOUT MOST, in the last minute\n +2  "<script>\\n\\x1b\[2J"\n$`, out.stdout)
}

// A user without the right to see keys and policies sees the rest.
func TestTopWithFewRights(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte("policies:\n  login: {limits: [{fixed: {limit: 5, period: 1m}}], shadow: true}\n"),
		0o600))
	server := peer.Start(t, "--policies", file)
	assert.Regexp(t, `\nPOLICIES\nlogin +fixed limit 5, period 1m; shadow: true\n\nLIMITED`,
		run(t, topOf(server.Port, "--once"), "").stdout)
	port := strconv.Itoa(server.Port)
	run(t, ours("-p", port, "ACL", "SETUSER", "viewer", "on", ">secret", "+info", "+time"), "")
	out := run(t, topOf(server.Port, "--once", "--user", "viewer", "-a", "secret"), "")
	require.Zero(t, out.status, out.stderr)
	assert.Regexp(t, `\nASKED ABOUT MOST, in the last minute\nNOPERM `, out.stdout)
	assert.Regexp(t, `\nPOLICIES\nNOPERM `, out.stdout)
	run(t, ours("-p", port, "ACL", "SETUSER", "viewer", "-info"), "")
	out = run(t, topOf(server.Port, "--once", "--user", "viewer", "-a", "secret"), "")
	assert.Equal(t, 1, out.status)
	assert.Contains(t, out.stderr, "127.0.0.1:"+port+": NOPERM ")
	assert.Contains(t, out.stderr, "cellserver top needs +info, +time and +cl.top, and for the policies +cl.policy|list and")
	run(t, ours("-p", port, "CONFIG", "SET", "requirepass", "secret"), "")
	out = run(t, topOf(server.Port, "--once"), "")
	assert.Contains(t, out.stderr, "NOAUTH Authentication required. -a gives a password")
}

func TestTopWithoutTerminalOrServer(t *testing.T) {
	out := run(t, topOf(1), "")
	assert.Equal(t, 1, out.status)
	assert.Contains(t, out.stderr, "this is not a terminal: --once prints one view")
	out = run(t, topOf(peer.FreePort(t), "--once"), "")
	assert.Equal(t, 1, out.status)
	assert.Contains(t, out.stderr, "connection refused")
	out = run(t, topOf(1, "--help"), "")
	assert.Zero(t, out.status)
	assert.Contains(t, out.stdout, "--interval")
}

// The view is live, survives its server, and leaves the terminal as it was.
func TestTopLive(t *testing.T) {
	for _, key := range []string{"q", "\x03"} {
		server := peer.Start(t)
		s := onTerminal(t, topOf(server.Port))
		s.see("\x1b[?1049h")
		s.see("calls/s   -")
		limitKey(t, server.Port, "user:7")
		s.see(`1  "user:7"`)
		server.Signal(os.Interrupt)
		require.Zero(t, server.Wait())
		s.see("! no answer: ")
		second := peer.Launch(t, peer.Command("--port", strconv.Itoa(server.Port)))
		require.Eventually(t, func() bool { return strings.Contains(second.Log(), peer.Ready) }, patience, 10e6)
		limitKey(t, server.Port, "user:8")
		s.see(`1  "user:8"`)
		s.enter(key)
		s.see("\x1b[?1049l")
		assert.Zero(t, s.end())
	}
}

// The user can leave while the server does not answer.
func TestTopLeavesAStoppedServer(t *testing.T) {
	server := peer.Start(t)
	s := onTerminal(t, topOf(server.Port))
	s.see("calls/s")
	server.Signal(syscall.SIGSTOP)
	defer server.Signal(syscall.SIGCONT)
	s.enter("q")
	s.see("\x1b[?1049l")
	assert.Zero(t, s.end())
}

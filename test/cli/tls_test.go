package cli

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

func TestTLS(t *testing.T) {
	a := certs.New(t)
	own, me := a.Issue(t, "server"), a.Issue(t, "me")
	port := strconv.Itoa(peer.FreePort(t))
	plain := peer.StartPlain(t, "--tls-port", port, "--tls-cert-file", own.Cert, "--tls-key-file", own.Key,
		"--tls-ca-cert-file", a.File)
	options := []string{"-p", port, "--tls", "--cacert", a.File, "--cert", me.Cert, "--key", me.Key}
	with := func(more ...string) []string { return append(append([]string{}, options...), more...) }
	// The same options work with redis-cli and with cellserver cli.
	for _, args := range [][]string{with("PING"), with("--sni", "localhost", "CL.THROTTLE", "k", "1", "1", "1000"),
		with("--insecure", "PING")} {
		got := run(t, ours(args...), "")
		assert.Zero(t, got.status, got.stderr)
		assert.Equal(t, got.status, run(t, theirs(t, args...), "").status, args)
	}
	assert.Equal(t, outcome{stdout: "PONG\n1\n"}, run(t, ours(with("-n", "3")...), "PING\nINCR n\n"))
	fromEnvironment := ours("--tls", "--cacertdir", a.Dir, "--cert", me.Cert, "--key", me.Key, "PING")
	fromEnvironment.Env = append(environment(t), "CELLSERVER_PORT=0", "CELLSERVER_TLS_PORT="+port)
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, fromEnvironment, ""))

	// A health check finds the server that its environment configures.
	health := ours("PING")
	health.Env = append(environment(t), "CELLSERVER_PORT=0", "CELLSERVER_TLS_PORT="+port,
		"CELLSERVER_TLS_CERT_FILE="+own.Cert, "CELLSERVER_TLS_KEY_FILE="+own.Key)
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, health, ""))
	path := filepath.Join(t.TempDir(), "s")
	peer.StartPlain(t, "--unixsocket", path)
	health = ours("PING")
	health.Env = append(environment(t), "CELLSERVER_PORT=0", "CELLSERVER_TLS_PORT=1", "CELLSERVER_UNIXSOCKET="+path)
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, health, ""))

	at := "127.0.0.1:" + port
	for says, args := range map[string][]string{
		"require --tls": {"--cacert", a.File, "PING"},
		"--key is not given: set it to the path of a PEM file": {"--tls", "--cert", me.Cert, "PING"},
		"--cacert: stat /nosuch: no such file or directory":    {"--tls", "--cacert", "/nosuch", "PING"},
		"no TLS with " + at + ": tls: failed to verify certificate": {"-p", port, "--tls", "--cert", me.Cert, "--key",
			me.Key, "PING"},
		"certificate is valid for localhost, not elsewhere":          with("--sni", "elsewhere", "PING"),
		"certificate required. --cacert names the trusted authority": {"-p", port, "--tls", "--cacert", a.File, "PING"},
		plain.Addr + " does not speak TLS: is it the plain port?": {"-p", strconv.Itoa(plain.Port), "--tls", "--insecure",
			"PING"},
		at + " closed the connection before its reply was complete": {"-p", port, "PING"},
	} {
		got := run(t, ours(args...), "")
		assert.Equal(t, 1, got.status, says)
		assert.Empty(t, got.stdout)
		assert.Contains(t, got.stderr, says)
		assert.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
	}
}

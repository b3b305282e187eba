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

// tlsServer listens on a TLS port, which requires certificates, and on a plain port.
type tlsServer struct {
	authority *certs.Authority
	own, me   certs.Pair
	port      string
	plain     *peer.Server
}

func startTLS(t *testing.T, more ...string) tlsServer {
	a := certs.New(t)
	s := tlsServer{authority: a, own: a.Issue(t, "server"), me: a.Issue(t, "me"), port: strconv.Itoa(peer.FreePort(t))}
	s.plain = peer.StartPlain(t, append(more, "--tls-port", s.port, "--tls-cert-file", s.own.Cert,
		"--tls-key-file", s.own.Key, "--tls-ca-cert-file", a.File)...)
	return s
}

// with returns the options of a client that the server accepts, followed by more arguments.
func (s tlsServer) with(more ...string) []string {
	return append([]string{"-p", s.port, "--tls", "--cacert", s.authority.File, "--cert", s.me.Cert, "--key", s.me.Key},
		more...)
}

func TestTLS(t *testing.T) {
	s := startTLS(t)
	// The same options work with redis-cli and with cellserver cli.
	for _, args := range [][]string{s.with("PING"), s.with("--sni", "localhost", "CL.THROTTLE", "k", "1", "1", "1000"),
		s.with("--insecure", "PING")} {
		got := run(t, ours(args...), "")
		assert.Zero(t, got.status, got.stderr)
		assert.Equal(t, got.status, run(t, theirs(t, args...), "").status, args)
	}
	assert.Equal(t, outcome{stdout: "PONG\n1\n"}, run(t, ours(s.with("-n", "3")...), "PING\nINCR n\n"))
	fromEnvironment := ours("--tls", "--cacertdir", s.authority.Dir, "--cert", s.me.Cert, "--key", s.me.Key, "PING")
	fromEnvironment.Env = append(environment(t), "CELLSERVER_PORT=0", "CELLSERVER_TLS_PORT="+s.port)
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, fromEnvironment, ""))
}

// TestHealthCheck checks that a client finds the server that its environment configures.
func TestHealthCheck(t *testing.T) {
	s := startTLS(t)
	health := ours("PING")
	health.Env = append(environment(t), "CELLSERVER_PORT=0", "CELLSERVER_TLS_PORT="+s.port,
		"CELLSERVER_TLS_CERT_FILE="+s.own.Cert, "CELLSERVER_TLS_KEY_FILE="+s.own.Key)
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, health, ""))
	path := filepath.Join(t.TempDir(), "s")
	peer.StartPlain(t, "--unixsocket", path)
	health = ours("PING")
	health.Env = append(environment(t), "CELLSERVER_PORT=0", "CELLSERVER_TLS_PORT=1", "CELLSERVER_UNIXSOCKET="+path)
	assert.Equal(t, outcome{stdout: "PONG\n"}, run(t, health, ""))
}

func TestTLSErrors(t *testing.T) {
	s := startTLS(t, "--loglevel", "nothing") // a client without TLS is a warning
	at := "127.0.0.1:" + s.port
	for says, args := range map[string][]string{
		"require --tls": {"--cacert", s.authority.File, "PING"},
		"--key is not given: set it to the path of a PEM file": {"--tls", "--cert", s.me.Cert, "PING"},
		"--cacert: stat /nosuch: no such file or directory":    {"--tls", "--cacert", "/nosuch", "PING"},
		"no TLS with " + at + ": tls: failed to verify certificate": {"-p", s.port, "--tls", "--cert", s.me.Cert, "--key",
			s.me.Key, "PING"},
		"certificate is valid for localhost, not elsewhere":          s.with("--sni", "elsewhere", "PING"),
		"certificate required. --cacert names the trusted authority": {"-p", s.port, "--tls", "--cacert", s.authority.File, "PING"},
		s.plain.Addr + " does not speak TLS: is it the plain port?": {"-p", strconv.Itoa(s.plain.Port), "--tls", "--insecure",
			"PING"},
		at + " speaks TLS: add --tls, and --cacert with": {"-p", s.port, "PING"},
	} {
		got := run(t, ours(args...), "")
		assert.Equal(t, 1, got.status, says)
		assert.Empty(t, got.stdout)
		assert.Contains(t, got.stderr, says)
		assert.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
	}
}

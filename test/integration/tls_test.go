package integration

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

// secure is a server with a plain port and one for TLS.
type secure struct {
	*peer.Server
	authority *certs.Authority
	own       certs.Pair
	addr      string // for TLS
	client    *tls.Config
}

func startSecure(t *testing.T, args ...string) *secure { return secured(t, peer.StartPlain, args...) }

func secured(t *testing.T, start func(*testing.T, ...string) *peer.Server, args ...string) *secure {
	t.Helper()
	s := &secure{authority: certs.New(t)}
	s.own, s.client = s.authority.Issue(t, "server"), s.authority.Client(t, s.authority.Issue(t, "client"))
	port := strconv.Itoa(peer.FreePort(t))
	s.addr = "127.0.0.1:" + port
	s.Server = start(t, append([]string{"--tls-port", port, "--tls-cert-file", s.own.Cert, "--tls-key-file", s.own.Key,
		"--tls-ca-cert-file", s.authority.File}, args...)...)
	return s
}

// handshake connects, and returns an error if the server refuses the client.
func (s *secure) handshake(t *testing.T, config *tls.Config) (*tls.Conn, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", s.addr, config)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn, ping(conn) // with TLS 1.3 the server refuses only after the handshake
}

func ping(conn io.ReadWriter) error {
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	b := make([]byte, len("+PONG\r\n"))
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	if string(b) != "+PONG\r\n" {
		return fmt.Errorf("PING was answered %q", b)
	}
	return nil
}

func (s *secure) shows(t *testing.T) *big.Int {
	t.Helper()
	conn, err := s.handshake(t, s.client)
	require.NoError(t, err)
	return conn.ConnectionState().PeerCertificates[0].SerialNumber
}

// A certificate is changed on disk, or by CONFIG SET of its name. Connected clients stay connected,
// and new ones see the new certificate. Wrong files are refused with Redis's errors, and change
// nothing.
func TestCertificatesAreChanged(t *testing.T) {
	for name, start := range map[string]func(*testing.T, ...string) *peer.Server{"cellserver": peer.StartPlain,
		"redis-server": peer.StartRedis} {
		t.Run(name, func(t *testing.T) {
			s := secured(t, start)
			first := s.shows(t)
			stays, err := s.handshake(t, s.client)
			require.NoError(t, err)
			admin := connect(t, &redis.Options{Addr: s.Addr, TLSConfig: s.TLS})
			set := func(words ...any) string {
				if err := admin.Do(inTime(t), append([]any{"CONFIG", "SET"}, words...)...).Err(); err != nil {
					return err.Error()
				}
				return "OK"
			}
			second, third := s.authority.Issue(t, "second"), s.authority.Issue(t, "third")

			assert.Equal(t, "OK", set("tls-cert-file", second.Cert, "tls-key-file", second.Key))
			assert.Equal(t, new(big.Int).Add(first, big.NewInt(2)), s.shows(t))
			refuseWrongFiles(t, set, third.Cert)
			settings := admin.ConfigGet(inTime(t), "tls-*").Val()
			assert.Equal(t, second.Cert, settings["tls-cert-file"])
			assert.Equal(t, second.Key, settings["tls-key-file"])
			assert.Equal(t, s.authority.File, settings["tls-ca-cert-file"])
			assert.Empty(t, settings["tls-protocols"])
			assert.Empty(t, settings["tls-ciphers"])
			assert.Equal(t, "yes", settings["tls-auth-clients"])
			assert.Equal(t, new(big.Int).Add(first, big.NewInt(2)), s.shows(t))

			// Setting the same name again reads the file again.
			require.NoError(t, os.Rename(third.Cert, second.Cert))
			require.NoError(t, os.Rename(third.Key, second.Key))
			assert.Equal(t, "OK", set("tls-cert-file", second.Cert))
			assert.Equal(t, new(big.Int).Add(first, big.NewInt(3)), s.shows(t))

			assert.Equal(t, "OK", set("tls-auth-clients", "no"))
			_, err = s.handshake(t, s.authority.Client(t, certs.Pair{}))
			assert.NoError(t, err, "clients need no certificate after tls-auth-clients no")
			assert.NoError(t, ping(stays))
			if name == "cellserver" {
				s.ignore(t) // all of these are logged
				assert.Equal(t, 8, strings.Count(s.Stderr(), "the TLS configuration was not changed"), s.Stderr())
			}
		})
	}
}

// refuseWrongFiles sets options to wrong values, which must be refused. The certificate is one that
// does not belong to the server's key.
func refuseWrongFiles(t *testing.T, set func(words ...any) string, certificate string) {
	const refused = "ERR CONFIG SET failed (possibly related to argument '%s') - Unable to update TLS configuration. Check server logs."
	for _, wrong := range [][]any{
		{"tls-cert-file", certificate},
		{"tls-cert-file", "/nosuch"},
		{"tls-key-file", "/nosuch"},
		{"tls-ca-cert-file", "/nosuch"},
		{"tls-protocols", "TLSv9"},
		{"tls-ciphers", "NOSUCH"},
		{"tls-ciphersuites", "NOSUCH"},
		{"tls-protocols", "TLSv1.2", "tls-cert-file", "/nosuch"},
	} {
		assert.Equal(t, fmt.Sprintf(refused, wrong[0]), set(wrong...), wrong)
	}
	assert.Equal(t, "ERR CONFIG SET failed (possibly related to argument 'tls-auth-clients') - argument(s) must be one of the following: no, yes, optional",
		set("tls-auth-clients", "maybe"))
}

// ignore ends a server that may have logged warnings about the test's actions.
func (s *secure) ignore(t *testing.T) {
	t.Helper()
	s.Signal(syscall.SIGTERM)
	assert.Zero(t, s.Wait())
}

// SIGHUP reads the files again. Without TLS, SIGHUP has no effect; if a file is wrong, nothing changes. The metric
// shows the expiry of the certificate in use.
func TestSIGHUP(t *testing.T) {
	port := strconv.Itoa(peer.FreePort(t))
	s := startSecure(t, "--metrics-port", port)
	const ends = "\ncellserver_tls_certificate_expiry_timestamp_seconds{use=\"tls-cert-file\"} 4.102444801e+09\n"
	metrics := func() string { _, body := get(t, "http://127.0.0.1:"+port+"/metrics"); return body }
	first := s.shows(t)
	stays, err := s.handshake(t, s.client)
	require.NoError(t, err)
	next := s.authority.Issue(t, "next", func(c *x509.Certificate) { c.NotAfter = time.Unix(4102444801, 0) })
	require.NoError(t, os.Rename(next.Cert, s.own.Cert))
	s.Signal(syscall.SIGHUP) // at this moment the key does not belong to the certificate
	require.Eventually(t, func() bool {
		return strings.Contains(s.Stderr(),
			"SIGHUP: the TLS configuration was not changed")
	}, patience, time.Millisecond)
	assert.Equal(t, first, s.shows(t))
	assert.NotContains(t, metrics(), ends)
	require.NoError(t, os.Rename(next.Key, s.own.Key))
	s.Signal(syscall.SIGHUP)
	require.Eventually(t, func() bool { return s.shows(t).Cmp(first) != 0 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(metrics(), ends) }, patience, time.Millisecond)
	assert.NoError(t, ping(stays))
	s.ignore(t)

	plain := peer.Start(t)
	plain.Signal(syscall.SIGHUP)
	assert.Equal(t, "+PONG\r\n", exchange(t, plain, command("PING")))
}

// Which clients are accepted depends on tls-auth-clients and on the client's certificate.
func TestClientCertificates(t *testing.T) {
	const missing, unknown, expired = "remote error: tls: certificate required",
		"remote error: tls: unknown certificate authority", "remote error: tls: expired certificate"
	s := startSecure(t)
	dir := startSecure(t)
	show := map[string]certs.Pair{
		"none": {}, "good": s.authority.Issue(t, "good"), "stranger": certs.New(t).Issue(t, "stranger"),
		"expired":  s.authority.Issue(t, "expired", certs.Expired),
		"server's": s.authority.Issue(t, "servers", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }),
	}
	admin := connect(t, &redis.Options{Addr: s.Addr, TLSConfig: s.TLS})
	for auth, refusals := range map[string]map[string]string{
		"yes": {"none": missing, "good": "", "stranger": unknown, "expired": expired,
			"server's": "remote error: tls: bad certificate"},
		"optional": {"none": "", "good": "", "stranger": unknown, "expired": expired,
			"server's": "remote error: tls: bad certificate"},
		"no": {"none": "", "good": "", "stranger": "", "expired": "", "server's": ""},
	} {
		require.NoError(t, admin.ConfigSet(inTime(t), "tls-auth-clients", auth).Err())
		for shown, want := range refusals {
			_, err := s.handshake(t, s.authority.Client(t, show[shown]))
			if want == "" {
				assert.NoError(t, err, "%s %s", auth, shown)
			} else {
				assert.EqualError(t, err, want, "%s %s", auth, shown)
			}
		}
	}
	// An authority in tls-ca-cert-dir works like one in tls-ca-cert-file.
	admin = connect(t, &redis.Options{Addr: dir.Addr, TLSConfig: dir.TLS})
	_, err := dir.handshake(t, dir.client)
	require.NoError(t, err)
	require.NoError(t, admin.ConfigSet(inTime(t), "tls-ca-cert-dir", s.authority.Dir).Err())
	config := dir.authority.Client(t, show["good"])
	_, err = dir.handshake(t, config)
	assert.NoError(t, err)
	_, err = dir.handshake(t, dir.authority.Client(t, show["stranger"]))
	assert.EqualError(t, err, unknown)
}

func TestVersionsAndCiphers(t *testing.T) {
	for _, c := range []struct {
		args    []string
		change  func(*tls.Config)
		version uint16 // 0 if the connection must fail
	}{
		{nil, func(*tls.Config) {}, tls.VersionTLS13},
		{nil, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, tls.VersionTLS12},
		{nil, func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, 0},
		{[]string{"--tls-protocols", "TLSv1.3"}, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, 0},
		{[]string{"--tls-protocols", "TLSv1.2"}, func(*tls.Config) {}, tls.VersionTLS12},
		{[]string{"--tls-protocols", "TLSv1.2", "--tls-ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305"},
			func(c *tls.Config) { c.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256} }, 0},
		{[]string{"--tls-protocols", "TLSv1.2", "--tls-ciphers", "ECDHE-ECDSA-CHACHA20-POLY1305"}, func(*tls.Config) {},
			tls.VersionTLS12},
	} {
		s := startSecure(t, c.args...)
		config := s.client.Clone()
		c.change(config)
		conn, err := s.handshake(t, config)
		if c.version == 0 {
			assert.Error(t, err, c.args)
			continue
		}
		require.NoError(t, err, c.args)
		assert.Equal(t, c.version, conn.ConnectionState().Version, c.args)
		if len(c.args) > 2 {
			assert.Equal(t, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, conn.ConnectionState().CipherSuite)
		}
	}
}

// A client resumes its TLS session, unless tls-session-caching is no. After the certificates were read again, every
// client needs a full handshake, because the trusted certificates may have changed.
func TestSessionResumption(t *testing.T) {
	for _, caching := range []string{"yes", "no"} {
		s := startSecure(t, "--tls-session-caching", caching)
		config := s.client.Clone()
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		resumed := func() bool {
			conn, err := s.handshake(t, config)
			require.NoError(t, err)
			return conn.ConnectionState().DidResume
		}
		assert.False(t, resumed())
		assert.Equal(t, caching == "yes", resumed())
		admin := connect(t, &redis.Options{Addr: s.Addr, TLSConfig: s.TLS})
		require.NoError(t, admin.ConfigSet(inTime(t), "tls-cert-file", s.own.Cert).Err())
		assert.False(t, resumed(), "a session from before the certificates were read again was resumed")
	}
}

// A server may have only the port for TLS. Errors in its files are reported at the start.
func TestTLSOnly(t *testing.T) {
	s := startSecure(t, "--port", "0", "--bind", "127.0.0.1")
	ready := readyLine.FindAllStringSubmatch(s.Log(), -1)
	require.Len(t, ready, 1)
	assert.Equal(t, "* Ready to accept connections tls", ready[0][1])
	conn, err := s.handshake(t, s.client)
	require.NoError(t, err)
	_, err = conn.Write(command("INFO", "server"))
	require.NoError(t, err)
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	require.NoError(t, err)
	assert.Contains(t, string(b[:n]), "\r\ntcp_port:"+strings.TrimPrefix(s.addr, "127.0.0.1:")+"\r\n")

	for says, args := range map[string][]string{
		"tls-cert-file is not given: set it to the path of a PEM file": {},
		"tls-key-file is not given: set it to the path of a PEM file":  {"--tls-cert-file", s.own.Cert},
		"requires tls-ca-cert-file or tls-ca-cert-dir": {"--tls-cert-file", s.own.Cert, "--tls-key-file",
			s.own.Key},
		"tls-protocols: TLSv1 is insecure": {"--tls-cert-file", s.own.Cert, "--tls-key-file", s.own.Key,
			"--tls-protocols", "TLSv1"},
		"it must be one of no, yes, optional":                 {"--tls-auth-clients", "perhaps"},
		"it must be a number of seconds from 1 to 1073741824": {"--tls-handshake-timeout", "0"},
		"no such file or directory":                           {"--tls-cert-file", s.own.Cert, "--tls-key-file", "/nosuch"},
		"does not match public key": {"--tls-cert-file", s.own.Cert, "--tls-key-file",
			certs.New(t).Issue(t, "other").Key},
		"--tls-key-file-pass: a key with a passphrase cannot be read": {"--tls-key-file-pass", "x"},
	} {
		assert.Contains(t, refusesToStart(t,
			append([]string{"--port", "0", "--tls-port", strconv.Itoa(peer.FreePort(t))}, args...)...), says)
	}
}

// redis-cli connects with a certificate, and fails without one.
func TestRedisCLIOverTLS(t *testing.T) {
	s := startSecure(t)
	pair := s.authority.Issue(t, "cli")
	_, port, _ := strings.Cut(s.addr, ":")
	call := func(words ...string) string {
		out, _ := exec.Command("redis-cli",
			append([]string{"-p", port, "--tls", "--cacert", s.authority.File}, words...)...).CombinedOutput()
		return string(out)
	}
	assert.Equal(t, "0\n16\n15\n-1\n2\n",
		call("--cert", pair.Cert, "--key", pair.Key, "CL.THROTTLE", "user123", "15", "30", "60", "1"))
	assert.NotContains(t, call("PING"), "PONG")
}

// Every kind of session works over TLS: subscribed, blocked, in a transaction, killed, listed.
func TestSessionsOverTLS(t *testing.T) {
	s := startSecure(t)
	c := connect(t, &redis.Options{Addr: s.addr, TLSConfig: s.client, ClientName: "sealed"})
	assert.Contains(t, c.Do(inTime(t), "CLIENT", "INFO").String(), "laddr="+s.addr)
	sub := c.Subscribe(inTime(t), "news")
	_, err := sub.Receive(inTime(t))
	require.NoError(t, err)
	require.NoError(t, connect(t, &redis.Options{Addr: s.Addr, TLSConfig: s.TLS}).Publish(inTime(t), "news",
		"hello").Err())
	message, err := sub.ReceiveMessage(inTime(t))
	require.NoError(t, err)
	assert.Equal(t, "hello", message.Payload)

	long := strings.Repeat("x", 1<<20)
	require.NoError(t, c.Set(inTime(t), "long", long, 0).Err())
	pipe, err := c.Pipelined(inTime(t), func(p redis.Pipeliner) error {
		for range 8 {
			p.Get(inTime(t), "long")
		}
		return nil
	})
	require.NoError(t, err)
	for _, reply := range pipe {
		require.Equal(t, long, reply.(*redis.StringCmd).Val())
	}

	doomed, err := s.handshake(t, s.client)
	require.NoError(t, err)
	require.EqualValues(t, 1, c.Do(inTime(t), "CLIENT", "KILL", "ADDR", doomed.LocalAddr().String()).Val())
	_, err = doomed.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF)

	half, err := s.handshake(t, s.client) // closes only its sending direction, and still receives its replies
	require.NoError(t, err)
	_, err = half.Write(command("GET", "long"))
	require.NoError(t, err)
	require.NoError(t, half.CloseWrite())
	all, err := io.ReadAll(half)
	require.NoError(t, err)
	assert.Len(t, all, len("$1048576\r\n")+len(long)+len("\r\n"))
}

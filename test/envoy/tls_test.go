package envoy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"cellserver/test/certs"
	"cellserver/test/peer"
)

// secured is a server that was started with --grpc-tls-port.
type secured struct {
	server    *peer.Server
	authority *certs.Authority
	pair      certs.Pair // the server's
	address   string
}

func startSecured(t *testing.T, args ...string) *secured {
	t.Helper()
	s := &secured{authority: certs.New(t)}
	s.pair = s.authority.Issue(t, "server")
	port := peer.FreePort(t)
	s.address = fmt.Sprint("127.0.0.1:", port)
	s.server = peer.Start(t, append([]string{"--grpc-tls-port", fmt.Sprint(port), "--tls-cert-file", s.pair.Cert,
		"--tls-key-file", s.pair.Key, "--tls-ca-cert-file", s.authority.File,
		"--envoy-config", write(t, "shop.yaml", limits(1000, ""))}, args...)...)
	return s
}

// ask asks on a new connection, and returns the code of the error.
func (s *secured) ask(t *testing.T, config *tls.Config) codes.Code {
	t.Helper()
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	require.NoError(t, err)
	defer conn.Close()
	_, err = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), request("shop", "generic_key=checkout"))
	return status.Code(err)
}

// A client needs a certificate of the authority, unless --tls-auth-clients makes it optional.
func TestCertificates(t *testing.T) {
	s, other := startSecured(t), certs.New(t)
	trusting := s.authority.Client(t, certs.Pair{})
	require.Equal(t, codes.Unavailable, s.ask(t, trusting))
	require.Equal(t, codes.OK, s.ask(t, s.authority.Client(t, s.authority.Issue(t, "envoy"))))
	require.Equal(t, codes.Unavailable, s.ask(t, s.authority.Client(t, other.Issue(t, "envoy"))))
	require.Equal(t, codes.Unavailable, s.ask(t, s.authority.Client(t, s.authority.Issue(t, "late", certs.Expired))))
	peer.Ask(t, s.server.Addr, "CONFIG", "SET", "tls-auth-clients", "no")
	require.Equal(t, codes.OK, s.ask(t, trusting))
}

// With --grpc-certificate-name, a certificate of the authority must also have this name.
func TestCertificateName(t *testing.T) {
	s := startSecured(t, "--grpc-certificate-name", "envoy.example")
	require.Equal(t, codes.Unavailable, s.ask(t, s.authority.Client(t, s.authority.Issue(t, "envoy"))))
	named := s.authority.Issue(t, "named", func(c *x509.Certificate) { c.DNSNames = []string{"envoy.example"} })
	require.Equal(t, codes.OK, s.ask(t, s.authority.Client(t, named)))
}

// With --tls-auth-clients-user, an Envoy at any address may ask as the user that its certificate names.
func TestCertificateUsers(t *testing.T) {
	s := startSecured(t, "--grpc-trusted", "192.0.2.1", "--tls-auth-clients-user", "CN",
		"--user", "gateway on nopass ~envoy:* +cl.quota", "--user", "reader on nopass ~* +get")
	peer.Ask(t, s.server.Addr, "CONFIG", "SET", "loglevel", "nothing") // certificates that are refused are logged
	shown := func(name string) *tls.Config { return s.authority.Client(t, s.authority.Issue(t, name)) }
	require.Equal(t, codes.OK, s.ask(t, shown("gateway")))
	require.Equal(t, codes.PermissionDenied, s.ask(t, shown("reader")))
	require.Equal(t, codes.Unavailable, s.ask(t, shown("nobody")))
	peer.Ask(t, s.server.Addr, "ACL", "DELUSER", "gateway")
	require.Equal(t, codes.Unavailable, s.ask(t, shown("gateway")))
}

// After SIGHUP, new connections get the new certificate, and open connections go on.
func TestNewCertificate(t *testing.T) {
	s := startSecured(t, "--tls-auth-clients", "no")
	var seen string
	config := s.authority.Client(t, certs.Pair{})
	config.VerifyConnection = func(state tls.ConnectionState) error {
		seen = state.PeerCertificates[0].Subject.CommonName
		return nil
	}
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(credentials.NewTLS(config.Clone())))
	require.NoError(t, err)
	defer conn.Close()
	open := pb.NewRateLimitServiceClient(conn)
	asks := func() error {
		_, err := open.ShouldRateLimit(t.Context(), request("shop", "generic_key=checkout"))
		return err
	}
	require.NoError(t, asks())
	require.Equal(t, "server", seen)
	rename(t, s.authority.Issue(t, "next"), s.pair)
	s.server.Signal(syscall.SIGHUP)
	peer.Until(t, "the server shows its new certificate", func() bool {
		require.Equal(t, codes.OK, s.ask(t, config))
		return seen == "next"
	})
	seen = ""
	require.NoError(t, asks())
	require.Empty(t, seen) // there was no further handshake
}

// rename gives a pair the file names of another pair.
func rename(t *testing.T, from, to certs.Pair) {
	t.Helper()
	require.NoError(t, os.Rename(from.Cert, to.Cert))
	require.NoError(t, os.Rename(from.Key, to.Key))
}

// Peers that have not shown a certificate yet share 64 places, so that they take none from peers that have
// shown one.
func TestUnknownEnvoys(t *testing.T) {
	s := startSecured(t, "--grpc-trusted", "192.0.2.1", "--tls-auth-clients-user", "CN",
		"--user", "gateway on nopass ~envoy:* +cl.quota")
	gateway := s.authority.Client(t, s.authority.Issue(t, "gateway"))
	known, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(credentials.NewTLS(gateway)))
	require.NoError(t, err)
	defer known.Close()
	asks := func() {
		_, err := pb.NewRateLimitServiceClient(known).ShouldRateLimit(t.Context(), request("shop", "generic_key=checkout"))
		require.NoError(t, err)
	}
	asks()
	isOpen := func(conn net.Conn) bool { // until the server closes it, a read waits
		assert.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
		_, err := conn.Read(make([]byte, 1))
		return errors.Is(err, os.ErrDeadlineExceeded)
	}
	silent := make([]net.Conn, 65)
	for i := range silent {
		silent[i], err = net.Dial("tcp", s.address)
		require.NoError(t, err)
		defer silent[i].Close()
	}
	peer.Until(t, "the connection that was accepted last is closed", func() bool { return !isOpen(silent[64]) })
	require.True(t, isOpen(silent[0]))
	asks()
	silent[0].Close()
	peer.Until(t, "the place is free again", func() bool { return s.ask(t, gateway) == codes.OK })
}

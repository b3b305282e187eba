// Package certs creates certificate authorities and certificates while tests run: the repository
// stores no keys.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates, and writes them as PEM files into the test's directory.
type Authority struct {
	Dir  string
	File string // its own certificate

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64 // serial number
}

// New creates an authority for one test.
func New(t testing.TB) *Authority {
	t.Helper()
	return NewIn(t, t.TempDir())
}

// NewIn creates an authority in a directory that outlasts the test.
func NewIn(t testing.TB, dir string) *Authority {
	t.Helper()
	a := &Authority{Dir: dir, key: newKey(t)}
	template := a.template("authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	a.cert = a.sign(t, template, template, &a.key.PublicKey)
	a.File = a.write(t, "authority.crt", "CERTIFICATE", a.cert.Raw)
	return a
}

// Pair is a certificate and its key, as files.
type Pair struct{ Cert, Key string }

// Issue creates a certificate for the loopback addresses and "localhost", for servers and clients.
// Its subject and its files have this name.
func (a *Authority) Issue(t testing.TB, name string, changes ...func(*x509.Certificate)) Pair {
	t.Helper()
	template := a.template(name)
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, change := range changes {
		change(template)
	}
	key := newKey(t)
	cert := a.sign(t, template, a.cert, &key.PublicKey)
	bytes, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return Pair{a.write(t, name+".crt", "CERTIFICATE", cert.Raw), a.write(t, name+".key", "PRIVATE KEY", bytes)}
}

// Expired changes a certificate so that it expired a day ago.
func Expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = c.NotBefore.AddDate(-1, 0, 0), time.Now().AddDate(0, 0, -1)
}

// Client returns the TLS configuration of a client that trusts this authority, with a certificate
// of its own, or without one if the pair is empty.
func (a *Authority) Client(t testing.TB, own Pair) *tls.Config {
	t.Helper()
	now := time.Now() // before a test changes its clock
	c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", Time: func() time.Time { return now }}
	c.RootCAs.AddCert(a.cert)
	if own != (Pair{}) {
		pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
		require.NoError(t, err)
		// Send the certificate to every server. By default, crypto/tls sends no certificate if the
		// server names other authorities.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func (a *Authority) template(name string) *x509.Certificate {
	a.next++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 1, 0),
	}
}

func (a *Authority) sign(t testing.TB, template, parent *x509.Certificate, public *ecdsa.PublicKey) *x509.Certificate {
	t.Helper()
	bytes, err := x509.CreateCertificate(rand.Reader, template, parent, public, a.key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(bytes)
	require.NoError(t, err)
	return cert
}

func (a *Authority) write(t testing.TB, name, kind string, bytes []byte) string {
	t.Helper()
	path := filepath.Join(a.Dir, name)
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600))
	return path
}

// Package tlsconfig builds TLS configurations from redis.conf's tls- directives. A configuration is
// immutable: after a change of a certificate, another one is built for later connections.
package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ServerOptions are the values of the directives; empty ones are not given.
type ServerOptions struct {
	CertFile, KeyFile string // PEM: the server's certificate with its chain, and its key
	CACertFile        string // PEM: certificate authorities of the clients
	CACertDir         string // a directory of such files
	// AuthClients is whether clients need a certificate: "yes", "no", or "optional" for a valid one
	// or none.
	AuthClients    string
	Protocols      string // TLSv1.2, TLSv1.3 or both, separated by spaces
	Ciphers        string // for TLS 1.2: names of OpenSSL, separated by colons
	CipherSuites   string // for TLS 1.3
	SessionCaching bool   // clients may resume a session without a full handshake
}

// Config reads the files and returns the configuration of a server. An error names the directive.
func (o ServerOptions) Config() (*tls.Config, error) {
	c, _, err := o.Load()
	return c, err
}

// Load is Config, and returns when the certificates expire that were read, too.
func (o ServerOptions) Load() (*tls.Config, Expiries, error) {
	ends := Expiries{}
	c := &tls.Config{
		SessionTicketsDisabled: !o.SessionCaching,
		// Small records at the beginning are for browsers, which render what has arrived. A client
		// needs complete replies.
		DynamicRecordSizingDisabled: true,
	}
	var err error
	if c.MinVersion, c.MaxVersion, err = parseVersions(o.Protocols); err != nil {
		return nil, nil, err
	}
	if c.CipherSuites, err = parseCiphers(o.Ciphers); err != nil {
		return nil, nil, err
	}
	if err := checkCipherSuites(o.CipherSuites); err != nil {
		return nil, nil, err
	}
	own, err := keyPair(file{"tls-cert-file", o.CertFile}, file{"tls-key-file", o.KeyFile}, ends)
	if err != nil {
		return nil, nil, err
	}
	c.Certificates = []tls.Certificate{own}
	return c, ends, o.clients(c, ends)
}

// clients sets which certificates clients need.
func (o ServerOptions) clients(c *tls.Config, ends Expiries) (err error) {
	switch o.AuthClients {
	case "no":
		return nil
	case "optional":
		c.ClientAuth = tls.VerifyClientCertIfGiven
	default:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if o.CACertFile == "" && o.CACertDir == "" {
		return errors.New("tls-auth-clients requires tls-ca-cert-file or tls-ca-cert-dir: set one of them, or tls-auth-clients no")
	}
	c.ClientCAs, err = authorities(file{"tls-ca-cert-file", o.CACertFile}, file{"tls-ca-cert-dir", o.CACertDir}, ends)
	return err
}

// CommonName returns the name that the certificate of a peer has, if it has been verified: the CN of its subject.
// It is empty if the peer has no certificate, or if the subject has several names of this kind, because
// programs differ in taking the first or the last.
func CommonName(c tls.ConnectionState) string {
	if len(c.VerifiedChains) == 0 {
		return ""
	}
	subject, count := c.VerifiedChains[0][0].Subject, 0
	for _, attribute := range subject.Names {
		if attribute.Type.Equal(oidCommonName) {
			count++
		}
	}
	if count != 1 {
		return ""
	}
	return subject.CommonName
}

var oidCommonName = asn1.ObjectIdentifier{2, 5, 4, 3}

// ClientOptions are the TLS options of a client, such as redis-cli; empty ones are not given.
type ClientOptions struct {
	// PEM: a file and a directory of certificate authorities of the server. The default is the
	// system's authorities.
	CACert, CACertDir string
	Cert, Key         string // PEM: the client's own
	ServerName        string // name that the server's certificate must have
	Insecure          bool   // accept any certificate
	Names             Names  // of the options, for errors; redis-cli's by default
}

// Names are the names of the options of a client.
type Names struct{ CACert, CACertDir, Cert, Key string }

// Config reads the files and returns the configuration of a client.
func (o ClientOptions) Config() (*tls.Config, error) {
	c, _, err := o.Load()
	return c, err
}

// Load is Config, and returns when the certificates expire that were read, too.
func (o ClientOptions) Load() (*tls.Config, Expiries, error) {
	ends := Expiries{}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName, InsecureSkipVerify: o.Insecure}
	names := o.Names
	if names == (Names{}) {
		names = Names{CACert: "--cacert", CACertDir: "--cacertdir", Cert: "--cert", Key: "--key"}
	}
	var err error
	if o.CACert != "" || o.CACertDir != "" {
		c.RootCAs, err = authorities(file{names.CACert, o.CACert}, file{names.CACertDir, o.CACertDir}, ends)
		if err != nil {
			return nil, nil, err
		}
	}
	if o.Cert != "" || o.Key != "" {
		own, err := keyPair(file{names.Cert, o.Cert}, file{names.Key, o.Key}, ends)
		if err != nil {
			return nil, nil, err
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, ends, nil
}

// file is an option whose value is the path of a file.
type file struct{ option, path string }

func (g file) read() ([]byte, error) {
	if g.path == "" {
		return nil, fmt.Errorf("%s is not given: set it to the path of a PEM file", g.option)
	}
	text, err := readPEM(g.path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.option, err)
	}
	return text, nil
}

// keyPair reads a certificate and its private key.
func keyPair(certFile, keyFile file, ends Expiries) (none tls.Certificate, err error) {
	cert, err := certFile.read()
	if err != nil {
		return none, err
	}
	key, err := keyFile.read()
	if err != nil {
		return none, err
	}
	if isEncrypted(key) {
		return none, fmt.Errorf("%s: %s is encrypted with a password, which is not supported", keyFile.option, keyFile.path)
	}
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return none, fmt.Errorf("%s %s, %s %s: %s", certFile.option, certFile.path, keyFile.option, keyFile.path,
			strings.TrimPrefix(err.Error(), "tls: "))
	}
	for _, der := range both.Certificate {
		if parsed, err := x509.ParseCertificate(der); err == nil {
			ends.add(certFile, parsed)
		}
	}
	return both, nil
}

// isEncrypted reports whether a PEM key is encrypted, in the PKCS #8 or the legacy format.
func isEncrypted(key []byte) bool {
	for block, rest := pem.Decode(key); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}

// authorities reads the certificates of a file, and of all files of a directory.
func authorities(file, dir file, ends Expiries) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if file.path != "" {
		text, err := file.read()
		if err != nil {
			return nil, err
		}
		if !appendPEM(pool, text, file, ends) {
			return nil, fmt.Errorf("%s: %s holds no PEM certificate", file.option, file.path)
		}
	}
	if dir.path != "" {
		if err := appendDir(pool, dir, ends); err != nil {
			return nil, fmt.Errorf("%s: %w", dir.option, err)
		}
	}
	return pool, nil
}

func appendDir(pool *x509.CertPool, dir file, ends Expiries) error {
	entries, err := os.ReadDir(dir.path)
	if err != nil {
		return err
	}
	found := false
	for _, entry := range entries {
		path := filepath.Join(dir.path, entry.Name())
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue // os.Stat follows links, as openssl rehash makes them
		}
		text, err := readPEM(path)
		if err != nil {
			return err
		}
		found = appendPEM(pool, text, dir, ends) || found
	}
	if !found {
		return fmt.Errorf("no file in %s holds a PEM certificate", dir.path)
	}
	return nil
}

// maxFileBytes is the size of the largest file that is read, in bytes: five times the size of all
// authorities of a usual system. So the path of a device or of a huge file, given by mistake, uses
// no memory.
const maxFileBytes = 1 << 20

func readPEM(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case info.Size() > maxFileBytes:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFileBytes)
	}
	return os.ReadFile(path)
}

// Package tlsconfig makes TLS configurations of what redis.conf's tls- directives say. What it makes
// never changes: who wants another certificate has another configuration made, for the connections
// that come then.
package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ServerOptions are the directives, as texts; empty ones are not given.
type ServerOptions struct {
	CertFile, KeyFile string // PEM: the server's certificate with those that lead to its authority, and its key
	CACertFile        string // PEM: authorities of clients' certificates
	CACertDir         string // a directory of such files
	// Who has to have a certificate: "yes" for everybody, "no", "optional" for a valid one or none.
	AuthClients    string
	Protocols      string // of TLSv1.2 and TLSv1.3, with spaces between
	Ciphers        string // for TLS 1.2, OpenSSL's names with colons between
	CipherSuites   string // for TLS 1.3
	SessionCaching bool   // clients may come back without a whole handshake
}

// Config reads the files and makes what a server's handshakes go by. An error names the directive.
func (o ServerOptions) Config() (*tls.Config, error) {
	c := &tls.Config{
		SessionTicketsDisabled: !o.SessionCaching,
		// Smaller records at first are for browsers, that draw what has come. A pipeline's replies
		// are wanted whole.
		DynamicRecordSizingDisabled: true,
	}
	var err error
	if c.MinVersion, c.MaxVersion, err = versions(o.Protocols); err != nil {
		return nil, err
	}
	if c.CipherSuites, err = ciphers(o.Ciphers); err != nil {
		return nil, err
	}
	if err := cipherSuites(o.CipherSuites); err != nil {
		return nil, err
	}
	own, err := pair(given{"tls-cert-file", o.CertFile}, given{"tls-key-file", o.KeyFile})
	if err != nil {
		return nil, err
	}
	c.Certificates = []tls.Certificate{own}
	return c, o.clients(c)
}

// clients says which certificates clients have to have.
func (o ServerOptions) clients(c *tls.Config) (err error) {
	switch o.AuthClients {
	case "no":
		return nil
	case "optional":
		c.ClientAuth = tls.VerifyClientCertIfGiven
	default:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if o.CACertFile == "" && o.CACertDir == "" {
		return errors.New("clients' certificates are to be verified: give tls-ca-cert-file or tls-ca-cert-dir, or else tls-auth-clients no")
	}
	c.ClientCAs, err = authorities(given{"tls-ca-cert-file", o.CACertFile}, given{"tls-ca-cert-dir", o.CACertDir})
	return err
}

// ClientOptions are redis-cli's options; empty ones are not given.
type ClientOptions struct {
	// PEM: authorities that the server's certificate may come from; the system's if neither is
	// given.
	CACert, CACertDir string
	Cert, Key         string // PEM: the client's own
	ServerName        string // that the server's certificate has to be for
	Insecure          bool   // whatever certificate the server shows
}

// Config reads the files and makes what a client's handshakes go by.
func (o ClientOptions) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName, InsecureSkipVerify: o.Insecure}
	var err error
	if o.CACert != "" || o.CACertDir != "" {
		if c.RootCAs, err = authorities(given{"--cacert", o.CACert}, given{"--cacertdir", o.CACertDir}); err != nil {
			return nil, err
		}
	}
	if o.Cert != "" || o.Key != "" {
		own, err := pair(given{"--cert", o.Cert}, given{"--key", o.Key})
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}

// given is a path, and the name of the option that gave it.
type given struct{ option, path string }

func (g given) read() ([]byte, error) {
	if g.path == "" {
		return nil, fmt.Errorf("%s is not given: name a PEM file", g.option)
	}
	text, err := readPEM(g.path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", g.option, err)
	}
	return text, nil
}

// pair reads a certificate and its key.
func pair(certFile, keyFile given) (none tls.Certificate, err error) {
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
	return both, nil
}

// isEncrypted knows both ways to encrypt a PEM key.
func isEncrypted(key []byte) bool {
	for block, rest := pem.Decode(key); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
			return true
		}
	}
	return false
}

// authorities reads a file of certificates, and the files of a directory that hold some.
func authorities(file, dir given) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if file.path != "" {
		text, err := file.read()
		if err != nil {
			return nil, err
		}
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s holds no PEM certificate", file.option, file.path)
		}
	}
	if dir.path != "" {
		if err := appendDir(pool, dir.path); err != nil {
			return nil, fmt.Errorf("%s: %w", dir.option, err)
		}
	}
	return pool, nil
}

func appendDir(pool *x509.CertPool, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue // os.Stat follows links, as openssl rehash makes them
		}
		text, err := readPEM(path)
		if err != nil {
			return err
		}
		found = pool.AppendCertsFromPEM(text) || found
	}
	if !found {
		return fmt.Errorf("no file in %s holds a PEM certificate", dir)
	}
	return nil
}

// maxFile bounds what is read of a file, in bytes: all authorities of a system take a fifth of it.
// A name that was mistaken, of a device or a huge file, costs no memory.
const maxFile = 1 << 20

func readPEM(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}

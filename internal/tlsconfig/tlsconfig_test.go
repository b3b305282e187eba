package tlsconfig_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/tlsconfig"
	"cellserver/test/certs"
)

func options(t *testing.T) (*certs.Authority, tlsconfig.ServerOptions) {
	a := certs.New(t)
	own := a.Issue(t, "server")
	return a, tlsconfig.ServerOptions{CertFile: own.Cert, KeyFile: own.Key, CACertFile: a.File, AuthClients: "yes",
		SessionCaching: true}
}

func TestServerOptions(t *testing.T) {
	_, o := options(t)
	c, err := o.Config()
	require.NoError(t, err)
	assert.EqualValues(t, tls.VersionTLS12, c.MinVersion)
	assert.EqualValues(t, tls.VersionTLS13, c.MaxVersion)
	assert.Nil(t, c.CipherSuites)
	assert.False(t, c.SessionTicketsDisabled)
	assert.Equal(t, tls.RequireAndVerifyClientCert, c.ClientAuth)
	require.NotNil(t, c.ClientCAs)

	o.Protocols, o.Ciphers, o.SessionCaching, o.AuthClients = "tlsv1.2",
		"ECDHE-RSA-AES128-GCM-SHA256:TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", false, "optional"
	o.CipherSuites = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256"
	c, err = o.Config()
	require.NoError(t, err)
	assert.EqualValues(t, tls.VersionTLS12, c.MaxVersion)
	assert.Equal(t, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
		c.CipherSuites)
	assert.True(t, c.SessionTicketsDisabled)
	assert.Equal(t, tls.VerifyClientCertIfGiven, c.ClientAuth)

	o.Protocols, o.AuthClients, o.CACertFile = "TLSv1.3", "no", ""
	c, err = o.Config()
	require.NoError(t, err)
	assert.EqualValues(t, tls.VersionTLS13, c.MinVersion)
	assert.Equal(t, tls.NoClientCert, c.ClientAuth)
}

// TestExpiries: each option has the first certificate to expire of those in its files, whichever it is.
func TestExpiries(t *testing.T) {
	a, o := options(t)
	_, all, err := o.Load()
	require.NoError(t, err)
	usual := all["tls-cert-file"]
	assert.True(t, usual.After(time.Now()))
	assert.Equal(t, tlsconfig.Expiries{"tls-cert-file": usual, "tls-ca-cert-file": usual}, all)

	// Another certificate, which expires earlier, follows in the file of the own one and in that of the authorities.
	chain, bundle := time.Date(2020, 2, 3, 4, 5, 6, 0, time.UTC), time.Date(2021, 2, 3, 4, 5, 6, 0, time.UTC)
	follow(t, o.CertFile, a.Issue(t, "intermediate", func(c *x509.Certificate) { c.NotAfter = chain }))
	follow(t, o.CACertFile, a.Issue(t, "older", func(c *x509.Certificate) { c.NotAfter = bundle }))
	_, all, err = o.Load()
	require.NoError(t, err)
	assert.Equal(t, tlsconfig.Expiries{"tls-cert-file": chain, "tls-ca-cert-file": bundle}, all)

	o.AuthClients = "no"
	_, all, err = o.Load()
	require.NoError(t, err)
	assert.Equal(t, tlsconfig.Expiries{"tls-cert-file": chain}, all, "authorities of clients are not used")

	directory := t.TempDir()
	for i, end := range []time.Time{usual, bundle, usual} {
		issued := a.Issue(t, "authority", func(c *x509.Certificate) { c.NotAfter = end })
		require.NoError(t, os.Rename(issued.Cert, filepath.Join(directory, strconv.Itoa(i))))
	}
	own := a.Issue(t, "client")
	_, all, err = tlsconfig.ClientOptions{CACertDir: directory, Cert: own.Cert, Key: own.Key}.Load()
	require.NoError(t, err)
	assert.Equal(t, tlsconfig.Expiries{"cert": usual, "cacertdir": bundle}, all, "the names of a client's options")
}

// follow adds a certificate to a file.
func follow(t *testing.T, file string, other certs.Pair) {
	t.Helper()
	first, err := os.ReadFile(file)
	require.NoError(t, err)
	second, err := os.ReadFile(other.Cert)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, append(first, second...), 0o600))
}

// TestCiphers checks the example of redis.conf and other lists in OpenSSL's format.
func TestCiphers(t *testing.T) {
	_, o := options(t)
	for text, want := range map[string]int{
		"DEFAULT:!MEDIUM": 10, "HIGH:!aNULL:!MD5": 10, "ALL:-ECDHE-RSA-AES128-SHA": 9,
		"ECDHE-RSA-AES128-SHA:ECDHE-RSA-AES128-SHA": 1, "ECDHE-RSA-AES128-SHA,ECDHE-RSA-AES256-SHA": 2,
	} {
		o.Ciphers = text
		c, err := o.Config()
		require.NoError(t, err, text)
		assert.Len(t, c.CipherSuites, want, text)
	}
	// All ciphers for TLS 1.2 that crypto/tls considers secure have a name, and no others.
	o.Ciphers = "ALL"
	c, err := o.Config()
	require.NoError(t, err)
	var safe []uint16
	for _, suite := range tls.CipherSuites() {
		if suite.SupportedVersions[0] <= tls.VersionTLS12 {
			safe = append(safe, suite.ID)
		}
	}
	assert.ElementsMatch(t, safe, c.CipherSuites)
}

// TestErrorsNameTheOption checks the errors for invalid options of the server.
func TestErrorsNameTheOption(t *testing.T) {
	_, good := options(t)
	other := certs.New(t).Issue(t, "other")
	for says, change := range invalidOptions(writeInvalidFiles(t), other.Key, t.TempDir()) {
		o := good
		change(&o)
		_, err := o.Config()
		assert.ErrorContains(t, err, says)
	}
	_, err := good.Config()
	require.NoError(t, err)
}

// invalidFiles are the paths of files in dir that are neither a certificate nor a usable key.
type invalidFiles struct{ dir, garbage, empty, encrypted, legacy, large string }

func writeInvalidFiles(t *testing.T) invalidFiles {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	encrypted := pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("x")}
	legacy := pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED"}, Bytes: []byte("x")}
	large := file("large", "")
	require.NoError(t, os.Truncate(large, 1<<20+1))
	return invalidFiles{
		dir:       dir,
		garbage:   file("garbage", "-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n"),
		empty:     file("empty", ""),
		encrypted: file("encrypted", string(pem.EncodeToMemory(&encrypted))),
		legacy:    file("legacy", string(pem.EncodeToMemory(&legacy))),
		large:     large,
	}
}

// invalidOptions returns changes that make good options of the server invalid, each with its error.
func invalidOptions(f invalidFiles, otherKey, emptyDir string) map[string]func(*tlsconfig.ServerOptions) {
	return map[string]func(*tlsconfig.ServerOptions){
		"tls-cert-file is not given":                func(o *tlsconfig.ServerOptions) { o.CertFile = "" },
		"tls-key-file is not given":                 func(o *tlsconfig.ServerOptions) { o.KeyFile = "" },
		"tls-cert-file: stat /nosuch: no such file": func(o *tlsconfig.ServerOptions) { o.CertFile = "/nosuch" },
		"tls-cert-file: /dev/zero is not a file": func(o *tlsconfig.ServerOptions) {
			o.CertFile = "/dev/zero"
		},
		"tls-cert-file: " + f.large + " is larger than 1048576": func(o *tlsconfig.ServerOptions) { o.CertFile = f.large },
		"failed to find any PEM data":                           func(o *tlsconfig.ServerOptions) { o.CertFile = f.garbage },
		"private key does not match public key":                 func(o *tlsconfig.ServerOptions) { o.KeyFile = otherKey },
		"found a certificate rather than a key":                 func(o *tlsconfig.ServerOptions) { o.KeyFile = o.CertFile },
		f.encrypted + " is encrypted with a password":           func(o *tlsconfig.ServerOptions) { o.KeyFile = f.encrypted },
		f.legacy + " is encrypted with a password":              func(o *tlsconfig.ServerOptions) { o.KeyFile = f.legacy },
		"requires tls-ca-cert-file or tls-ca-cert-dir":          func(o *tlsconfig.ServerOptions) { o.CACertFile = "" },
		"tls-ca-cert-file: " + f.empty + " holds no PEM":        func(o *tlsconfig.ServerOptions) { o.CACertFile = f.empty },
		"tls-ca-cert-dir: open /nosuch: no such file":           func(o *tlsconfig.ServerOptions) { o.CACertDir = "/nosuch" },
		"tls-ca-cert-dir: no file in ":                          func(o *tlsconfig.ServerOptions) { o.CACertDir = emptyDir },
		"tls-protocols: TLSv1.1 is insecure": func(o *tlsconfig.ServerOptions) {
			o.Protocols = "TLSv1.1 TLSv1.2"
		},
		`tls-protocols: unknown protocol "SSLv3"`:   func(o *tlsconfig.ServerOptions) { o.Protocols = "SSLv3" },
		`tls-ciphers: unknown cipher "AES128-SHA"`:  func(o *tlsconfig.ServerOptions) { o.Ciphers = "AES128-SHA" },
		`tls-ciphers: unknown cipher "MEDIUM"`:      func(o *tlsconfig.ServerOptions) { o.Ciphers = "MEDIUM" },
		`tls-ciphers: unknown cipher "NOSUCH"`:      func(o *tlsconfig.ServerOptions) { o.Ciphers = "ALL:!NOSUCH" },
		`tls-ciphers: "ALL:!ALL" selects no cipher`: func(o *tlsconfig.ServerOptions) { o.Ciphers = "ALL:!ALL" },
		`tls-ciphers: "::" selects no cipher`:       func(o *tlsconfig.ServerOptions) { o.Ciphers = "::" },
		`tls-ciphersuites: unknown cipher suite "TLS_AES_128_CCM_SHA256"`: func(o *tlsconfig.ServerOptions) {
			o.CipherSuites = "TLS_AES_128_CCM_SHA256"
		},
		"tls-ciphersuites: TLS_AES_128_GCM_SHA256 cannot be disabled": func(o *tlsconfig.ServerOptions) {
			o.CipherSuites = "TLS_CHACHA20_POLY1305_SHA256"
		},
	}
}

// TestClientErrorsNameTheOption checks the errors for invalid options of the small client.
func TestClientErrorsNameTheOption(t *testing.T) {
	a, good := options(t)
	files := writeInvalidFiles(t)
	for _, path := range []string{files.garbage, files.large} { // each has its own error
		require.NoError(t, os.Remove(path))
	}
	for says, c := range map[string]tlsconfig.ClientOptions{
		"--key is not given":                   {Cert: good.CertFile},
		"--cert is not given":                  {Key: good.KeyFile},
		"--cacert: stat /nosuch":               {CACert: "/nosuch"},
		"--cacertdir: no file in " + files.dir: {CACertDir: files.dir},
	} {
		_, err := c.Config()
		assert.ErrorContains(t, err, says)
	}
	named := tlsconfig.ClientOptions{CACert: "/nosuch", Names: tlsconfig.Names{CACert: "the-ca-file"}}
	_, err := named.Config()
	assert.ErrorContains(t, err, "the-ca-file: stat /nosuch")
	c, err := tlsconfig.ClientOptions{CACertDir: a.Dir, Cert: good.CertFile, Key: good.KeyFile, ServerName: "x"}.Config()
	require.NoError(t, err)
	assert.Equal(t, "x", c.ServerName)
	assert.False(t, c.InsecureSkipVerify)
}

// TestDirectoryOfAuthorities checks that the directory may also contain other files,
// subdirectories, and links as openssl rehash creates them.
func TestDirectoryOfAuthorities(t *testing.T) {
	a, o := options(t)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(a.File, filepath.Join(dir, "0a1b2c3d.0")))
	require.NoError(t, os.Symlink("/nosuch", filepath.Join(dir, "dangling.0")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "README"), []byte("not PEM"), 0o600))
	o.CACertFile, o.CACertDir = "", dir
	c, err := o.Config()
	require.NoError(t, err)
	one, err := tlsconfig.ServerOptions{CertFile: o.CertFile, KeyFile: o.KeyFile, CACertFile: a.File}.Config()
	require.NoError(t, err)
	assert.True(t, one.ClientCAs.Equal(c.ClientCAs))
}

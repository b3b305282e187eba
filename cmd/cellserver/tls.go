package main

import (
	"crypto/tls"
	"net"
	"os"
	"sync/atomic"

	"cellserver/internal/option"
	"cellserver/internal/server"
	"cellserver/internal/tlsconfig"
)

// tlsOptions are what the options whose names begin with tls say, and what was made of them.
type tlsOptions struct {
	port, patience               int
	files                        tlsconfig.ServerOptions
	sessionCaching, serverChoice string

	now  *atomic.Pointer[tls.Config] // for the handshakes that begin from now on
	warn func(message string, args ...any)
}

func newTLSOptions() tlsOptions {
	return tlsOptions{patience: 10, files: tlsconfig.ServerOptions{AuthClients: "yes"}, sessionCaching: "yes",
		serverChoice: "no",
		now:          new(atomic.Pointer[tls.Config])}
}

func (t *tlsOptions) options() []*option.Option {
	list := []*option.Option{
		{Name: "tls-port", Kind: option.Number(&t.port, 0, 65535), Help: "TCP port for TLS; 0 for none"},
		{Name: "tls-handshake-timeout", Kind: option.Number(&t.patience, 1, server.MaxSeconds),
			Help: "seconds that a TLS handshake may take"},
		{Name: "tls-cert-file", Kind: option.Text(&t.files.CertFile, "path"), Change: option.Live,
			Help: "PEM file of the server's certificate, followed by intermediate certificates"},
		{Name: "tls-key-file", Kind: option.Text(&t.files.KeyFile, "path"), Change: option.Live,
			Help: "PEM file of the certificate's key"},
		{Name: "tls-ca-cert-file", Kind: option.Text(&t.files.CACertFile, "path"), Change: option.Live,
			Help: "PEM file of the authorities that issue clients' certificates"},
		{Name: "tls-ca-cert-dir", Kind: option.Text(&t.files.CACertDir, "path"), Change: option.Live,
			Help: "directory of such files"},
		{Name: "tls-auth-clients", Kind: option.Choice(&t.files.AuthClients, "no", "yes", "optional"), Change: option.Live,
			Help: "clients need a certificate; optional: a certificate that is shown must be valid"},
		{Name: "tls-protocols", Kind: option.Text(&t.files.Protocols, "versions"), Change: option.Live,
			Help: "versions of TLS, TLSv1.2 and TLSv1.3, separated by a space; both by default"},
		{Name: "tls-ciphers", Kind: option.Text(&t.files.Ciphers, "names"), Change: option.Live,
			Help: "ciphers for TLS 1.2, by OpenSSL's names, separated by colons; the safe ones by default"},
		{Name: "tls-ciphersuites", Kind: option.Text(&t.files.CipherSuites, "names"), Change: option.Live,
			Help: "cipher suites for TLS 1.3, where all are offered and none can be left out"},
		{Name: "tls-session-caching", Kind: option.YesNo(&t.sessionCaching), Change: option.Live,
			Help: "clients may resume sessions without a full handshake"},
		{Name: "tls-prefer-server-ciphers", Kind: option.YesNo(&t.serverChoice), Change: option.Live,
			Help: "accepted for compatibility; has no effect: the cipher is one that both sides' processors are fast at"},
	}
	for _, o := range list {
		o.Group = "TLS"
	}
	return list
}

// load reads the files anew, while nobody changes the options. If anything is wrong with them
// everything stays as it was. Without TLS there is nothing to read.
func (t *tlsOptions) load() error {
	if t.port == 0 {
		return nil
	}
	t.files.SessionCaching = t.sessionCaching == "yes"
	made, err := t.files.Config()
	if err != nil {
		return err
	}
	t.now.Store(made)
	return nil
}

// handshakes are what the connections of a TLS listener are met with.
func (t *tlsOptions) handshakes() server.TLSOptions {
	return server.TLSOptions{Config: t.now.Load, Timeout: inSeconds(t.patience)}
}

// securely marks a listener whose connections begin with a handshake.
type securely struct{ net.Listener }

// heed has changed options take effect. Those of TLS do so together: a certificate and its key.
func (c *config) heed() {
	var live []string
	for _, o := range c.tls.options() {
		if o.Change == option.Live {
			live = append(live, o.Name)
		}
	}
	c.options.OnChange(func() error {
		if err := c.tls.load(); err != nil {
			c.tls.warn("the TLS configuration stays as it was", "error", err)
			return refusal("Unable to update TLS configuration. Check server logs.")
		}
		return nil
	}, live...)
	c.options.OnChange(c.log.heed, "loglevel")
	c.options.OnChange(func() error {
		c.network.keepAliveNow.Store(int64(c.network.keepAlive))
		return nil
	}, "tcp-keepalive")
}

// refusal is an error in Redis's words, which are sentences.
type refusal string

func (r refusal) Error() string { return string(r) }

// reload reads the files anew on every SIGHUP. Without TLS the signal means nothing, as to Redis;
// it never ends the process.
func (c *config) reload(hangUps <-chan os.Signal, done <-chan struct{}, say func(message string, args ...any)) {
	for {
		select {
		case <-done:
			return
		case <-hangUps:
		}
		var err error
		c.options.WithLock(func() { err = c.tls.load() })
		switch {
		case err != nil:
			c.tls.warn("SIGHUP: the TLS configuration stays as it was", "error", err)
		case c.tls.port != 0:
			say("SIGHUP: TLS certificates reloaded")
		}
	}
}

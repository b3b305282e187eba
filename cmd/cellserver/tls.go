package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"cellserver/internal/option"
	"cellserver/internal/server"
	"cellserver/internal/tlsconfig"
)

// tlsOptions holds the options of TLS, and the configuration that was built from them.
type tlsOptions struct {
	port, httpPort, monitorPort, grpcPort int
	handshakeTimeout                      int
	files                                 tlsconfig.ServerOptions
	sessionCaching, preferServerCiphers   string
	clientsUser                           string

	current *atomic.Pointer[tls.Config]         // configuration of new connections
	ends    *atomic.Pointer[tlsconfig.Expiries] // of its certificates
	byName  *atomic.Bool                        // certificates name users
	// turns bounds how many handshakes, and requests of unauthenticated peers over HTTP, compute at once, on all ports.
	turns chan struct{}
	warn  func(message string, args ...any)
}

func newTLSOptions() tlsOptions {
	return tlsOptions{handshakeTimeout: 10, files: tlsconfig.ServerOptions{AuthClients: "yes"}, sessionCaching: "yes",
		preferServerCiphers: "no", clientsUser: "off",
		current: new(atomic.Pointer[tls.Config]), ends: new(atomic.Pointer[tlsconfig.Expiries]),
		byName: new(atomic.Bool), turns: server.NewTurns()}
}

func (t *tlsOptions) options() []*option.Option {
	list := []*option.Option{
		{Name: "tls-port", Kind: option.Number(&t.port, 0, 65535), Help: "TCP port for TLS; 0 for none"},
		{Name: "http-tls-port", Kind: option.Number(&t.httpPort, 0, 65535),
			Help: "TCP port for calls over HTTP with TLS; 0 for none",
			Use:  "Set it if requests over HTTP cross a network that others can read."},
		{Name: "metrics-tls-port", Kind: option.Number(&t.monitorPort, 0, 65535),
			Help: "TCP port for what --metrics-port has, with TLS; 0 for none",
			Use:  "Set it if metrics, or logins on the page, cross a network that others can read."},
		{Name: "grpc-tls-port", Kind: option.Number(&t.grpcPort, 0, 65535),
			Help: "TCP port for what --grpc-port has, with TLS; 0 for none",
			Use:  "Set it if the requests of Envoys cross a network that others can read."},
		{Name: "tls-handshake-timeout", Kind: option.Time(&t.handshakeTimeout, time.Second, 1, server.MaxSeconds),
			Help: "seconds that a TLS handshake may take",
			Use:  "Raise it for clients on very slow networks; lower it to end stalled handshakes sooner."},
		{Name: "tls-cert-file", Kind: option.Text(&t.files.CertFile, "path"), Change: option.Live,
			Help: "PEM file of the server's certificate, followed by intermediate certificates"},
		{Name: "tls-key-file", Kind: option.Text(&t.files.KeyFile, "path"), Change: option.Live,
			Help: "PEM file of the certificate's key"},
		{Name: "tls-ca-cert-file", Kind: option.Text(&t.files.CACertFile, "path"), Change: option.Live,
			Help: "PEM file of the authorities that issue clients' certificates"},
		{Name: "tls-ca-cert-dir", Kind: option.Text(&t.files.CACertDir, "path"), Change: option.Live,
			Help: "directory of PEM files of such authorities"},
		{Name: "tls-auth-clients", Kind: option.Choice(&t.files.AuthClients, "no", "yes", "optional"),
			Change: option.Live,
			Help:   "clients need a certificate; optional: a certificate that is shown must be valid"},
		{Name: "tls-auth-clients-user", Kind: option.Choice(&t.clientsUser, "off", "CN"), Change: option.Live,
			Help: "CN: a client is logged in as the user whose name is the CN of its certificate"},
		{Name: "tls-protocols", Kind: option.Text(&t.files.Protocols, "versions"), Change: option.Live,
			Help: "versions of TLS, TLSv1.2 and TLSv1.3, separated by a space; both by default"},
		{Name: "tls-ciphers", Kind: option.Text(&t.files.Ciphers, "names"), Change: option.Live,
			Help: "ciphers for TLS 1.2, by OpenSSL's names, separated by colons; by default, all that are secure"},
		{Name: "tls-ciphersuites", Kind: option.Text(&t.files.CipherSuites, "names"), Change: option.Live,
			Help: "cipher suites for TLS 1.3, where all are offered and none can be left out"},
		{Name: "tls-session-caching", Kind: option.YesNo(&t.sessionCaching), Change: option.Live,
			Help: "clients may resume sessions without a full handshake"},
		{Name: "tls-prefer-server-ciphers", Kind: option.YesNo(&t.preferServerCiphers), Change: option.Live,
			Help: "accepted for compatibility; has no effect: the cipher that is fastest on both sides is chosen"},
	}
	for _, o := range list {
		o.Group = "TLS"
	}
	return list
}

// load reads the files and replaces the configuration. After an error the configuration stays.
// Without a port with TLS it does nothing. The caller must prevent changes of options meanwhile.
func (t *tlsOptions) load() error {
	if !t.isUsed() {
		return nil
	}
	t.files.SessionCaching = t.sessionCaching == "yes"
	made, ends, err := t.files.Load()
	if err != nil {
		return err
	}
	t.current.Store(made)
	t.ends.Store(&ends)
	t.byName.Store(t.clientsUser == "CN")
	return nil
}

// isUsed reports whether a port has TLS.
func (t *tlsOptions) isUsed() bool { return t.port+t.httpPort+t.monitorPort+t.grpcPort != 0 }

// handshakes returns the options of the TLS listeners.
func (t *tlsOptions) handshakes() server.TLSOptions {
	return server.TLSOptions{Config: t.current.Load, Timeout: inSeconds(t.handshakeTimeout), User: t.userOf,
		Computing: t.turns}
}

// userOf returns the user that the certificate of a peer names; empty for none.
func (t *tlsOptions) userOf(c tls.ConnectionState) string {
	if !t.byName.Load() {
		return ""
	}
	return tlsconfig.CommonName(c)
}

// tlsListener marks a listener whose connections begin with a TLS handshake.
type tlsListener struct{ net.Listener }

// registerHooks registers the functions that apply changed options. All options of TLS have one
// hook, so that a certificate and its key can be changed together.
func (c *config) registerHooks() {
	var live []string
	for _, o := range c.tls.options() {
		if o.Change == option.Live {
			live = append(live, o.Name)
		}
	}
	c.options.OnChange(func() error {
		if err := c.tls.load(); err != nil {
			c.tls.warn("the TLS configuration was not changed", "error", err)
			return redisError("Unable to update TLS configuration. Check server logs.")
		}
		return nil
	}, live...)
	c.options.OnChange(c.log.applyLevel, "loglevel")
	c.options.OnChange(func() error {
		c.network.currentKeepAlive.Store(int64(c.network.keepAlive))
		return nil
	}, "tcp-keepalive")
}

// redisError is an error in Redis's words, which are sentences.
type redisError string

func (r redisError) Error() string { return string(r) }

// watchFiles reads files again on every SIGHUP, and files with limits also whenever they change.
func (c *config) watchFiles(ctx context.Context, hangUps <-chan os.Signal, log *slog.Logger) {
	go c.reload(ctx, hangUps, log)
	if path := c.commands.Policies.Path; path != "" {
		w := policyWatch{find: func() ([]policyFile, error) { return findPolicies(path) }}
		go w.watch(ctx, time.Tick(lookEvery), c.policies.Look)
	}
	if c.image.isUsed && c.tls.isUsed() {
		w := policyWatch{find: c.tls.find}
		go w.watch(ctx, time.Tick(lookEvery), func() { c.renewTLS(log) })
	}
	if c.envoy.files != nil {
		w := policyWatch{find: func() ([]policyFile, error) { return findEnvoyFiles(c.grpc.Config) }}
		go w.watch(ctx, time.Tick(lookEvery), c.envoy.files.Look)
	}
}

// find returns the files of certificates.
func (t *tlsOptions) find() (files []policyFile, err error) {
	for _, path := range []string{t.files.CertFile, t.files.KeyFile, t.files.CACertFile} {
		if path == "" {
			continue
		}
		f := policyFile{path: path}
		if f.info, err = os.Stat(path); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// renewTLS reads the files of certificates, because they may have changed. While they are being written, they are not
// valid: then it is called again soon.
func (c *config) renewTLS(log *slog.Logger) {
	var err error
	c.options.WithLock(func() { err = c.tls.load() })
	if err != nil {
		log.Debug("the TLS configuration was not changed", "error", err)
	}
}

// reload opens the log file and reads other files again on every SIGHUP. Without a log file, TLS, policies
// and files about the store, the signal has no effect, as in Redis.
func (c *config) reload(ctx context.Context, hangUps <-chan os.Signal, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangUps:
		}
		c.log.reopen(log)
		var err error
		c.options.WithLock(func() { err = c.tls.load() })
		switch {
		case err != nil:
			c.tls.warn("SIGHUP: the TLS configuration was not changed", "error", err)
		case c.tls.isUsed():
			log.Info("SIGHUP: TLS certificates reloaded")
		}
		_, _ = c.policies.Reload() // logs what it has done
		if c.envoy.files != nil {
			c.envoy.files.Load()
		}
		if c.store.renew == nil {
			continue
		}
		if err := c.store.renew(ctx); err != nil {
			log.Warn("SIGHUP: a new connection to the store failed: those that are open stay as they are", "error", err)
		} else {
			log.Info("SIGHUP: the files about the store were read again: its connections authenticate again")
		}
	}
}

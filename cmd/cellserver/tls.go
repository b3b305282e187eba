package main

import (
	"crypto/tls"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"

	"cellserver/internal/secure"
	"cellserver/internal/server"
)

// tlsOptions are what the options whose names begin with tls say, and what was made of them.
type tlsOptions struct {
	port, patience               int
	files                        secure.Options
	sessionCaching, serverChoice string

	now  atomic.Pointer[tls.Config] // for the handshakes that begin from now on
	warn func(message string, args ...any)
}

func (c *config) defineTLS(f *pflag.FlagSet) {
	t := &c.tls
	t.patience, t.files.AuthClients, t.sessionCaching, t.serverChoice = 10, "yes", "yes", "no"
	f.Var(number{&t.port, 0, 65535}, "tls-port", "TCP port for TLS; 0 for none")
	f.StringVar(&t.files.CertFile, "tls-cert-file", "", "PEM file of the server's certificate, and those that lead to its authority")
	f.StringVar(&t.files.KeyFile, "tls-key-file", "", "PEM file of that certificate's key")
	f.StringVar(&t.files.CACertFile, "tls-ca-cert-file", "", "PEM file of the authorities that clients' certificates come from")
	f.StringVar(&t.files.CACertDir, "tls-ca-cert-dir", "", "directory of such files")
	f.Var(choice{&t.files.AuthClients, []string{"no", "yes", "optional"}}, "tls-auth-clients", "clients need a certificate; optional: if they show one it must be good")
	f.StringVar(&t.files.Protocols, "tls-protocols", "", "versions of TLS, TLSv1.2 and TLSv1.3, with a space between; both without")
	f.StringVar(&t.files.Ciphers, "tls-ciphers", "", "ciphers for TLS 1.2, in OpenSSL's names with colons between; those that are safe without")
	f.StringVar(&t.files.CipherSuites, "tls-ciphersuites", "", "for TLS 1.3, where all are offered and none can be left out")
	f.Var(choice{&t.sessionCaching, []string{"yes", "no"}}, "tls-session-caching", "clients that come back need not shake hands anew")
	f.Var(choice{&t.serverChoice, []string{"yes", "no"}}, "tls-prefer-server-ciphers", "taken, and without effect: the cipher is what both sides' processors are fast at")
	f.Var(number{&t.patience, 1, maxSeconds}, "tls-handshake-timeout", "seconds that a handshake may take")
}

// load reads the files anew, while nobody changes the options. If anything is wrong with them everything stays as it was. Without TLS there is nothing to read.
func (t *tlsOptions) load() error {
	if t.port == 0 {
		return nil
	}
	t.files.SessionCaching = t.sessionCaching == "yes"
	made, err := t.files.Server()
	if err != nil {
		return err
	}
	t.now.Store(made)
	return nil
}

// handshakes are what the connections of a TLS listener are met with.
func (t *tlsOptions) handshakes() server.Handshakes {
	return server.Handshakes{Config: t.now.Load, Timeout: inSeconds(t.patience)}
}

// securely marks a listener whose connections begin with a handshake.
type securely struct{ net.Listener }

// isTLS says whether an option says how hands are shaken, and can be changed while the server runs.
func isTLS(name string) bool {
	return strings.HasPrefix(name, "tls-") && name != "tls-port" && name != "tls-handshake-timeout"
}

// settle has changed options take effect that do so together: a certificate and its key. It returns the one that is to blame.
func (c *config) settle(names []string) (blamed string, err error) {
	for _, name := range names {
		if !isTLS(name) {
			continue
		}
		if err := c.tls.load(); err != nil {
			c.tls.warn("the TLS configuration stays as it was", "error", err)
			return name, refusal("Unable to update TLS configuration. Check server logs.")
		}
		return "", nil
	}
	return "", nil
}

// reload reads the files anew on every SIGHUP. Without TLS the signal means nothing, as to Redis; it never ends the process.
func (c *config) reload(hangUps <-chan os.Signal, done <-chan struct{}, say func(message string, args ...any)) {
	for {
		select {
		case <-done:
			return
		case <-hangUps:
		}
		var err error
		c.running.instance.HoldSettings(func() { err = c.tls.load() })
		switch {
		case err != nil:
			c.tls.warn("SIGHUP: the TLS configuration stays as it was", "error", err)
		case c.tls.port != 0:
			say("SIGHUP: the TLS certificates are read anew")
		}
	}
}

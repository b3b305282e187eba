package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"

	"cellserver/internal/httpapi"
	"cellserver/internal/session"
	"cellserver/internal/web"
)

// listen opens all listeners: those for the protocol of Redis, and those for HTTP.
func (c *config) listen(instance *session.Instance, log *slog.Logger) ([]net.Listener, []httpPort, error) {
	listeners, err := listen(&c.network, &c.tls)
	if err == nil && len(listeners) == 0 && !c.servesEnvoy() {
		err = errNoListeners
	}
	if err != nil {
		return nil, nil, err
	}
	ports, err := c.openHTTP(instance, log)
	if err != nil {
		closeAll(listeners)
	}
	return listeners, ports, err
}

// isProtected returns the function that reports whether protected mode refuses peers on other
// machines: both its option and the need of a password may change.
func (c *config) isProtected(instance *session.Instance) func() bool {
	return func() bool { return c.server.ProtectedMode == "yes" && !instance.NeedsPassword() }
}

// httpPort is a listener for calls over HTTP, and the server that serves it.
type httpPort struct {
	listener net.Listener
	server   *web.Server
	kind     string // http or https
}

// openHTTP opens the listeners for calls over HTTP, as --http-port, --http-tls-port and
// --http-unixsocket say.
func (c *config) openHTTP(instance *session.Instance, log *slog.Logger) (ports []httpPort, err error) {
	api := httpapi.New(httpapi.Config{
		Instance: instance, Policies: c.policies.InForce, Settings: c.http, Log: log,
		CertificateUser: c.tls.userOf, NamesUsers: c.tls.byName.Load, Turns: c.tls.turns,
		Protected: c.isProtected(instance),
	})
	instance.Metrics = append(instance.Metrics, api.Metrics())
	if c.http.Port+c.tls.httpPort > 0 || c.http.UnixSocket != "" {
		c.policies.OnReload(api.CheckPolicies)
	}
	defer func() {
		if err != nil {
			closeAll(listenersOf(ports))
		}
	}()
	for _, p := range []struct {
		option  string
		port    int
		secured func() *tls.Config
	}{{"http-port", c.http.Port, nil}, {"http-tls-port", c.tls.httpPort, c.tls.current.Load}} {
		if p.port == 0 {
			continue
		}
		listeners, err := listenAll(&c.network, p.option, p.port)
		ports = append(ports, portsOf(api, listeners, p.secured)...)
		if err != nil {
			return ports, err
		}
	}
	if path := c.http.UnixSocket; path != "" {
		l, err := listenUnix("http-unixsocket", path, c.network.unixSocketPerm)
		if err != nil {
			return ports, err
		}
		ports = append(ports, portsOf(api, []net.Listener{l}, nil)...)
	}
	return ports, nil
}

// portsOf returns listeners with a server for all of them.
func portsOf(api *httpapi.API, listeners []net.Listener, secured func() *tls.Config) (ports []httpPort) {
	server, kind := api.NewServer(secured), "http"
	if secured != nil {
		kind = "https"
	}
	for _, l := range listeners {
		if secured != nil {
			l = tlsListener{l}
		}
		ports = append(ports, httpPort{l, server, kind})
	}
	return ports
}

func listenersOf(ports []httpPort) (listeners []net.Listener) {
	for _, p := range ports {
		listeners = append(listeners, p.listener)
	}
	return listeners
}

// serveHTTP serves all listeners, and logs each. The channel receives the error of one that fails.
func serveHTTP(ports []httpPort, failed chan<- error, log *slog.Logger) {
	for _, p := range ports {
		go func() {
			if err := p.server.Serve(p.listener); !errors.Is(err, web.ErrClosed) {
				select {
				case failed <- err:
				default: // another has failed, and the server stops
				}
			}
		}()
		log.Info("listening", "network", p.kind, "address", p.listener.Addr())
	}
}

// shutDownHTTP answers the requests that have arrived, and closes all connections. When ctx is done, it
// closes the connections that are left.
func shutDownHTTP(ctx context.Context, ports []httpPort) {
	var servers sync.WaitGroup
	for _, p := range ports {
		servers.Go(func() { _ = p.server.Shutdown(ctx) }) // an error means that connections were left
	}
	servers.Wait()
}

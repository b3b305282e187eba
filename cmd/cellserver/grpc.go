package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"

	"cellserver/internal/envoy"
	"cellserver/internal/grpcapi"
	"cellserver/internal/session"
	"cellserver/internal/xds"
)

// grpcPorts are the listeners for Envoy's rate limit service, and the server that serves them.
type grpcPorts struct {
	listeners []net.Listener
	http      []httpPort      // of --envoy-http-port
	server    *grpcapi.Server // nil if there are none
}

// servesEnvoy reports whether there are such listeners.
func (c *config) servesEnvoy() bool {
	return c.grpc.Port+c.tls.grpcPort != 0 || c.grpc.UnixSocket != ""
}

// envoys is the configuration of Envoy's rate limits, and where it comes from.
type envoys struct {
	current *envoy.Current // nil without a port for Envoys
	files   *envoy.Files   // nil with a control plane
	xds     *xds.Client    // nil with files
}

// loadEnvoy reads the configuration of Envoy's rate limits. As in the original, a server starts with one that is
// refused, and answers requests with an error until it is mended.
func (c *config) loadEnvoy(log *slog.Logger) (err error) {
	path, plane := c.grpc.Config, c.xds.Address
	switch {
	case path == "" && plane == "" && c.servesEnvoy():
		return errors.New("--grpc-port, --grpc-tls-port and --grpc-unixsocket need --envoy-config: the path of a configuration of envoyproxy/ratelimit; or --envoy-xds")
	case path == "" && plane == "":
		return nil
	case path != "" && plane != "":
		return errors.New("--envoy-config and --envoy-xds cannot be used together")
	case !c.servesEnvoy():
		return errors.New("--envoy-config and --envoy-xds need --grpc-port, --grpc-tls-port or --grpc-unixsocket")
	case c.commands.MaxKeySize < leastKeySize:
		return errors.New("--max-key-size must be at least 1024 with --grpc-port")
	}
	files := &envoy.Files{Read: func() ([]envoy.File, error) { return readEnvoyFiles(path) }}
	c.envoy.current = &files.Current
	c.envoy.current.MergeDomains, c.envoy.current.Log = c.grpc.MergeDomains == "yes", log
	if plane != "" {
		c.envoy.xds, err = xds.New(c.xds, c.envoy.current, log)
		return err
	}
	c.envoy.files = files
	files.Load()
	return nil
}

// awaitEnvoy starts to ask the control plane, if there is one, and waits for a configuration if --envoy-xds-wait says
// so. It reports whether there is one before ctx is done.
func (c *config) awaitEnvoy(ctx context.Context, log *slog.Logger) bool {
	if c.envoy.xds == nil {
		return true
	}
	go c.envoy.xds.Run(ctx)
	if c.xds.Wait == "no" {
		return true
	}
	log.Info("waiting for the configuration of --envoy-xds", "address", c.xds.Address)
	select {
	case <-c.envoy.xds.First():
		return true
	case <-ctx.Done():
		return false
	}
}

// leastKeySize is more than the length, in bytes, of the keys that count for Envoys, with a prefix.
const leastKeySize = 1024

// openGRPC opens the listeners of --grpc-port, --grpc-tls-port and --grpc-unixsocket.
func (c *config) openGRPC(instance *session.Instance, log *slog.Logger) (*grpcPorts, error) {
	p := new(grpcPorts)
	if !c.servesEnvoy() {
		return p, nil
	}
	p.server = grpcapi.New(grpcapi.Config{
		Instance: instance, Settings: c.grpc, Prefix: c.commands.Policies.Prefix, InForce: c.envoy.current.InForce,
		IsFailing: c.envoy.current.IsFailing, Protected: c.isProtected(instance), Log: log,
		TLS: c.tls.current.Load, Turns: c.tls.turns, CertificateUser: c.tls.userOf, NamesUsers: c.tls.byName.Load,
	})
	c.envoy.current.OnChange(func() {
		p.server.CheckHealth()
		c.checkEnvoyPolicies(log)
	})
	c.policies.OnReload(func() { c.checkEnvoyPolicies(log) })
	instance.Metrics = append(instance.Metrics, p.server.Metrics())
	if c.image.isUsed {
		instance.Metrics = append(instance.Metrics, p.server.OriginalMetrics())
	}
	err := c.listenGRPC(p)
	if err == nil {
		err = c.listenEnvoyHTTP(p)
	}
	if err != nil {
		closeAll(slices.Concat(p.listeners, listenersOf(p.http)))
	}
	return p, err
}

// checkEnvoyPolicies warns of descriptors whose policy does not exist.
func (c *config) checkEnvoyPolicies(log *slog.Logger) {
	config := c.envoy.current.InForce()
	if config == nil {
		return
	}
	for _, unknown := range config.Unknown(isIn(c.policies.InForce())) {
		log.Warn("the configuration of Envoy's rate limits names a policy that does not exist", "at", unknown)
	}
}

// listenGRPC opens the listeners.
func (c *config) listenGRPC(p *grpcPorts) error {
	for _, o := range []struct {
		option    string
		port      int
		isSecured bool
	}{{"grpc-port", c.grpc.Port, false}, {"grpc-tls-port", c.tls.grpcPort, true}} {
		if o.port == 0 {
			continue
		}
		listeners, err := listenAll(&c.network, o.option, o.port)
		for _, l := range listeners {
			if o.isSecured {
				l = tlsListener{l}
			}
			p.listeners = append(p.listeners, l)
		}
		if err != nil {
			return err
		}
	}
	if path := c.grpc.UnixSocket; path != "" {
		l, err := listenUnix("grpc-unixsocket", path, c.network.unixSocketPerm)
		if err != nil {
			return err
		}
		p.listeners = append(p.listeners, l)
	}
	return nil
}

// listenEnvoyHTTP opens the listeners of --envoy-http-port and, in the place of envoyproxy/ratelimit, of its port
// for debugging. Both have the same paths.
func (c *config) listenEnvoyHTTP(p *grpcPorts) error {
	served := p.server.NewHTTP()
	for _, o := range []struct {
		option string
		port   int
	}{{"envoy-http-port", c.grpc.HTTPPort}, {"DEBUG_PORT", c.image.debugPort}} {
		if o.port == 0 {
			continue
		}
		listeners, err := listenAll(&c.network, o.option, o.port)
		for _, l := range listeners {
			p.http = append(p.http, httpPort{l, served, "http"})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// serve serves all listeners, and logs each. The channel receives the error of one that fails.
func (p *grpcPorts) serve(failed chan<- error, log *slog.Logger) {
	for _, l := range p.listeners {
		serve := p.server.Serve
		if _, isSecured := l.(tlsListener); isSecured {
			serve = p.server.ServeTLS
		}
		go func() {
			if err := serve(l); !grpcapi.IsClosed(err) {
				select {
				case failed <- err:
				default: // another has failed, and the server stops
				}
			}
		}()
		log.Info("listening", "network", "grpc", "address", l.Addr())
	}
	serveHTTP(p.http, failed, log)
}

// shutDown answers the requests that have arrived, and closes all connections. When ctx is done, it closes those that
// are left.
func (p *grpcPorts) shutDown(ctx context.Context) {
	if p.server != nil {
		p.server.Drain()
		shutDownHTTP(ctx, p.http)
		p.server.Shutdown(ctx)
	}
}

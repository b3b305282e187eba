package main

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"cellserver/internal/envoy"
	"cellserver/internal/grpcapi"
	"cellserver/internal/session"
)

// grpcPorts are the listeners for Envoy's rate limit service, and the server that serves them.
type grpcPorts struct {
	listeners []net.Listener
	server    *grpcapi.Server // nil if there are none
}

// servesEnvoy reports whether there are such listeners.
func (c *config) servesEnvoy() bool { return c.grpc.Port != 0 || c.grpc.UnixSocket != "" }

// loadEnvoy reads the configuration of Envoy's rate limits. As in the original, a server starts with one that is
// refused, and answers requests with an error until it is mended.
func (c *config) loadEnvoy(log *slog.Logger) error {
	path := c.grpc.Config
	switch {
	case path == "" && c.servesEnvoy():
		return errors.New("--grpc-port and --grpc-unixsocket need --envoy-config: the path of a configuration of envoyproxy/ratelimit")
	case path == "":
		return nil
	case !c.servesEnvoy():
		return errors.New("--envoy-config needs --grpc-port or --grpc-unixsocket")
	case c.commands.MaxKeySize < leastKeySize:
		return errors.New("--max-key-size must be at least 1024 with --grpc-port")
	}
	c.envoy = &envoy.Files{MergeDomains: c.grpc.MergeDomains == "yes", Log: log,
		Read: func() ([]envoy.File, error) { return readEnvoyFiles(path) }}
	c.envoy.Load()
	return nil
}

// leastKeySize is more than the length, in bytes, of the keys that count for Envoys, with a prefix.
const leastKeySize = 1024

// openGRPC opens the listeners of --grpc-port and --grpc-unixsocket.
func (c *config) openGRPC(instance *session.Instance, log *slog.Logger) (*grpcPorts, error) {
	p := new(grpcPorts)
	if !c.servesEnvoy() {
		return p, nil
	}
	p.server = grpcapi.New(grpcapi.Config{
		Instance: instance, Settings: c.grpc, Prefix: c.commands.Policies.Prefix, InForce: c.envoy.InForce,
		IsFailing: c.envoy.IsFailing, Protected: c.isProtected(instance), Log: log,
	})
	instance.Metrics = append(instance.Metrics, p.server.Metrics())
	var err error
	if c.grpc.Port != 0 {
		if p.listeners, err = listenAll(&c.network, "grpc-port", c.grpc.Port); err != nil {
			closeAll(p.listeners)
			return p, err
		}
	}
	if path := c.grpc.UnixSocket; path != "" {
		l, err := listenUnix("grpc-unixsocket", path, c.network.unixSocketPerm)
		if err != nil {
			closeAll(p.listeners)
			return p, err
		}
		p.listeners = append(p.listeners, l)
	}
	return p, nil
}

// serve serves all listeners, and logs each. The channel receives the error of one that fails.
func (p *grpcPorts) serve(failed chan<- error, log *slog.Logger) {
	for _, l := range p.listeners {
		go func() {
			if err := p.server.Serve(l); !grpcapi.IsClosed(err) {
				select {
				case failed <- err:
				default: // another has failed, and the server stops
				}
			}
		}()
		log.Info("listening", "network", "grpc", "address", l.Addr())
	}
}

// shutDown answers the requests that have arrived, and closes all connections. When ctx is done, it closes those that
// are left.
func (p *grpcPorts) shutDown(ctx context.Context) {
	if p.server != nil {
		p.server.Shutdown(ctx)
	}
}

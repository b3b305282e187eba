package main

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"cellserver/internal/monitor"
	"cellserver/internal/option"
	"cellserver/internal/page"
	"cellserver/internal/server"
	"cellserver/internal/session"
	"cellserver/internal/store"
	"cellserver/internal/web"
)

// monitorOptions holds the options of the port for operators of the server.
type monitorOptions struct {
	port          int
	needsStore    string
	page          *page.Settings
	profiles      string
	shutdownDelay int           // seconds
	atOnce        chan struct{} // closed when a client has called SHUTDOWN
}

func newMonitorOptions() monitorOptions {
	return monitorOptions{needsStore: "no", profiles: "no", page: page.NewSettings(), atOnce: make(chan struct{})}
}

// withoutDelay returns the function that SHUTDOWN calls. It also ends a delay that a signal has begun.
func (o *monitorOptions) withoutDelay(stop func()) func() {
	closeOnce := sync.OnceFunc(func() { close(o.atOnce) })
	return func() {
		closeOnce()
		stop()
	}
}

func (o *monitorOptions) options() []*option.Option {
	const group = "Monitoring"
	own := []*option.Option{
		{Name: "metrics-port", Group: group, Kind: option.Number(&o.port, 0, 65535),
			Help: "TCP port for HTTP, on the addresses of --bind: /metrics for Prometheus, /healthz and /readyz, and a page for browsers; 0 for none",
			Use:  "Set it to monitor the server, and for the probes of Kubernetes."},
		{Name: "ready-needs-store", Group: group, Kind: option.YesNo(&o.needsStore),
			Help: "/readyz fails while the store (--store) does not answer, with --store-fails error",
			Use:  "Set it if a load balancer should prefer servers that reach the store."},
		{Name: "metrics-profiles", Group: group, Kind: option.YesNo(&o.profiles),
			Help: "/debug/pprof/ on the port of metrics: Go's profiles, for users on this machine that may call DEBUG",
			Use:  "Set it to find out what the server's time and memory are used for."},
		{Name: "shutdown-delay", Group: group, Kind: option.Time(&o.shutdownDelay, time.Second, 0, server.MaxSeconds),
			Help: "seconds for which clients are served after SIGTERM, while /readyz fails; not after SHUTDOWN",
			Use:  "Set it if a load balancer goes on sending clients for a while after /readyz fails."},
	}
	return append(own, o.page.Options()...)
}

// monitoring is the ports for operators of the server. Without one, it only has the health.
type monitoring struct {
	health *monitor.Health
	page   *page.Page // nil if there is none
	ports  []httpPort
}

// isMonitored reports whether there is a port for operators.
func (c *config) isMonitored() bool { return c.monitor.port != 0 || c.tls.monitorPort != 0 }

// openMonitoring opens the listeners of --metrics-port and --metrics-tls-port.
func (c *config) openMonitoring(instance *session.Instance, log *slog.Logger) (*monitoring, error) {
	m := &monitoring{health: &monitor.Health{IsLoading: instance.Persistence.IsLoading}}
	if !c.isMonitored() {
		return m, nil
	}
	if c.monitor.profiles == "yes" && c.monitor.page.Open == "yes" {
		return nil, errors.New("--metrics-profiles and --page-open cannot be used together")
	}
	if instance.Store.MayBlock() {
		m.health.NeedsStore = func() bool {
			return c.monitor.needsStore == "yes" && c.options.Show("store-fails") == "error"
		}
		m.health.CheckStore = monitor.Rarely(instance.Now, checkKey(instance.Store))
	}
	paths := monitor.Config{Metrics: instance.Metrics, Health: m.health, Log: log}
	if !c.image.isUsed { // there, every peer can reach the port
		m.page = page.New(page.Config{Instance: instance, Settings: c.monitor.page, Log: log,
			CertificateUser: c.tls.userOf})
		paths.Page = m.page
	}
	if used := c.certificates(instance.Now); used != nil {
		paths.Certificates = used.expiries
	}
	if c.monitor.profiles == "yes" {
		paths.Profile = monitor.Profiles(mayProfile(instance))
	}
	var err error
	m.ports, err = c.listenForOperators(monitor.New(paths), instance, log)
	return m, err
}

// listenForOperators opens the listeners, each with the server that serves it.
func (c *config) listenForOperators(handler http.Handler, instance *session.Instance, log *slog.Logger) (
	ports []httpPort, err error) {
	for _, p := range []struct {
		option, kind string
		port         int
		secured      func() *tls.Config
	}{
		{"metrics-port", "http", c.monitor.port, nil},
		{"metrics-tls-port", "https", c.tls.monitorPort, c.tls.current.Load},
	} {
		if p.port == 0 {
			continue
		}
		listeners, err := listenAll(&c.network, p.option, p.port)
		served := web.New(web.Config{Name: p.option, Log: log, MaxConns: maxMonitors,
			Protected: c.isProtected(instance),
			Handler:   handler, TLS: p.secured, Turns: c.tls.turns,
			Unauthenticated: instance.Unauthenticated()})
		for _, l := range listeners {
			ports = append(ports, httpPort{l, served, p.kind})
		}
		if err != nil {
			closeAll(listenersOf(ports))
			return nil, err
		}
	}
	return ports, nil
}

// mayProfile returns the function that decides about requests for profiles, which slow the server down.
func mayProfile(instance *session.Instance) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !web.IsLocal(r) {
			http.Error(w, "profiles are for users on this machine", http.StatusForbidden)
			return false
		}
		account := web.UserOf(w, r, instance.Accounts, "")
		if account != nil && !instance.MayCall(account, "debug") {
			http.Error(w, "NOPERM profiles are for users that may call DEBUG", http.StatusForbidden)
			account = nil
		}
		return account != nil
	}
}

// maxMonitors bounds the connections to each port.
const maxMonitors = 256

// checkKey returns a function that asks the store for a key.
func checkKey(data store.Store) func(ctx context.Context) error {
	key := [][]byte{[]byte("cellserver:ready")}
	return func(ctx context.Context) error {
		view := data.View()
		view.Begin()
		_, err := view.Count(ctx, key)
		return err
	}
}

// serve serves the ports.
func (m *monitoring) serve(log *slog.Logger) {
	for _, p := range m.ports {
		go func() {
			if err := p.server.Serve(p.listener); err != web.ErrClosed {
				log.Error("a port for metrics is not served any more", "error", err)
			}
		}()
		log.Info("listening", "network", p.kind, "address", p.listener.Addr(), "for", "metrics")
	}
}

// drain makes the server unready, and waits for a while, in which load balancers notice. Clients are served
// meanwhile. It returns the error of a listener that fails.
func (c *config) drain(m *monitoring, failed <-chan error, log *slog.Logger) error {
	m.health.Drain()
	if c.monitor.shutdownDelay == 0 {
		return nil
	}
	log.Info("shutting down: unready, and serving clients for a while", "seconds", c.monitor.shutdownDelay)
	select {
	case <-time.After(inSeconds(c.monitor.shutdownDelay)):
		return nil
	case <-c.monitor.atOnce:
		return nil
	case err := <-failed:
		return err
	}
}

// close ends all connections to the ports, after the answers to the requests that have arrived.
func (m *monitoring) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if m.page != nil {
		m.page.End() // streams never end by themselves
	}
	shutDownHTTP(ctx, m.ports)
}

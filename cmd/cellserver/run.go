package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/grpcapi"
	"cellserver/internal/logging"
	"cellserver/internal/meter"
	"cellserver/internal/metric"
	"cellserver/internal/server"
	"cellserver/internal/session"
	"cellserver/internal/store"
)

// run starts the server with a command line.
func run(args []string) error {
	c, err := parseConfig(args, environment())
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil:
		return reportStart(args, environment(), err)
	}
	return c.run()
}

// run starts the parts of the server in order: configuration, log, store, commands, and in runServer the
// listeners. Then it waits for a signal or a failure, and shuts the parts down in the reverse order.
func (c *config) run() (err error) {
	signal.Ignore(syscall.SIGPIPE) // the process must survive the reader of its log
	log, end, err := c.log.open()
	if err != nil {
		return err
	}
	defer end()
	defer func() { err = c.log.report(log, err) }()
	if err := c.readFiles(log); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	hangUps := notifyHangUps()
	supervisor := c.superviseStart(ctx, log)
	turns, holds := c.meters()
	data, folder, err := c.openStore(ctx, log, holds)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer data.Close()
	defer func() { err = errors.Join(err, folder.close()) }()
	clientLog := logging.RateLimit(log)
	reports, err := c.openWebhook(data.Clock(), clientLog)
	if err != nil {
		return err
	}
	defer stopWebhook(reports)
	instance, err := commands.New(commands.Config{
		Store: data, NewLocal: c.newLocalStore, Folder: folder.commands(),
		Version: version, Settings: c.commands, Options: &c.options,
		Port: cmp.Or(c.network.port, c.tls.port), ACLFile: c.access.file(), Stop: c.monitor.withoutDelay(stop),
		Log: log, ClientLog: clientLog, Turns: turns, Holds: holds, Rewrite: c.rewriter(), Policies: c.policies,
		Info: grpcapi.Info(c.envoy.current), Post: postTo(reports), Metrics: []metric.Group{reports.Metrics()},
	})
	if err != nil {
		return c.access.explain(err)
	}
	return c.runServer(ctx, stop, &running{instance, folder, turns, hangUps, supervisor, log, clientLog})
}

// running holds the parts of the server that run when its listeners are opened.
type running struct {
	instance       *commands.Instance
	folder         *folder
	turns          *meter.MaxCPUTime
	hangUps        <-chan os.Signal
	supervisor     *supervisor
	log, clientLog *slog.Logger
}

// runServer opens the listeners, and serves them until the server is to stop.
func (c *config) runServer(ctx context.Context, stop func(), r *running) error {
	if !c.awaitEnvoy(ctx, r.log) {
		return nil
	}
	listeners, ports, err := c.listen(r.instance, r.clientLog)
	if err != nil {
		return err
	}
	envoys, err := c.openGRPC(r.instance, r.clientLog)
	if err != nil {
		closeAll(slices.Concat(listeners, listenersOf(ports)))
		return err
	}
	// A server closes its listeners, unless the end comes before it serves them: the file of a Unix socket
	// would stay.
	defer closeAll(slices.Concat(listeners, listenersOf(ports), envoys.listeners, listenersOf(envoys.http)))
	monitoring, err := c.openMonitoring(r.instance, r.clientLog)
	if err != nil {
		return err
	}
	defer monitoring.close()
	c.warnOpen(r.instance.NeedsPassword(), slices.Concat(listeners, listenersOf(ports)), r.log)
	c.registerHooks()
	srv, err := server.New(r.instance, server.Config{Settings: c.server, Options: &c.options, Log: r.clientLog,
		Turns: r.turns})
	if err != nil {
		return err
	}
	c.watch(ctx, r.instance, r.hangUps, r.log)
	r.supervisor.follow(r.folder)
	failed := serve(srv, listeners, c.tls.handshakes(), r.log)
	serveHTTP(ports, failed, r.log)
	envoys.serve(failed, r.log)
	monitoring.serve(r.log)
	r.folder.load(r.instance, r.log, func() {
		announce(listeners, r.log)
		r.supervisor.serving(ctx, srv)
	}, func(err error) { failed <- err })
	return errors.Join(c.wait(ctx, stop, monitoring, failed, r),
		shutDown(srv, ports, envoys, inSeconds(c.shutdownTimeout), r.log))
}

// watch starts what runs while the server does.
func (c *config) watch(ctx context.Context, instance *commands.Instance, hangUps <-chan os.Signal, log *slog.Logger) {
	go sample(ctx, time.Tick(session.SampleEvery), instance)
	go watchClock(ctx, time.Tick(time.Second), instance.Clock, log)
	c.watchFiles(ctx, hangUps, log)
}

// notifyHangUps returns a channel that receives a value at each SIGHUP.
func notifyHangUps() <-chan os.Signal {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	return signals
}

// readFiles reads the certificates and the password, and logs warnings about the configuration.
func (c *config) readFiles(log *slog.Logger) error {
	used, err := c.useZones()
	if err != nil {
		return err
	}
	c.describe(log)
	c.image.report(log)
	c.describeZones(used, log)
	c.warn(log)
	if err := c.checkStore(); err != nil {
		return err
	}
	if err := c.webhook.Check(); err != nil {
		return err
	}
	c.policies = c.policyFiles()
	if err := c.loadEnvoy(log); err != nil {
		return err
	}
	c.tls.warn = log.Warn
	if err := c.tls.load(); err != nil {
		return err
	}
	return c.loadPassword()
}

// wait waits for a signal, and then for the end of the delay of a shutdown; or for the failure of a listener,
// which it returns.
func (c *config) wait(ctx context.Context, stop func(), m *monitoring, failed <-chan error, r *running) (err error) {
	select {
	case <-ctx.Done():
		stop() // a second signal ends the process at once
		r.supervisor.stopping(c)
		err = c.drain(m, failed, r.log)
		r.log.Info("shutting down: draining clients", "timeout", inSeconds(c.shutdownTimeout))
	case err = <-failed:
	}
	return err
}

// setMemoryLimit sets Go's memory limit to three quarters of the container's memory limit, if there
// is one, so that garbage is collected in time. The environment variable GOMEMLIMIT takes
// precedence.
func setMemoryLimit() {
	if limit := client.ContainerMemory(); limit > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 4 * 3)
	}
}

// unlessStopped returns the error with which a start ended; nil if it ended because of a signal.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// serve serves all listeners, and logs each. The channel receives the error of a listener that
// fails, and has capacity for one further error.
func serve(srv *server.Server, listeners []net.Listener, handshakes server.TLSOptions, log *slog.Logger) chan error {
	failed := make(chan error, len(listeners)+1)
	for _, listener := range listeners {
		go func() {
			if secured, ok := listener.(tlsListener); ok {
				failed <- srv.ServeTLS(secured.Listener, handshakes)
			} else {
				failed <- srv.Serve(listener)
			}
		}()
		log.Info("listening", "network", listenerKind(listener), "address", listener.Addr())
	}
	return failed
}

// announce logs a line for each kind of listener when commands are answered. Tools that start containers, such as
// Testcontainers, wait for the line that Redis logs, with its asterisk.
func announce(listeners []net.Listener, log *slog.Logger) {
	var kinds []string
	for _, listener := range listeners {
		if kind := listenerKind(listener); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
			log.Info("* Ready to accept connections " + kind)
		}
	}
}

// shutDown shuts the server down, and closes the remaining connections when the timeout is over.
func shutDown(srv *server.Server, ports []httpPort, envoys *grpcPorts, timeout time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var requests sync.WaitGroup
	requests.Go(func() { shutDownHTTP(ctx, ports) }) // meanwhile, calls that wait are ended for all clients
	requests.Go(func() { envoys.shutDown(ctx) })
	err := srv.Shutdown(ctx)
	requests.Wait()
	if errors.Is(err, context.DeadlineExceeded) {
		log.Warn("shut down before all clients had read their replies", "timeout", timeout)
		return nil
	}
	log.Info("stopped")
	return err
}

// sample calls the instance's Sample at each tick, and SampleMemory more often while memory is full.
func sample(ctx context.Context, ticks <-chan time.Time, instance *commands.Instance) {
	var soon <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
			instance.Sample()
		case <-soon:
			instance.SampleMemory()
		}
		if soon = nil; instance.IsFull() {
			soon = time.After(session.CheckEvery)
		}
	}
}

// watchClock logs changes of the wall clock by more than a second. They do not affect decisions,
// which use elapsed time. EXPIRETIME, GET of a throttle key and TIME use the new time.
func watchClock(ctx context.Context, ticks <-chan time.Time, clock store.Clock, log *slog.Logger) {
	const step = time.Second
	for last := time.Duration(clock.Offset()); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		if now := time.Duration(clock.Offset()); (now - last).Abs() > step {
			log.Warn("the wall clock was set", "by", now-last)
			last = now
		}
	}
}

package main

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"cellserver/internal/calendar"
	"cellserver/internal/client"
	"cellserver/internal/commands"
	"cellserver/internal/grpcapi"
	"cellserver/internal/httpapi"
	"cellserver/internal/meter"
	"cellserver/internal/option"
	"cellserver/internal/redisconf"
	"cellserver/internal/server"
	"cellserver/internal/webhook"
	"cellserver/internal/xds"
)

// config holds the values of all options. Each part of the program defines its own options.
type config struct {
	network  network
	tls      tlsOptions
	log      logOptions
	access   access
	store    storeOptions
	http     *httpapi.Settings
	grpc     *grpcapi.Settings
	monitor  monitorOptions
	server   *server.Settings
	commands *commands.Settings
	policies *commands.PolicyFiles // set when all options are known
	webhook  webhook.Settings
	xds      *xds.Settings
	envoy    envoys
	image    image // of envoyproxy/ratelimit, whose place the server may take

	databases       int
	shutdownTimeout int // seconds
	measurePauses   string
	tzDatabase      string
	fittedMemory    int // the maxmemory that fits the container; 0 if it was set, or there is no container

	options option.List     // all options, in the order of --help
	unknown []string        // environment variables that name no option
	ignored []string        // flags of redis-server that have no meaning here
	path    string          // --config
	file    *redisconf.File // the configuration file; nil if there is none
}

func inSeconds(n int) time.Duration { return time.Duration(n) * time.Second }

// prefix is the prefix of the environment variables for options.
const prefix = "CELLSERVER_"

// parseConfig parses the command line, the environment and the configuration file; the command line
// takes precedence over the environment, which takes precedence over the file. After --version and
// --help it returns pflag.ErrHelp.
func parseConfig(args []string, environ []string) (*config, error) {
	c := newConfig()
	f := c.options.Flags("cellserver")
	redisconf.Flags(f, &c.ignored)
	f.Usage = func() { fmt.Print(c.usage()) }
	showVersion := f.Bool("version", false, "")
	// where a subcommand would be: its options are unknown here
	if len(args) > 0 && args[0] != "" && args[0][0] != '-' {
		return nil, unexpectedArgument(args[0])
	}
	if err := c.options.Parse(f, args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, unexpectedArgument(f.Arg(0))
	}
	if *showVersion {
		zones, _ := calendar.Version()
		fmt.Printf("cellserver %s\ntime zones %s\n", version, zones)
		return nil, pflag.ErrHelp
	}
	var err error
	if c.unknown, err = c.options.Environment(f, prefix, environ); err != nil {
		return nil, err
	}
	isSet := func(name string) bool { return f.Lookup(name).Changed }
	if err := c.readConfigFile(isSet); err != nil {
		return nil, err
	}
	if !isSet("maxmemory") && !c.file.Sets("maxmemory") {
		c.fitContainer(client.ContainerMemory())
	}
	return c, nil
}

func unexpectedArgument(arg string) error {
	if strings.HasSuffix(arg, ".conf") {
		return fmt.Errorf("unexpected argument %q: a configuration file is given as --config %s", arg, arg)
	}
	if meant := nearestSubcommand(arg); meant != "" {
		return fmt.Errorf("unexpected argument %q; did you mean %s?", arg, meant)
	}
	return fmt.Errorf("unexpected argument %q: options start with --; see --help", arg)
}

// newConfig returns the defaults.
func newConfig() *config {
	c := &config{
		network: newNetwork(), tls: newTLSOptions(), log: newLogOptions(), server: server.NewSettings(),
		http: httpapi.NewSettings(), grpc: grpcapi.NewSettings(), xds: xds.NewSettings(),
		commands: commands.NewSettings(), store: newStoreOptions(),
		monitor:   newMonitorOptions(),
		databases: 16, shutdownTimeout: 10, measurePauses: "no",
	}
	for _, part := range [][]*option.Option{
		c.fileOptions(), c.network.options(), c.server.Options(), c.tls.options(), c.http.Options(), c.grpc.Options(),
		c.xds.Options(),
		c.commands.Options(), c.webhook.Options(),
		c.access.options(), c.store.options(), c.monitor.options(), c.log.options(), c.zoneOptions(),
		c.processOptions(),
	} {
		if err := c.options.Add(part...); err != nil {
			panic(err) // a mistake in this program, which tests find
		}
	}
	return c
}

// processOptions returns the options of the process as a whole.
func (c *config) processOptions() []*option.Option {
	return []*option.Option{
		{Name: "databases", Group: option.Limits, Kind: option.Number(&c.databases, 1, 1024), Change: option.Immutable,
			Help: "number of databases"},
		{Name: "shutdown-timeout", Group: networkGroup,
			Kind: option.Time(&c.shutdownTimeout, time.Second, 0, server.MaxSeconds),
			Help: "seconds for clients to read their replies when the server shuts down"},
		{Name: "measure-pauses", Group: option.Diagnostics,
			Kind: option.Choice(&c.measurePauses, "no", "loops", "locks"),
			Help: "measure the longest turn of an event loop, or the longest hold of a lock, for INFO cell; each measurement takes about a microsecond",
			Use:  "Set it while latencies are higher than expected, to see whether some command stalls the others."},
	}
}

// usageWidth is the number of columns of --help.
const usageWidth = 100

func (c *config) usage() string {
	return fmt.Sprintf(`cellserver is a rate-limit server that speaks the Redis protocol.

Usage:
  cellserver [options]                start the server
%s  cellserver --version                print the version

Each option is also an environment variable, %sTCP_BACKLOG for --tcp-backlog, and a
directive of the file of --config, which is written like redis.conf. The command line takes
precedence over the environment, and the environment over the file.

%s
Examples:
  cellserver                                              on 127.0.0.1:6379
  cellserver --unixsocket /run/cellserver.sock --port 0   on a Unix socket only
  cellserver --bind '* -::*' --protected-mode no          for all peers that can reach it
  cellserver --dir /var/lib/cellserver                    with keys that survive a restart
  cellserver --store redis://10.0.0.1                     with keys in a Redis or Valkey server
`, usageOfSubcommands(), prefix, c.options.Usage(usageWidth))
}

// meters returns the meter for the option measure-pauses; the other one, or both, are nil.
func (c *config) meters() (turns, holds *meter.MaxCPUTime) {
	switch c.measurePauses {
	case "loops":
		turns = new(meter.MaxCPUTime)
	case "locks":
		holds = new(meter.MaxCPUTime)
	}
	return turns, holds
}

// systemMaxClients returns the number of clients that the limit on open files allows.
func systemMaxClients() int {
	const reserved = 64 // descriptors for other purposes
	return max(openFiles()-reserved, 1)
}

// limitMaxClients lowers maxclients to what the limit on open files allows, and logs that. The Go
// runtime has raised the soft limit to the hard limit.
func (c *config) limitMaxClients(warn func(message string, args ...any)) {
	c.server.SystemMaxClients = systemMaxClients()
	if most := c.server.SystemMaxClients; c.server.MaxClients > most {
		warn("maxclients was lowered to what the limit on open files (ulimit -n) allows", "maxclients", most, "files",
			openFiles())
		c.server.MaxClients = most
	}
}

// warn logs warnings about the configuration.
func (c *config) warn(log *slog.Logger) {
	c.limitMaxClients(log.Warn)
	if c.monitor.page.Open == "yes" && !c.isMonitored() {
		log.Warn("--page-open has no effect: the page is on the port of --metrics-port, which is not set")
	}
	for _, name := range c.unknown {
		log.Warn("unknown option in the environment", "name", name)
	}
	if c.file != nil {
		c.ignored = append(c.ignored, c.file.Ignored...)
	}
	if len(c.ignored) > 0 {
		log.Info("settings of Redis that have no meaning here were skipped", "names", strings.Join(c.ignored, " "))
	}
}

func environment() []string { return os.Environ() }

// network holds the options of the listeners.
type network struct {
	port                       int
	bind                       string
	unixSocket, unixSocketPerm string
	backlog, keepAlive         int
	currentKeepAlive           *atomic.Int64 // seconds: the keep-alive time of new connections
}

const networkGroup = "Network"

func newNetwork() network {
	return network{port: 6379, bind: "127.0.0.1 -::1", backlog: 511, keepAlive: 300,
		currentKeepAlive: new(atomic.Int64)}
}

func (n *network) options() []*option.Option {
	return []*option.Option{
		{Name: "port", Group: networkGroup, Kind: option.Number(&n.port, 0, 65535), Help: "TCP port; 0 for none"},
		{Name: "bind", Group: networkGroup, Kind: option.Text(&n.bind, "addresses"),
			Words: true,
			Help:  "addresses to listen on, separated by spaces; * is all of IPv4, ::* of IPv6; an address that begins with - is skipped if this machine does not have it"},
		{Name: "unixsocket", Group: networkGroup, Kind: option.Text(&n.unixSocket, "path"), Change: option.Immutable,
			Help: "path of a Unix socket to listen on as well"},
		{Name: "unixsocketperm", Group: networkGroup, Kind: permissions(&n.unixSocketPerm), Change: option.Immutable,
			Help: "permissions of the Unix socket"},
		{Name: "tcp-backlog", Group: networkGroup, Kind: option.Number(&n.backlog, 1, 65535), Change: option.Immutable,
			Help: "connections that may wait to be accepted; the system may allow fewer"},
		{Name: "tcp-keepalive", Group: networkGroup, Kind: option.Time(&n.keepAlive, time.Second, 0, server.MaxSeconds),
			Change: option.Live,
			Help:   "idle seconds before TCP keepalive probes; 0 for none"},
	}
}

package main

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"cellserver/internal/commands"
	"cellserver/internal/meter"
	"cellserver/internal/resp"
	"cellserver/internal/server"
)

// config is what the command line and the environment say. The flags carry the names of redis.conf's directives.
type config struct {
	flags *pflag.FlagSet

	port                         int
	bind, protectedMode          string
	unixSocket, unixSocketPerm   string
	tcpBacklog, tcpKeepAlive     int
	maxClients, timeout          int
	output                       [3]server.OutputLimit // by class
	transport                    string
	ioThreads                    int
	databases, maxKeySize        int
	maxLogLimit, maxHolders      int
	maxTracked, maxMemory        int
	notify                       string
	maxBulkLen, queryBuffer      int
	logLevel, logFormat, logFile string
	shutdownTimeout              int
	measurePauses                string
	debugCommand                 string
	slowerThan, slowCalls        int
	spikes                       int
	access                       access
	latencyTracking, oomDecision string
	percentiles                  []float64
	tls                          tlsOptions
	showVersion                  bool
	running                      running
}

const maxSeconds = 1 << 30 // 34 years

func inSeconds(n int) time.Duration { return time.Duration(n) * time.Second }

// parseConfig reads the command line, and the environment for what it does not say.
func parseConfig(args []string, environ []string) (*config, error) {
	c := &config{}
	c.define()
	if err := c.flags.Parse(args); err != nil {
		return nil, err
	}
	if c.flags.NArg() > 0 {
		return nil, fmt.Errorf("what is %q? Options start with --; see --help", c.flags.Arg(0))
	}
	if err := c.readEnvironment(environ); err != nil {
		return nil, err
	}
	if c.showVersion {
		fmt.Println("cellserver", version)
	}
	return c, nil
}

// define lists the options, in the order of --help. What each is without being told stands before it.
func (c *config) define() {
	f := pflag.NewFlagSet("cellserver", pflag.ContinueOnError)
	c.flags = f
	f.SortFlags = false
	f.Usage = func() { usage(f) }
	words := resp.DefaultLimits()

	c.port, c.bind, c.protectedMode = 6379, "127.0.0.1 -::1", "yes"
	f.Var(number{&c.port, 0, 65535}, "port", "TCP port; 0 for none")
	f.StringVar(&c.bind, "bind", c.bind, "addresses to listen on, with spaces between; * is all of IPv4, ::* of IPv6; with - before it an address may be missing")
	f.Var(choice{&c.protectedMode, []string{"yes", "no"}}, "protected-mode", "refuse peers that are not on this machine")
	f.StringVar(&c.unixSocket, "unixsocket", "", "path of a Unix socket to listen on as well")
	f.Var(permissions{&c.unixSocketPerm}, "unixsocketperm", "permissions of the Unix socket, in octal, such as 770")
	c.tcpBacklog, c.tcpKeepAlive = 511, 300
	f.Var(number{&c.tcpBacklog, 1, 65535}, "tcp-backlog", "connections that may wait to be accepted; the system may allow fewer")
	f.Var(number{&c.tcpKeepAlive, 0, maxSeconds}, "tcp-keepalive", "seconds of silence after which a peer is asked whether it is still there; 0 for never")

	c.defineTLS(f)

	c.maxClients, c.timeout = 10000, 0
	f.Var(number{&c.maxClients, 1, 10_000_000}, "maxclients", "connections at once; one more is told so and closed")
	f.Var(number{&c.timeout, 0, maxSeconds}, "timeout", "seconds after which an idle connection is closed; 0 for never")
	limits := outputLimits{&c.output}
	_ = limits.Set("normal 256mb 64mb 60 slave 256mb 64mb 60 pubsub 32mb 8mb 60")
	f.Var(limits, "client-output-buffer-limit", "unread replies beyond which a client is cut off: class, hard limit, soft limit, seconds beyond the soft one")
	c.maxBulkLen, c.queryBuffer, c.maxKeySize = words.Bulk, words.Query, commands.DefaultMaxKeySize
	f.Var(size{&c.queryBuffer, 64 << 10, 1 << 30}, "client-query-buffer-limit", "bytes of a command, or of commands that wait, beyond which a client is cut off")
	f.Var(size{&c.maxBulkLen, 1 << 10, 512 << 20}, "proto-max-bulk-len", "bytes in a word of a command")
	f.Var(number{&c.maxKeySize, 1, 64 << 20}, "max-key-size", "bytes in a key")
	c.maxLogLimit, c.maxHolders = commands.DefaultMaxLogLimit, commands.DefaultMaxHolders
	f.Var(number{&c.maxLogLimit, 1, 10_000_000}, "max-log-limit", "the largest limit of CL.SLIDINGLOG, which keeps 16 bytes for each call in view")
	f.Var(number{&c.maxHolders, 1, 100_000}, "max-holders", "holders that may have leases of one key")
	c.maxTracked = commands.DefaultMaxTracked
	f.Var(number{&c.maxTracked, 0, 1 << 30}, "tracking-table-max-keys", "keys that are remembered for clients that cache them (CLIENT TRACKING); 0 for any number, in 256 MiB")

	f.Var(size{&c.maxMemory, 0, 1 << 50}, "maxmemory", "bytes of memory beyond which calls that may need more are refused (OOM); 0 for no bound")
	c.oomDecision = commands.OOMDecisions[0]
	f.Var(choice{&c.oomDecision, commands.OOMDecisions}, "oom-decision", "how a limiter answers, beyond maxmemory, about a key that it would have to add: an error (OOM), or limited")

	f.Var(keyEvents{&c.notify}, "notify-keyspace-events", "which events of keys are published, by Redis's letters: KEA for all; none without any")

	c.databases, c.transport = 16, string(server.Fastest)
	f.Var(number{&c.databases, 1, 1024}, "databases", "number of databases")
	f.Var(number{&c.ioThreads, 0, 1024}, "io-threads", "event loops; 0 for as many as there are cores")
	f.Var(choice{&c.transport, []string{string(server.EventLoop), string(server.Goroutines)}}, "transport", "how connections are served: by a few loops, or by a goroutine each")

	c.logLevel, c.logFormat, c.shutdownTimeout = "notice", "text", 10
	f.Var(choice{&c.logLevel, levelNames}, "loglevel", "how much is logged")
	f.Var(choice{&c.logFormat, []string{"text", "json"}}, "log-format", "how a line is written")
	f.StringVar(&c.logFile, "logfile", "", "file to log to, made if need be, added to if it is there; standard error without one")
	f.Var(number{&c.shutdownTimeout, 0, maxSeconds}, "shutdown-timeout", "seconds that clients are given to take their replies when the server is told to stop")
	c.slowerThan, c.slowCalls, c.spikes = 10000, 128, 0
	f.Var(number{&c.slowerThan, -1, 1 << 40}, "slowlog-log-slower-than", "microseconds from which on SLOWLOG keeps a call; -1 for none; below 1000 every call is measured, which costs each some 0.1 us")
	f.Var(number{&c.slowCalls, 0, 100_000}, "slowlog-max-len", "calls that SLOWLOG keeps")
	f.Var(number{&c.spikes, 0, 1 << 40}, "latency-monitor-threshold", "milliseconds from which on LATENCY remembers a call; 0 for none")
	c.latencyTracking = "yes"
	f.Var(choice{&c.latencyTracking, []string{"yes", "no"}}, "latency-tracking", "count, by command, how long calls take; quick ones by samples")
	tracked := percentiles{&c.percentiles}
	_ = tracked.Set(commands.DefaultPercentiles)
	f.Var(tracked, "latency-tracking-info-percentiles", "which percentiles of that INFO shows")
	c.debugCommand = "no"
	f.Var(choice{&c.debugCommand, []string{"no", "yes", "local"}}, "enable-debug-command", "who may say DEBUG: nobody, everybody, or who is on this machine")
	c.access.define(f)
	c.measurePauses = "no"
	f.Var(choice{&c.measurePauses, []string{"no", "loops", "locks"}}, "measure-pauses", "for INFO cell, the longest turn of an event loop, or hold of a lock; each measurement takes about a microsecond")
	f.BoolVar(&c.showVersion, "version", false, "print the version and exit")
}

func usage(f *pflag.FlagSet) {
	fmt.Printf(`cellserver is a rate-limit server that speaks the Redis protocol.

Usage:
  cellserver [options]                start the server
  cellserver cli [options] [COMMAND]  talk to one; cellserver cli --help tells how

Options, each also as an environment variable, %sPORT for --port (the command line wins):

%s
Examples:
  cellserver                                              on 127.0.0.1:6379
  cellserver --unixsocket /run/cellserver.sock --port 0   on a Unix socket only
  cellserver --bind '* -::*' --protected-mode no          for everybody who can reach this machine
`, prefix, f.FlagUsagesWrapped(110))
}

// prefix is what the options' names have before them in the environment.
const prefix = "CELLSERVER_"

// readEnvironment takes the options that the command line does not name from the environment. A variable that is none of
// ours is left alone: Kubernetes makes some for every service in a namespace, and of a service named cellserver it makes
// CELLSERVER_PORT=tcp://ADDRESS:PORT, which means nothing to us.
func (c *config) readEnvironment(environ []string) (err error) {
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		option, ours := strings.CutPrefix(name, prefix)
		f := c.flags.Lookup(strings.ReplaceAll(strings.ToLower(option), "_", "-"))
		if !ours || f == nil || f.Changed || f.Name == "version" || strings.HasPrefix(value, "tcp://") {
			continue
		}
		err := f.Value.Set(value)
		if err != nil && isSecret(f) {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err != nil {
			return fmt.Errorf("%s=%s: %w", name, value, err)
		}
	}
	return nil
}

func (c *config) limits() resp.Limits {
	l := resp.DefaultLimits()
	l.Bulk, l.Query = c.maxBulkLen, c.queryBuffer
	return l
}

// meters are for INFO; nil unless they are asked for. They are not both: to measure locks would show in the turns.
func (c *config) meters() (turns, holds *meter.Longest) {
	switch c.measurePauses {
	case "loops":
		turns = new(meter.Longest)
	case "locks":
		holds = new(meter.Longest)
	}
	return turns, holds
}

func (c *config) server(log *slog.Logger, turns *meter.Longest) server.Options {
	return server.Options{
		Transport: server.Transport(c.transport), IOThreads: c.ioThreads, MaxClients: c.maxClients, Protected: c.protectedMode == "yes",
		Timeout: inSeconds(c.timeout), Output: c.output[0], Listens: c.output[2], Log: log, Turns: turns,
	}
}

// measures are the options that are the instance's, once it runs, or nobody's to see.
var measures = []string{
	"maxmemory", "oom-decision", "notify-keyspace-events", "slowlog-log-slower-than", "slowlog-max-len", "latency-monitor-threshold",
	"latency-tracking", "latency-tracking-info-percentiles",
	"requirepass", "acl-pubsub-default", "acllog-max-len", "user", "rename-command",
}

// settings is CONFIG GET's view of the flags.
func (c *config) settings() (list []commands.Setting) {
	c.flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "version" || slices.Contains(measures, f.Name) {
			return
		}
		value := f.Value.String
		switch v := f.Value.(type) {
		case size:
			value = func() string { return strconv.Itoa(*v.to) }
		case outputLimits:
			value = func() string { return v.written(strconv.Itoa) }
		}
		list = append(list, commands.Setting{Name: f.Name, Value: value, Set: c.changing(f, value)})
	})
	return list
}

// mostClients is what the limit on open files allows.
func mostClients() int {
	const own = 64 // descriptors that are no connection's
	return max(openFiles()-own, 1)
}

// fitFiles lowers maxclients to what the limit on open files allows, and says so. The runtime has raised that limit as far
// as it may.
func (c *config) fitFiles(warn func(message string, args ...any)) {
	if most := mostClients(); c.maxClients > most {
		warn("maxclients is lowered: the limit on open files (ulimit -n) allows no more", "maxclients", most, "files", openFiles())
		c.maxClients = most
	}
}

func environment() []string { return os.Environ() }

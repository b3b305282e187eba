package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"cellserver/internal/commands"
	"cellserver/internal/resp"
)

// config is what the command line says. The flags carry the names of redis.conf's directives.
type config struct {
	flags *pflag.FlagSet

	port        int
	bind        string
	unixSocket  string
	ioThreads   int
	databases   int
	maxKeySize  int
	maxBulkLen  size
	queryBuffer size
	showVersion bool
}

// parseConfig reads the command line.
func parseConfig(args []string) (*config, error) {
	l := resp.DefaultLimits()
	c := &config{maxBulkLen: size(l.Bulk), queryBuffer: size(l.Query)}
	f := pflag.NewFlagSet("cellserver", pflag.ContinueOnError)
	c.flags = f
	f.SortFlags = false
	f.IntVar(&c.port, "port", 6379, "TCP port; 0 for none")
	f.StringVar(&c.bind, "bind", "127.0.0.1 -::1", "addresses to listen on; one with - before it may be missing")
	f.StringVar(&c.unixSocket, "unixsocket", "", "path of a Unix socket to listen on as well")
	f.IntVar(&c.ioThreads, "io-threads", 0, "event loops; 0 for as many as there are cores")
	f.IntVar(&c.databases, "databases", 16, "number of databases")
	f.IntVar(&c.maxKeySize, "max-key-size", commands.DefaultMaxKeySize, "longest key, in bytes")
	f.Var(&c.maxBulkLen, "proto-max-bulk-len", "longest word of a command, such as 1mb")
	f.Var(&c.queryBuffer, "client-query-buffer-limit", "longest command, such as 64mb")
	f.BoolVar(&c.showVersion, "version", false, "print the version and exit")
	f.Usage = func() { usage(f) }
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("what is %q? Options start with --; see --help", f.Arg(0))
	}
	if c.showVersion {
		fmt.Println("cellserver", version)
	}
	return c, c.check()
}

func usage(f *pflag.FlagSet) {
	fmt.Printf("cellserver is a rate-limit server that speaks the Redis protocol.\n\nUsage: cellserver [options]\n\n%s", f.FlagUsages())
}

// check holds the numbers to what the server can do.
func (c *config) check() error {
	for _, n := range []struct {
		flag      string
		value     int
		low, high int
	}{
		{"port", c.port, 0, 65535}, {"io-threads", c.ioThreads, 0, 1024}, {"databases", c.databases, 1, 1024},
		{"max-key-size", c.maxKeySize, 1, 64 << 20},
		{"proto-max-bulk-len", int(c.maxBulkLen), 1024, 512 << 20}, {"client-query-buffer-limit", int(c.queryBuffer), 64 << 10, 1 << 30},
	} {
		if n.value < n.low || n.value > n.high {
			return fmt.Errorf("--%s %d: must be between %d and %d", n.flag, n.value, n.low, n.high)
		}
	}
	return nil
}

func (c *config) limits() resp.Limits {
	l := resp.DefaultLimits()
	l.Bulk, l.Query = int(c.maxBulkLen), int(c.queryBuffer)
	return l
}

// settings is CONFIG GET's view of the flags.
func (c *config) settings() (list []commands.Setting) {
	c.flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "version" {
			return
		}
		value := f.Value.String
		if s, ok := f.Value.(*size); ok {
			value = func() string { return strconv.FormatInt(int64(*s), 10) }
		}
		list = append(list, commands.Setting{Name: f.Name, Value: value})
	})
	return list
}

// size is a number of bytes, written as in redis.conf: 1k is 1000, 1kb is 1024.
type size int64

var units = []struct {
	suffix string
	bytes  int64
}{{"gb", 1 << 30}, {"mb", 1 << 20}, {"kb", 1 << 10}, {"g", 1e9}, {"m", 1e6}, {"k", 1e3}, {"b", 1}, {"", 1}}

func (s *size) Set(text string) error {
	text = strings.ToLower(text)
	for _, u := range units {
		digits, found := strings.CutSuffix(text, u.suffix)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 32)
		if err != nil || n < 0 {
			break
		}
		*s = size(n * u.bytes)
		return nil
	}
	return fmt.Errorf("%q is no size: write a number of bytes, or 512kb, 64mb, 1gb", text)
}

func (s *size) String() string {
	for _, u := range units[:3] {
		if n := int64(*s); n > 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

func (s *size) Type() string { return "size" }

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"

	"cellserver/internal/commands"
	"cellserver/internal/server"
)

// running is what CONFIG SET reaches.
type running struct {
	instance  *commands.Instance
	server    *server.Server
	level     slog.LevelVar
	keepAlive atomic.Int64 // seconds, for the connections that are made from now on
}

// effects are the options that can be changed while the server runs, and what a change does.
var effects = map[string]func(c *config){
	"timeout":                    func(c *config) { c.running.server.SetTimeout(inSeconds(c.timeout)) },
	"maxclients":                 func(c *config) { c.running.server.SetMaxClients(c.maxClients) },
	"client-output-buffer-limit": func(c *config) { c.running.server.SetOutput(c.output[0], c.output[2]) },
	"client-query-buffer-limit":  func(c *config) { c.running.instance.SetLimits(c.limits()) },
	"proto-max-bulk-len":         func(c *config) { c.running.instance.SetLimits(c.limits()) },
	"loglevel":                   func(c *config) { c.running.level.Set(levels[c.logLevel]) },
	"tracking-table-max-keys":    func(c *config) { c.running.instance.SetMaxTracked(c.maxTracked) },
	"tcp-keepalive":              func(c *config) { c.running.keepAlive.Store(int64(c.tcpKeepAlive)) },
}

// immutable are the options of which Redis says that they are, whatever they are set to. Others that cannot be changed here may be set to
// what they are, so that all that CONFIG GET shows can be set back.
var immutable = []string{"unixsocket", "unixsocketperm", "tcp-backlog", "databases", "io-threads", "logfile", "enable-debug-command"}

// changing is what CONFIG SET does to an option that has a value, nil if it is immutable. The instance sees to it that there is one change,
// or one reading, at a time.
func (c *config) changing(f *pflag.Flag, value func() string) func(text string) error {
	effect := effects[f.Name]
	if isTLS(f.Name) {
		effect = func(*config) {} // settle sees to it
	}
	switch {
	case slices.Contains(immutable, f.Name):
		return nil
	case effect == nil:
		return func(text string) error {
			if text != value() {
				return commands.ErrImmutable
			}
			return nil
		}
	}
	return func(text string) error {
		if err := c.mayBe(f, text); err != nil {
			return err
		}
		if err := f.Value.Set(text); err != nil {
			return err
		}
		effect(c)
		return nil
	}
}

// refusal is an error in Redis's words, which are sentences.
type refusal string

func (r refusal) Error() string { return string(r) }

// mayBe says in Redis's words what is wrong with a value, nil if nothing is.
func (c *config) mayBe(f *pflag.Flag, text string) error {
	switch v := f.Value.(type) {
	case number:
		n, err := commands.NumberFrom(text, int64(v.low), int64(v.high))
		if err == nil && f.Name == "maxclients" && int(n) > mostClients() {
			return refusal(fmt.Sprintf("The operating system is not able to handle the specified number of clients, try with %d", mostClients()))
		}
		return err
	case size:
		n, ok := parseSize(text)
		if !ok {
			return errors.New("argument must be a memory value")
		}
		if n < v.low || n > v.high {
			return fmt.Errorf("argument must be between %d and %d inclusive", v.low, v.high)
		}
	case choice:
		if !slices.Contains(v.words, text) {
			return fmt.Errorf("argument(s) must be one of the following: %s", strings.Join(v.words, ", "))
		}
	case outputLimits:
		return wrongLimits(text)
	}
	return nil
}

func wrongLimits(text string) error {
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields)%4 != 0 {
		return refusal("Wrong number of arguments in buffer limit configuration.")
	}
	for four := range slices.Chunk(fields, 4) {
		if !slices.Contains(outputClasses, four[0]) {
			return refusal("Invalid client class specified in buffer limit configuration.")
		}
	}
	if (outputLimits{new([3]server.OutputLimit)}).Set(text) != nil {
		return refusal("Error in hard, soft or soft_seconds setting in buffer limit configuration.")
	}
	return nil
}

// keptAlive gives the connections that it accepts another keep-alive than the listener's, if it was changed.
type keptAlive struct {
	*net.TCPListener
	first int // seconds: what the listener was opened with, and gives by itself
	now   *atomic.Int64
}

func (l keptAlive) Accept() (net.Conn, error) {
	conn, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	if now := int(l.now.Load()); now != l.first {
		_ = conn.SetKeepAliveConfig(keepAlive(inSeconds(now))) // it fails if the connection has gone already
	}
	return conn, nil
}

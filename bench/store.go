//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// backend is a kind of server in which cellservers keep their keys.
type backend struct {
	name    string // as in the names of scenarios
	program string
	most    float64 // the bar: CPU time on many keys, as a fraction of redis_rate's
	command func(ctx context.Context, b *bench) ([]string, error)
}

var (
	redisBackend = backend{"redis", "redis-server", 1.0 / 3,
		func(context.Context, *bench) ([]string, error) { return redisServer, nil }}
	valkeyBackend = backend{"valkey", "valkey-server", 1.0 / 4, valkeyCommand}
)

// errLeftOut ends a scenario that cannot be run here. The other scenarios are run.
var errLeftOut = errors.New("left out")

// valkeyCommand returns the command that starts a Valkey with SET IFEQ: the program in VALKEY_SERVER,
// or a program that is downloaded once.
func valkeyCommand(ctx context.Context, b *bench) ([]string, error) {
	program := os.Getenv("VALKEY_SERVER")
	if program == "" {
		program = filepath.Join(b.dir, "valkey-server")
		if _, err := os.Stat(program); err != nil {
			b.progress.say("downloading valkey-server")
			fetch := exec.CommandContext(ctx, filepath.Join(b.root, "test/valkey/fetch.sh"), b.dir)
			if out, err := fetch.CombinedOutput(); err != nil {
				return nil, fmt.Errorf("%w: %s", errLeftOut, bytes.TrimSpace(out))
			}
		}
	}
	return append([]string{program}, redisServer[1:]...), nil
}

// subject is a way to limit with the keys in a backend, which has no other keys.
type subject struct {
	name    string
	backend *process
	servers []*process // cellservers; empty for a library

	// decide makes decisions for a time, and returns how many.
	decide func(ctx context.Context, d time.Duration) (decisions int, took time.Duration, err error)
	// prepare makes a decision on every key.
	prepare func(ctx context.Context) error
	stop    func() // frees everything outside of processes; may be nil
}

// leaveSubjects stops all processes, and adds up the CPU time of the processes on the servers'
// core.
func (b *bench) leaveSubjects(all []*subject, onServersCore bool) {
	for _, s := range all {
		if s.stop != nil {
			s.stop()
		}
		for _, p := range s.servers {
			b.end(p, onServersCore)
		}
		if s.backend != nil {
			b.end(s.backend, true)
		}
	}
}

func (b *bench) end(p *process, onServersCore bool) {
	if used, err := cpuTime(p.id()); err == nil && onServersCore { // an error if the server has ended by itself
		b.used += used
	}
	p.stop()
}

// startBackend starts a backend for a subject.
func (b *bench) startBackend(ctx context.Context, kind backend, s *subject) error {
	command, err := kind.command(ctx, b)
	if err != nil {
		return err
	}
	b.progress.say("starting " + s.name)
	s.backend, err = b.cores.start(ctx, command, b.dir)
	return err
}

// withLoad returns cores for servers that share the load's core.
func (c cores) withLoad() cores { return cores{server: c.load, load: c.load} }

// patient are options with which calls do not fail on a busy machine.
var patient = []string{"--store-timeout", "1000"}

// connect starts cellservers on some cores, each with the backend at its address.
func (b *bench) connect(ctx context.Context, s *subject, on cores, addresses, options []string) error {
	for _, address := range addresses {
		command := append([]string{b.server, "--loglevel", "warning", "--port", "{port}", "--store", "redis://" + address},
			options...)
		p, err := on.start(ctx, command, b.dir)
		if err != nil {
			return err
		}
		s.servers = append(s.servers, p)
		if err := reachesStore(ctx, p.tcp); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// reachesStore waits until a cellserver reaches its keys.
func reachesStore(ctx context.Context, t load.Target) (err error) {
	for end := time.Now().Add(startsWithin); time.Now().Before(end); {
		if _, err = load.Ask(t, "EXISTS", "a"); err == nil {
			return nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return err
}

// targets returns where the cellservers listen.
func (s *subject) targets() (first load.Target, more []load.Target) {
	for _, p := range s.servers[1:] {
		more = append(more, p.tcp)
	}
	return s.servers[0].tcp, more
}

// same returns n times the backend's address.
func (s *subject) same(n int) (addresses []string) {
	for range n {
		addresses = append(addresses, s.backend.tcp.Address)
	}
	return addresses
}

// used returns the CPU time of the cellservers.
func (s *subject) used() (sum time.Duration, err error) {
	for _, p := range s.servers {
		t, err := cpuTime(p.id())
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// field returns the sum of a field of INFO over all cellservers, or its maximum.
func (s *subject) field(name string, of func(a, b float64) float64) (all float64, err error) {
	for _, p := range s.servers {
		value, err := infoField(p.tcp, name)
		if err != nil {
			return 0, err
		}
		all = of(all, value)
	}
	return all, nil
}

func plus(a, b float64) float64 { return a + b }

// allAdmitted checks that no call to a cellserver was refused: refusals write nothing, and would make
// the comparison unfair.
func (s *subject) allAdmitted() error {
	for _, p := range s.servers {
		info, err := load.Ask(p.tcp, "INFO")
		if err != nil {
			return err
		}
		const field = "cell_decisions_cl_throttle:"
		_, decisions, found := strings.Cut(info, field)
		decisions, _, _ = strings.Cut(decisions, "\r\n")
		if !found || !strings.HasSuffix(decisions, ",limited=0") {
			return fmt.Errorf("not all calls were admitted: %s%s", field, decisions)
		}
	}
	return nil
}

// versionOf returns what INFO says about the version of a backend.
func versionOf(kind backend, s *subject) []report.Inside {
	info, err := load.Ask(s.backend.tcp, "INFO", "server")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(info) {
		for _, field := range []string{"valkey_version", "redis_version"} {
			if value, found := strings.CutPrefix(strings.TrimSpace(line), field+":"); found &&
				strings.HasPrefix(field, kind.name) {
				return []report.Inside{{Server: kind.program, Field: field, Value: value}}
			}
		}
	}
	return nil
}

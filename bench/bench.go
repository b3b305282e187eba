//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// bench is one run of the benchmark.
type bench struct {
	*options
	cores    cores
	dir      string // the folder of the servers' sockets
	progress *progress
	used     time.Duration // CPU time of the servers that have been stopped
}

func newBench(o *options, c cores) (*bench, error) {
	if err := c.keepToLoad(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench")
	return &bench{options: o, cores: c, dir: dir, progress: newProgress(os.Stderr)}, err
}

func (b *bench) close() { _ = os.RemoveAll(b.dir) }

// enter starts contenders. The caller must call leave with the result, also after an error.
func (b *bench) enter(ctx context.Context, contenders []contender, limit string) (entrants []*entrant, err error) {
	for _, c := range contenders {
		b.progress.say("starting " + c.name)
		e, err := b.enterOne(ctx, c, limit)
		if e != nil {
			entrants = append(entrants, e)
		}
		if err != nil {
			return entrants, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return entrants, nil
}

func (b *bench) enterOne(ctx context.Context, c contender, limit string) (*entrant, error) {
	p, err := b.cores.start(ctx, c.start, b.dir)
	if err != nil {
		return nil, err
	}
	e := &entrant{contender: c, process: p, target: p.tcp}
	if c.script != "" {
		if e.sha, err = load.Ask(p.tcp, "SCRIPT", "LOAD", c.script); err != nil {
			return e, err
		}
	}
	e.call = c.callWith(limit, e.sha)
	return e, nil
}

// leave stops servers, and adds up the CPU time that they have used.
func (b *bench) leave(entrants []*entrant) {
	for _, e := range entrants {
		if used, err := cpuTime(e.process.id()); err == nil { // an error if the server has ended by itself
			b.used += used
		}
		e.process.stop()
	}
}

// watch runs a scenario, and records how much of the servers' core other processes used meanwhile:
// results from a busy machine are of little use, even as medians.
func (b *bench) watch(ctx context.Context, s scenario) (report.Scenario, error) {
	start := time.Now()
	before, err := coreBusy(b.cores.serverNumber)
	if err != nil {
		return report.Scenario{}, err
	}
	b.used = 0
	result, err := s.run(ctx, b)
	if err != nil {
		return result, err
	}
	after, err := coreBusy(b.cores.serverNumber)
	result.Others = max(0, (after-before-b.used).Seconds()/time.Since(start).Seconds())
	return result, err
}

// The keys of a server are created over few connections, because connections take memory, and with
// many calls in flight, which is fast.
const (
	fillConnections = 4
	fillDepth       = 128
)

// fill makes n calls.
func (e *entrant) fill(ctx context.Context, call load.Call, n int) error {
	return fillServer(ctx, e.target, call, n)
}

func fillServer(ctx context.Context, t load.Target, call load.Call, n int) error {
	_, _, err := load.Closed{Connections: fillConnections, Depth: fillDepth, Calls: n}.Run(ctx, t, call)
	return err
}

// inside are the fields of INFO about pauses and the garbage collector, which only cellserver has.
var inside = []string{"longest_loop_callback_usec", "longest_lock_hold_usec", "gc_cpu_percent"}

func (e *entrant) inside() []report.Inside {
	info, err := load.Ask(e.process.tcp, "INFO")
	if err != nil {
		return nil // other servers may not have them
	}
	return parseInside(e.name, info)
}

func parseInside(server, info string) (found []report.Inside) {
	for line := range strings.Lines(info) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if slices.Contains(inside, field) {
			found = append(found, report.Inside{Server: server, Field: field, Value: value})
		}
	}
	return found
}

func insideOf(entrants []*entrant) (all []report.Inside) {
	for _, e := range entrants {
		all = append(all, e.inside()...)
	}
	return all
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// storeLoad is the load of a scenario with keys in a backend: as many decisions as possible.
type storeLoad struct {
	backend backend
	keys    int
	callers int   // of all servers; each waits for its decision
	servers []int // the numbers of cellservers that share the backend
	limit   admitting
	module  string // the path of redis-cell; empty to leave it out

	share     float64 // the bar: the backend's CPU time, as a fraction of redis_rate's
	ownMicros float64 // the bar: one cellserver's CPU time
}

// usualStoreRounds are fewer than the rounds of other comparisons of CPU time, because the bars are far
// from one.
const usualStoreRounds = 9

// storeDepth is how many calls are in flight on a connection of a client that pipelines.
const storeDepth = 64

// cpu measures the CPU time per decision, of the backend and of the cellservers, in alternating
// rounds. A backend has its own core, and everything else shares the other core.
func (l storeLoad) cpu(ctx context.Context, b *bench) (s report.Scenario, err error) {
	all, err := l.enter(ctx, b)
	defer func() { b.leaveSubjects(all, false) }()
	if err != nil {
		return s, err
	}
	runs := make([]storeRun, len(all))
	for _, subject := range all {
		b.progress.say("filling " + subject.name)
		if err := subject.prepare(ctx); err != nil {
			return s, fmt.Errorf("%s: %w", subject.name, err)
		}
	}
	rounds := b.roundsOr(usualStoreRounds)
	for round := range rounds + 1 {
		for i, subject := range all {
			b.progress.round(round, rounds, subject.name)
			if err := runs[i].round(ctx, b.roundFor, subject, round == 0); err != nil {
				return s, fmt.Errorf("%s: %w", subject.name, err)
			}
		}
	}
	for i, subject := range all {
		if err := errors.Join(subject.allAdmitted(), runs[i].count(subject, 1)); err != nil {
			return s, fmt.Errorf("%s: %w", subject.name, err)
		}
		s.CPU = append(s.CPU, runs[i].result(subject.name, runs[0]))
	}
	s.Figures = l.figures(s.CPU, all, runs)
	s.Inside = versionOf(l.backend, all[0])
	return s, nil
}

// enter starts the compared subjects. All others are compared with the first.
func (l storeLoad) enter(ctx context.Context, b *bench) (all []*subject, err error) {
	add := func(name string, enter func(context.Context, *bench, *subject) error) {
		if err != nil {
			return
		}
		s := &subject{name: name}
		all = append(all, s)
		if err = enter(ctx, b, s); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}
	add(report.RedisRate, l.enterLibrary)
	add(report.RedisRate+" again", l.enterLibrary)
	if l.callers > storeDepth {
		add(report.RedisRateScript, l.enterScript)
	}
	if l.module != "" {
		add(report.RedisCell, l.enterModule)
	}
	for _, n := range l.servers {
		add(report.Cellservers(n), l.enterCellservers(n, false))
	}
	if l.callers > storeDepth {
		add(report.Pipelined, l.enterCellservers(1, true))
	}
	return all, err
}

func (l storeLoad) enterScript(ctx context.Context, b *bench, s *subject) error {
	if err := b.startBackend(ctx, l.backend, s); err != nil {
		return err
	}
	sha, err := l.script(ctx, s)
	l.calling(s, s.backend.tcp, nil, l.limit.evalsha(sha), true)
	return err
}

// enterLibrary uses the script to prepare the keys, which is faster.
func (l storeLoad) enterLibrary(ctx context.Context, b *bench, s *subject) error {
	err := l.enterScript(ctx, b, s)
	if err == nil {
		l.library(s)
	}
	return err
}

// enterModule starts a backend that has CL.THROTTLE itself.
func (l storeLoad) enterModule(ctx context.Context, b *bench, s *subject) error {
	kind := l.backend
	kind.command = func(ctx context.Context, b *bench) ([]string, error) {
		command, err := l.backend.command(ctx, b)
		return append(command[:len(command):len(command)], "--loadmodule", l.module), err
	}
	if err := b.startBackend(ctx, kind, s); err != nil {
		return err
	}
	l.calling(s, s.backend.tcp, nil, l.limit.call(), false)
	return nil
}

func (l storeLoad) enterCellservers(n int, pipelined bool) func(context.Context, *bench, *subject) error {
	return func(ctx context.Context, b *bench, s *subject) error {
		if err := b.startBackend(ctx, l.backend, s); err != nil {
			return err
		}
		if err := b.connect(ctx, s, b.cores.withLoad(), s.same(n), patient); err != nil {
			return err
		}
		first, more := s.targets()
		l.calling(s, first, more, l.limit.call(), pipelined)
		return nil
	}
}

// calling makes a subject decide by calls to servers. A caller that does not pipeline has its own
// connection.
func (l storeLoad) calling(s *subject, first load.Target, more []load.Target, call string, pipelined bool) {
	calls := load.NewCall(call, load.Among(l.keys)) // each round goes on where the last ended
	depth := 1
	if pipelined {
		depth = min(storeDepth, l.callers)
	}
	s.decide = func(ctx context.Context, d time.Duration) (int, time.Duration, error) {
		return load.Closed{Connections: l.callers / depth, Depth: depth, Calls: math.MaxInt, For: d, More: more}.
			Run(ctx, first, calls)
	}
	s.prepare = func(ctx context.Context) error {
		for _, server := range append([]load.Target{first}, more...) {
			if err := fillServer(ctx, server, load.NewCall(call, load.From(0)), l.keys); err != nil {
				return err
			}
		}
		return nil
	}
}

// storeRun is one subject's measurements so far, a value for each round.
type storeRun struct {
	backend, own, throughput []float64
	decisions                int
	counts                   map[string]float64 // the growth of fields of INFO
}

// counted are the fields of INFO that are published per call.
var counted = []struct{ name, field string }{
	{"requests to the backend per call", "store_requests"}, {"conflicts per call", "store_conflicts"},
}

// round measures once. The first round only warms up everything.
func (r *storeRun) round(ctx context.Context, d time.Duration, s *subject, warmUp bool) error {
	backend, own, err := s.cpuTimes()
	if err != nil {
		return err
	}
	decisions, took := 0, time.Duration(0)
	for decisions == 0 && err == nil { // on a busy machine, a short round may be over before it begins
		decisions, took, err = s.decide(ctx, d)
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		return err
	}
	backendAfter, ownAfter, err := s.cpuTimes()
	if err != nil {
		return err
	}
	if warmUp {
		r.counts = map[string]float64{}
		return r.count(s, -1)
	}
	perDecision := func(t time.Duration) float64 { return t.Seconds() * 1e6 / float64(decisions) }
	r.backend = append(r.backend, perDecision(backendAfter-backend))
	r.own = append(r.own, perDecision(ownAfter-own))
	r.throughput = append(r.throughput, float64(decisions)/took.Seconds())
	r.decisions += decisions
	return nil
}

// count adds or subtracts the counted fields of INFO.
func (r *storeRun) count(s *subject, sign float64) error {
	for _, c := range counted {
		value, err := s.field(c.field, plus)
		if err != nil {
			return err
		}
		r.counts[c.field] += sign * value
	}
	return nil
}

func (s *subject) cpuTimes() (backend, own time.Duration, err error) {
	if backend, err = cpuTime(s.backend.id()); err != nil {
		return 0, 0, err
	}
	own, err = s.used()
	return backend, own, err
}

func (r *storeRun) result(name string, first storeRun) report.CPU {
	row := report.CPU{
		Server: name, Micros: report.NewSpread(r.backend), Ratio: report.NewSpread(ratios(r.backend, first.backend)),
		Throughput: report.NewSpread(r.throughput).Middle,
	}
	if own := report.NewSpread(r.own); own.Middle > 0 {
		row.Own = &own
	}
	return row
}

// figures returns the figures that have bars, and how much a call costs the backend besides CPU time.
func (l storeLoad) figures(rows []report.CPU, all []*subject, runs []storeRun) (figures []report.Figure) {
	for i, row := range rows {
		if row.Own == nil {
			continue
		}
		if l.share > 0 {
			figures = append(figures, report.Figure{What: row.Server + ": CPU time of the backend",
				Value: row.Ratio.Middle, Unit: "of redis_rate's", AtMost: l.share})
		}
		if l.ownMicros > 0 && len(all[i].servers) == 1 {
			figures = append(figures, report.Figure{What: row.Server + ": its own CPU time per call",
				Value: row.Own.Middle, Unit: "us", AtMost: l.ownMicros})
		}
		for _, c := range counted {
			figures = append(figures, report.Figure{What: row.Server + ": " + c.name,
				Value: runs[i].counts[c.field] / float64(runs[i].decisions)})
		}
	}
	return figures
}

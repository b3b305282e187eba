//go:build linux

package main

import (
	"context"
	"fmt"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// modestRate is so low that calls hardly wait for each other, in calls a second.
const modestRate = 1000

// latency makes calls at a modest rate, with one cellserver and with several, and PINGs to the
// backend, in alternating rounds.
func (l storeLoad) latency(ctx context.Context, b *bench) (s report.Scenario, err error) {
	all := []*subject{{name: report.Ping}}
	defer func() { b.leaveSubjects(all, true) }()
	for _, n := range l.servers {
		all = append(all, &subject{name: report.Cellservers(n)})
	}
	steady := make([]steadyLoad, len(all))
	for i, subject := range all {
		n := 0
		if i > 0 {
			n = l.servers[i-1]
		}
		if steady[i], err = l.enterSteady(ctx, b, subject, n); err != nil {
			return s, fmt.Errorf("%s: %w", subject.name, err)
		}
	}
	runs := make([]latencyRun, len(all))
	rounds := b.roundsOr(usualLatencyRounds)
	for round := range rounds {
		for i, subject := range all {
			b.progress.round(round+1, rounds, fmt.Sprintf("%d calls/s to %s", modestRate, subject.name))
			if err := runs[i].round(ctx, steady[i].open, steady[i].to, l.keys); err != nil {
				return s, fmt.Errorf("%s: %w", subject.name, err)
			}
		}
	}
	for i, subject := range all {
		s.Latency = append(s.Latency, runs[i].result(subject.name, steady[i].open, runs[0]))
	}
	s.Figures = l.latencyBars(runs)
	s.Inside = versionOf(l.backend, all[0])
	return s, nil
}

// steadyLoad is a load at a fixed rate.
type steadyLoad struct {
	open load.Open
	to   *entrant // the first cellserver, or the backend
}

// enterSteady starts a backend with n cellservers. They share its core, because a load at a fixed rate
// needs the other core for itself.
func (l storeLoad) enterSteady(ctx context.Context, b *bench, s *subject, n int) (steady steadyLoad, err error) {
	if err := b.startBackend(ctx, l.backend, s); err != nil {
		return steady, err
	}
	steady.open = load.Open{Connections: l.callers, Rate: modestRate, For: b.openFor}
	steady.to = &entrant{process: s.backend, target: s.backend.tcp, call: "PING"}
	if n == 0 {
		return steady, nil
	}
	if err := b.connect(ctx, s, b.cores, s.same(n), patient); err != nil {
		return steady, err
	}
	steady.to.process, steady.to.call = s.servers[0], l.limit.call()
	steady.to.target, steady.open.More = s.targets()
	l.calling(s, steady.to.target, steady.open.More, steady.to.call, false)
	return steady, s.prepare(ctx)
}

// latencyBars returns how much longer a call takes than its round trips. A call needs one round trip if its
// cellserver was the last to write the key, and otherwise two. A single cellserver always was the last.
func (l storeLoad) latencyBars(runs []latencyRun) (figures []report.Figure) {
	for i, n := range l.servers {
		trips, words, most := 1.0, "one round trip", 100.0
		if n > 1 {
			trips, words, most = 2, "two round trips", 150
		}
		var more []float64
		for round, p50 := range runs[i+1].micros[0] {
			more = append(more, p50-trips*runs[0].micros[0][round])
		}
		figures = append(figures, report.Figure{What: report.Cellservers(n) + ": p50 beyond " + words,
			Value: report.NewSpread(more).Middle, Unit: "us", AtMost: most})
	}
	return figures
}

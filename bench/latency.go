//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// latencyLoad makes calls at a fixed rate: a share of the highest rate at which redis-server
// answers in this run.
type latencyLoad struct {
	share       float64
	connections int
	keys        int
}

const usualLatencyRounds = 5

// latency measures each server at the same rate, in alternating rounds.
func (l latencyLoad) latency(contenders []contender) measurement {
	return func(ctx context.Context, b *bench) (s report.Scenario, err error) {
		entrants, err := b.enter(ctx, contenders, limitUsual)
		defer func() { b.leave(entrants) }()
		if err != nil {
			return s, err
		}
		rate, err := l.rate(ctx, b, entrants[0])
		if err != nil {
			return s, err
		}
		open := load.Open{Connections: l.connections, Rate: rate, For: b.openFor}
		runs := make([]latencyRun, len(entrants))
		rounds := b.roundsOr(usualLatencyRounds)
		for round := range rounds {
			for i, e := range entrants {
				b.progress.round(round+1, rounds, fmt.Sprintf("%.0f calls/s to %s", rate, e.name))
				if err := runs[i].round(ctx, open, e, l.keys); err != nil {
					return s, fmt.Errorf("%s: %w", e.name, err)
				}
			}
		}
		for i, e := range entrants {
			s.Latency = append(s.Latency, runs[i].result(e.name, open, runs[0]))
		}
		s.Inside = insideOf(entrants)
		return s, nil
	}
}

// rateFor is how long redis-server's highest rate is measured.
const rateFor = 3 * time.Second

func (l latencyLoad) rate(ctx context.Context, b *bench, redis *entrant) (float64, error) {
	b.progress.say("finding the highest rate of " + redis.name)
	closed := load.Closed{Connections: l.connections, Depth: 1, Calls: math.MaxInt, For: min(rateFor, b.openFor)}
	calls, took, err := closed.Run(ctx, redis.target, load.NewCall(redis.call, load.Among(l.keys)))
	return l.share * float64(calls) / took.Seconds(), err
}

// latencyRun is one server's measurements so far, a value for each round.
type latencyRun struct {
	micros [][]float64 // by percentile
	busy   []float64   // share of the server's core
}

func (r *latencyRun) round(ctx context.Context, open load.Open, e *entrant, keys int) error {
	before, err := cpuTime(e.process.id())
	if err != nil {
		return err
	}
	histogram, err := open.Run(ctx, e.target, load.NewCall(e.call, load.Among(keys)))
	if err != nil {
		return err
	}
	after, err := cpuTime(e.process.id())
	if r.micros == nil {
		r.micros = make([][]float64, len(report.Percentiles))
	}
	for i, p := range report.Percentiles {
		r.micros[i] = append(r.micros[i], float64(histogram.ValueAtPercentile(p))/1e3)
	}
	r.busy = append(r.busy, (after-before).Seconds()/open.For.Seconds())
	return err
}

func (r latencyRun) result(server string, open load.Open, first latencyRun) report.Latency {
	l := report.Latency{Server: server, Rate: open.Rate, Length: open.For.Seconds(), Busy: report.NewSpread(r.busy).Middle}
	for i, micros := range r.micros {
		l.Micros = append(l.Micros, report.NewSpread(micros))
		l.Ratio = append(l.Ratio, report.NewSpread(ratios(micros, first.micros[i])))
		l.Worst = append(l.Worst, slices.Max(micros))
	}
	return l
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"cellserver/bench/load"
	"cellserver/bench/report"
	"cellserver/test/proxy"
)

// storeShare lets cellservers call one key as fast as they can, and measures how many decisions
// each gets.
type storeShare struct {
	backend  backend
	groups   []group
	callers  int // of each cellserver
	timeout  time.Duration
	maxTries float64
}

// group is a number of cellservers. The first may be further away from the backend.
type group struct {
	servers int
	further time.Duration // additional round trip
}

func (g group) String() string {
	if g.further > 0 {
		return fmt.Sprintf("%s, one behind %v", report.Cellservers(g.servers), g.further)
	}
	return report.Cellservers(g.servers)
}

const usualShareRounds = 3

// measure runs rounds for each group in turn.
func (h storeShare) measure(ctx context.Context, b *bench) (s report.Scenario, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // the proxy must not wait for the load
	var all []*subject
	defer func() { b.leaveSubjects(all, false) }()
	runs := make([]shareRun, len(h.groups))
	for _, g := range h.groups {
		subject := &subject{name: g.String()}
		all = append(all, subject)
		if err := h.enter(ctx, b, g, subject); err != nil {
			return s, fmt.Errorf("%s: %w", subject.name, err)
		}
	}
	rounds := b.roundsOr(usualShareRounds)
	for round := range rounds {
		for i, subject := range all {
			b.progress.round(round+1, rounds, subject.name)
			if err := runs[i].round(ctx, h.callers, b.openFor, subject); err != nil {
				return s, fmt.Errorf("%s: %w", subject.name, err)
			}
		}
	}
	for i, g := range h.groups {
		row, err := runs[i].result(all[i])
		if err != nil {
			return s, err
		}
		s.Shares = append(s.Shares, row)
		s.Figures = append(s.Figures, h.bars(g, row)...)
	}
	s.Inside = versionOf(h.backend, all[0])
	return s, nil
}

// enter starts a group, with a proxy in front of the backend for a cellserver that is further away.
func (h storeShare) enter(ctx context.Context, b *bench, g group, s *subject) error {
	if err := b.startBackend(ctx, h.backend, s); err != nil {
		return err
	}
	addresses := s.same(g.servers)
	if g.further > 0 {
		p, err := proxy.Start(s.backend.tcp.Address)
		if err != nil {
			return err
		}
		s.stop = p.Close
		p.SetDelay(g.further / 2)
		addresses[0] = p.Addr
	}
	return b.connect(ctx, s, b.cores.withLoad(), addresses, nil)
}

// shareRun has the measurements of a group, a value for each round.
type shareRun struct {
	rate, slowest, p50, p99 []float64
	calls, failed           int
}

// round calls the key from all cellservers. A caller makes its next call when it has the reply.
func (r *shareRun) round(ctx context.Context, callers int, d time.Duration, s *subject) error {
	first, more := s.targets()
	answered := make([]int, len(s.servers))
	took := make([]*hdrhistogram.Histogram, len(s.servers))
	for i := range took {
		took[i] = hdrhistogram.New(1, int64(10*time.Minute), 3)
	}
	closed := load.Closed{Connections: callers * len(s.servers), Depth: 1, Calls: math.MaxInt, For: d, More: more,
		Answered: func(server int, t time.Duration, refusal string) {
			r.calls++
			_ = took[server].RecordValue(int64(t)) // no call exceeds the histogram's range
			if refusal != "" {
				r.failed++
			} else {
				answered[server]++
			}
		}}
	_, length, err := closed.Run(ctx, first, load.NewCall(hotLimit.call(), load.Among(1)))
	if err != nil {
		return err
	}
	slowest := slices.Index(answered, slices.Min(answered))
	at := func(percentile float64) float64 { return float64(took[slowest].ValueAtPercentile(percentile)) / 1e6 }
	all := 0
	for _, n := range answered {
		all += n
	}
	r.rate = append(r.rate, float64(all)/length.Seconds())
	r.slowest = append(r.slowest, float64(answered[slowest]*len(answered))/float64(max(1, all)))
	r.p50, r.p99 = append(r.p50, at(50)), append(r.p99, at(99))
	return nil
}

func (r *shareRun) result(s *subject) (row report.Share, err error) {
	row = report.Share{
		Server: s.name, Rate: report.NewSpread(r.rate).Middle, Slowest: report.NewSpread(r.slowest),
		P50: report.NewSpread(r.p50).Middle, P99: report.NewSpread(r.p99).Middle,
		Failed: float64(r.failed) / float64(max(1, r.calls)),
	}
	if row.MostTries, err = s.field("store_most_tries", math.Max); err != nil {
		return row, err
	}
	conflicts, err := s.field("store_conflicts", plus)
	row.Conflicts = conflicts / float64(max(1, r.calls))
	return row, err
}

// bars returns the figures of a group that have bars.
func (h storeShare) bars(g group, row report.Share) (figures []report.Figure) {
	if g.further > 0 {
		return []report.Figure{{What: row.Server + ": p99 of the slowest", Value: row.P99, Unit: "ms",
			AtMost: float64(h.timeout.Milliseconds())}}
	}
	if g.servers > 1 {
		figures = append(figures, report.Figure{What: row.Server + ": the slowest, of an even share",
			Value: row.Slowest.Middle, AtLeast: 0.25})
	}
	return append(figures, report.Figure{What: row.Server + ": most tries", Value: row.MostTries, AtMost: h.maxTries})
}

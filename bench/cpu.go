//go:build linux

package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"cellserver/bench/load"
	"cellserver/bench/report"
)

// cpuLoad is the load that redis-benchmark makes in a scenario.
type cpuLoad struct {
	pipeline    int // calls in flight on a connection
	connections int
	keys        int // chosen at random; with 1, always the same key
	unix        bool
	limit       string

	rest   time.Duration // before the first round
	settle time.Duration // after the calls of a round, and counted in it: see round
}

const usualRounds = 21

// cpu measures the CPU time per call of each server, in alternating rounds.
func (l cpuLoad) cpu(contenders []contender) measurement {
	return func(ctx context.Context, b *bench) (s report.Scenario, err error) {
		entrants, err := b.enter(ctx, contenders, l.limit)
		defer func() { b.leave(entrants) }()
		if err != nil {
			return s, err
		}
		runs := make([]*cpuRun, len(entrants))
		for i, e := range entrants {
			if runs[i], err = l.prepare(ctx, b, e); err != nil {
				return s, fmt.Errorf("%s: %w", e.name, err)
			}
		}
		if err := pause(ctx, l.rest); err != nil {
			return s, err
		}
		rounds := b.roundsOr(usualRounds)
		for round := range rounds + 1 {
			for _, r := range runs {
				b.progress.round(round, rounds, r.entrant.name)
				if err := r.round(ctx, round == 0); err != nil {
					return s, fmt.Errorf("%s: %w", r.entrant.name, err)
				}
			}
		}
		for _, r := range runs {
			s.CPU = append(s.CPU, r.result(runs[0]))
		}
		s.Inside = insideOf(entrants)
		return s, nil
	}
}

// cpuRun is one server's measurements so far, a value for each round.
type cpuRun struct {
	entrant    *entrant
	args       []string // redis-benchmark's arguments, without the number of calls
	calls      int
	settle     time.Duration
	micros     []float64
	throughput []float64
}

// fewest is the number of calls in the shortest round: a few on every connection.
func (l cpuLoad) fewest() int { return max(1000, 4*l.connections*l.pipeline) }

// prepare creates the keys, unless every call has a new key, and finds how many calls fill a round.
func (l cpuLoad) prepare(ctx context.Context, b *bench, e *entrant) (*cpuRun, error) {
	keys := l.keys
	if e.keys > 0 {
		keys = e.keys
	}
	if l.unix && !e.tcp {
		e.target = e.process.socket
	}
	r := &cpuRun{entrant: e, args: l.arguments(e, keys), calls: l.fewest(), settle: l.settle}
	if keys != everyKeyNew {
		b.progress.say("filling " + e.name)
		if err := e.fill(ctx, load.NewCall(e.call, load.From(0)), keys); err != nil {
			return nil, err
		}
	}
	rate, err := r.load(ctx)
	r.calls = max(l.fewest(), int(rate*b.roundFor.Seconds()))
	return r, err
}

// arguments returns the arguments with which redis-benchmark uses the keys that fill creates.
func (l cpuLoad) arguments(e *entrant, keys int) []string {
	key := "user:000000000000"
	args := []string{"-q", "-c", strconv.Itoa(l.connections), "-P", strconv.Itoa(l.pipeline)}
	if keys > 1 {
		key = "user:__rand_int__"
		args = append(args, "-r", strconv.Itoa(keys))
	}
	if e.target.Network == "unix" {
		args = append(args, "-s", e.target.Address)
	} else {
		_, port, _ := strings.Cut(e.target.Address, ":")
		args = append(args, "-p", port)
	}
	return append(args, strings.Fields(strings.ReplaceAll(e.call, load.Key, key))...)
}

// round measures once. The first round only warms up the server. If a server does a part of its work
// later, such as writing to a disk, the round lasts until that work is done.
func (r *cpuRun) round(ctx context.Context, warmUp bool) error {
	before, err := cpuTime(r.entrant.process.id())
	if err != nil {
		return err
	}
	rate, err := r.load(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, r.settle); err != nil {
		return err
	}
	after, err := cpuTime(r.entrant.process.id())
	if err == nil && !warmUp {
		r.micros = append(r.micros, (after-before).Seconds()*1e6/float64(r.calls))
		r.throughput = append(r.throughput, rate)
	}
	return err
}

// load runs redis-benchmark, and returns the calls per second that it reports. It fails at the
// first error reply.
func (r *cpuRun) load(ctx context.Context) (rate float64, err error) {
	args := append([]string{"-n", strconv.Itoa(r.calls)}, r.args...)
	cmd := exec.CommandContext(ctx, "redis-benchmark", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("redis-benchmark: %w\n%s", err, out)
	}
	return parseRate(string(out))
}

var reportedRate = regexp.MustCompile(`([0-9.]+) requests per second`)

// parseRate reads the output of redis-benchmark -q: a line that it overwrites, and at last the rate
// of all calls.
func parseRate(out string) (float64, error) {
	found := reportedRate.FindStringSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("redis-benchmark: %s", out)
	}
	return strconv.ParseFloat(found[1], 64)
}

func (r *cpuRun) result(first *cpuRun) report.CPU {
	return report.CPU{
		Server: r.entrant.name, Micros: report.NewSpread(r.micros),
		Ratio:      report.NewSpread(ratios(r.micros, first.micros)),
		Throughput: report.NewSpread(r.throughput).Middle,
	}
}

// ratios returns the ratios of two samples, round by round. A disturbance longer than a round
// affects both samples, and the ratio hardly changes.
func ratios(sample, first []float64) []float64 {
	r := make([]float64, len(sample))
	for i := range r {
		r[i] = sample[i] / first[i]
	}
	return r
}

// everyKeyNew is a number of keys so large that redis-benchmark hardly ever chooses a key twice.
const everyKeyNew = 2_000_000_000

//go:build linux

// Command bench compares cellserver with redis-server: CPU time of the server per call, latency at
// fixed rates, memory.
//
// Absolute times mean little on shared machines. So the servers are measured in alternating rounds,
// A B A B, each pinned to one core with the load on another, and the result is the median of the
// ratios of all rounds, with its quartiles. redis-server compared with itself in the same run shows
// the error: with 21 rounds it is about 2 %.
//
//	make bench                                                     CPU per call, P=1 and 64
//	make bench ARGS=--list                                         the scenarios
//	make bench ARGS="--only 'latency|memory'"                      the scenarios whose names match
//	make bench ARGS="--module /path/redis_cell.so"                 also a Redis module
//	make bench ARGS="--newer /path/valkey-server"                  INCR and the scripts also on a newer server
//	make bench ARGS="--other 'dragonfly --port {port}'"            also another server
//	make bench ARGS="--only store"                                 keys in Redis and Valkey, compared with redis_rate
//	make bench ARGS="--publish --only memory"                      writes bench/RESULTS.md, the plots and the documents
//
// It needs Linux with two cores, redis-server and redis-benchmark. For Valkey, VALKEY_SERVER names a
// valkey-server of 8.1 or later; without it, one is downloaded, or its scenarios are left out.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	switch {
	case errors.Is(err, pflag.ErrHelp):
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "\nbench: stopped; the results of completed scenarios are kept")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parseOptions(args)
	if err != nil {
		return err
	}
	all := scenarios(o)
	if o.list {
		for _, s := range all {
			fmt.Printf("%-16s %s\n", s.name, s.about)
		}
		return nil
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(s scenario) bool { return !o.only.MatchString(s.name) })
	if len(chosen) == 0 {
		return fmt.Errorf("no scenario matches %q: --list lists them", o.only)
	}
	var p *publication
	if o.publish {
		if p, err = newPublication(o, all); err != nil {
			return err
		}
	}
	c, err := twoCores()
	if err != nil {
		return err
	}
	b, err := newBench(o, c)
	if err != nil {
		return err
	}
	defer b.close()
	return b.measure(ctx, chosen, p)
}

// measure runs scenarios, and prints the results of each as soon as it is complete.
func (b *bench) measure(ctx context.Context, chosen []scenario, p *publication) error {
	for i, s := range chosen {
		b.progress.begin(fmt.Sprintf("%s (%d of %d)", s.name, i+1, len(chosen)))
		result, err := b.watch(ctx, s)
		b.progress.end()
		if errors.Is(err, errLeftOut) {
			fmt.Printf("## %s: %s\n\n%v\n\n", s.name, s.about, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		result.Name, result.About = s.name, s.about
		fmt.Printf("## %s: %s\n\n%s\n", s.name, s.about, result.Tables())
		if p != nil {
			if err := p.put(result); err != nil {
				return err
			}
		}
	}
	return nil
}

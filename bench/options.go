//go:build linux

package main

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/pflag"
)

// options are the command line's options.
type options struct {
	args      []string // the command line
	server    string
	other     string
	otherCall string
	module    string
	newer     newer

	throttlecrab string
	peers        string

	only     *regexp.Regexp
	list     bool
	rounds   int // 0: as many as the scenario's kind needs
	roundFor time.Duration
	openFor  time.Duration
	mostKeys int

	publish    bool
	allowDirty bool
	root       string
}

// Defaults: the scenarios, and the length of a round at a fixed rate.
const (
	shortOnly    = "^cpu-p(1|64)$"
	shortOpen    = 10 * time.Second
	publishOpen  = 60 * time.Second
	fewestOfMost = 4000 // keys: the scenarios divide them into steps
)

func parseOptions(args []string) (_ *options, err error) {
	o := &options{args: args}
	f := pflag.NewFlagSet("bench", pflag.ContinueOnError)
	f.SortFlags = false
	only := f.String("only", "",
		"run the scenarios whose names match this `regexp` (default "+shortOnly+"; all with --publish)")
	f.BoolVar(&o.list, "list", false, "list the scenarios and exit")
	f.StringVar(&o.server, "server", "bin/cellserver", "the cellserver to measure")
	f.StringVar(&o.other, "other", "",
		"`command` that starts another server to compare with; {port} and {socket} stand for its addresses")
	f.StringVar(&o.otherCall, "other-call", throttleCall,
		"the call to the other server; {limit} stands for max_burst, count, period, quantity")
	f.StringVar(&o.module, "module", "", "`file` of a Redis module with CL.THROTTLE to compare with, such as redis-cell")
	newerServer := f.String("newer", "",
		"`program` of a newer redis-server or valkey-server, which INCR and the scripts are measured with, too")
	f.StringVar(&o.throttlecrab, "throttlecrab", "", "`program` of throttlecrab's server, for the scenarios that compare limiters")
	f.StringVar(&o.peers, "peers", "", "versions of other limiters, published with the results")
	f.IntVar(&o.rounds, "rounds", 0, "alternating rounds (default 21 for CPU, 5 for latency)")
	f.DurationVar(&o.roundFor, "round", 600*time.Millisecond, "approximate length of a CPU round")
	f.DurationVar(&o.openFor, "for", 0, "length of a latency round (default 10s; 60s with --publish)")
	f.IntVar(&o.mostKeys, "most-keys", 10_000_000, "keys in the largest scenarios; fewer for a quick run")
	f.BoolVar(&o.publish, "publish", false,
		"write bench/results.json, bench/RESULTS.md, bench/plots and the figures of README.md and docs/")
	f.BoolVar(&o.allowDirty, "allow-dirty", false, "publish even with uncommitted changes")
	f.StringVar(&o.root, "root", ".", "the project's `directory`, in which to publish")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if o.newer, err = findNewer(*newerServer); err != nil {
		return nil, err
	}
	return o, o.complete(f, *only)
}

// complete checks the options, and fills in options that depend on others.
func (o *options) complete(f *pflag.FlagSet, only string) (err error) {
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: options start with --", f.Arg(0))
	case o.rounds < 0 || o.roundFor <= 0 || o.openFor < 0:
		return errors.New("--rounds, --round and --for must be more than 0")
	case o.mostKeys < fewestOfMost:
		return fmt.Errorf("--most-keys must be at least %d", fewestOfMost)
	}
	if only == "" && !o.publish {
		only = shortOnly
	}
	if o.openFor == 0 {
		o.openFor = shortOpen
		if o.publish {
			o.openFor = publishOpen
		}
	}
	o.only, err = regexp.Compile(only)
	return err
}

// roundsOr returns the number of rounds: --rounds if it is set, and otherwise usual.
func (o *options) roundsOr(usual int) int {
	if o.rounds > 0 {
		return o.rounds
	}
	return usual
}

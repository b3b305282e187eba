// Package top implements the subcommand cellserver top, a live view of a running server: how much the
// limiters allow and limit, which keys they limit most, and what the calls cost.
//
// Everything comes from INFO, CL.TOP, CL.POLICY and TIME, which any user may be allowed to call. Rates are the
// differences of two samples, divided by the time between them on the server's clock.
package top

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"cellserver/internal/cli"
)

const usage = `cellserver top shows what a running cellserver does: the decisions of each limiter, the keys that are
limited most, the policies in force, the domains of Envoys, and the cost of calls. Press q to leave.

Usage: cellserver top [options]

%s      --help                print this

A user needs the rights ` + rights + `.

Examples:
  cellserver top
  cellserver top --once --interval 10s
  cellserver top -h limits.internal -p 7000 --user viewer
`

// rights are those that a view needs.
const rights = "+info, +time and +cl.top, and for the policies +cl.policy|list and +cl.policy|get"

// The bounds of the options. A sample costs the server less than a millisecond.
const (
	shortestInterval = 100 * time.Millisecond
	longestInterval  = time.Hour
	mostKeys         = 1000
)

// options are the options of the command line.
type options struct {
	server   cli.Server
	once     bool
	interval time.Duration
	keys     int
}

// Run runs the subcommand. On a terminal it returns when the user leaves.
func Run(args []string, own cli.ServerEnvironment, in, out *os.File) error {
	o, err := parse(args, own, out)
	if err != nil {
		return err
	}
	s := &sampler{server: &o.server, keys: o.keys}
	if o.once {
		return once(s, o.interval, out)
	}
	if !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return errors.New("this is not a terminal: --once prints one view")
	}
	return live(s, o.interval, in, out)
}

func parse(args []string, own cli.ServerEnvironment, out *os.File) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("cellserver top", pflag.ContinueOnError)
	f.SortFlags = false
	complete := o.server.Define(f, own)
	f.BoolVar(&o.once, "once", false, "print one view, after one interval, and end")
	f.DurationVar(&o.interval, "interval", time.Second, "time between two views, which rates are measured over")
	f.IntVar(&o.keys, "keys", 10, "keys of each list of CL.TOP")
	f.Usage = func() { fmt.Fprintf(out, usage, f.FlagUsages()) }
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w; see cellserver top --help", err)
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q; see cellserver top --help", f.Arg(0))
	case o.interval < shortestInterval || o.interval > longestInterval:
		return nil, fmt.Errorf("--interval %v: must be between %v and %v", o.interval, shortestInterval, longestInterval)
	case o.keys < 1 || o.keys > mostKeys:
		return nil, fmt.Errorf("--keys %d: must be between 1 and %d", o.keys, mostKeys)
	}
	return o, complete()
}

// once prints one view, with the rates of an interval that begins now.
func once(s *sampler, interval time.Duration, out *os.File) error {
	defer s.close()
	before, err := s.take()
	if err != nil {
		return err
	}
	time.Sleep(interval)
	now, err := s.take()
	if err != nil {
		return err
	}
	v := view{address: s.last, before: before, now: now}
	var text strings.Builder
	for _, l := range v.lines(0) {
		text.WriteString(printable(l.text) + "\n")
	}
	_, err = out.WriteString(text.String())
	return err
}

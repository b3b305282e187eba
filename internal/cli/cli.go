// Package cli implements the subcommand cellserver cli, a small redis-cli.
package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"cellserver/internal/option"
)

// options are the options of the command line. Their names and letters are redis-cli's.
type options struct {
	Server
	resp2, resp3  bool
	formats       []format // those that were asked for: at most one
	repeat        int      // how often the command is sent; negative for ever
	interval      interval
	givenPassword bool     // on the command line, for the user default
	words         []string // the words of the command; none if commands are read from stdin
}

// interval is an option whose value is a number of seconds, as in redis-cli, or a duration with a unit.
type interval time.Duration

func (i *interval) String() string { return time.Duration(*i).String() }

// Type implements pflag.Value.
func (i *interval) Type() string { return "seconds" }

// Set implements pflag.Value.
func (i *interval) Set(text string) error {
	d, err := time.ParseDuration(text)
	if seconds, numberErr := strconv.ParseFloat(text, 64); numberErr == nil {
		// NaN is outside of the bounds too.
		if err = errInterval; seconds >= 0 && seconds <= longestInterval.Seconds() {
			d, err = time.Duration(seconds*float64(time.Second)), nil
		}
	}
	if err != nil || d < 0 || d > longestInterval {
		return errInterval
	}
	*i = interval(d)
	return nil
}

// longestInterval is the longest pause between two repetitions.
const longestInterval = 365 * 24 * time.Hour

var errInterval = errors.New("must be a number of seconds, such as 0.5, or a time with a unit, such as 500ms")

// Run runs the subcommand. It returns the exit status: 0 if every command succeeded, 1 if one got an
// error reply, or no reply.
func Run(args []string, own ServerEnvironment) (status int) {
	o, err := own.parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err != nil:
		printError(err)
		return 1
	}
	disableClientLog()
	l := newConnection(&o.Server)
	if o.resp3 || slices.Contains(o.formats, formatJSON) && !o.resp2 {
		l.protocol = 3
	}
	defer l.close()
	onScreen := term.IsTerminal(int(os.Stdout.Fd()))
	d := &runner{conn: l, out: os.Stdout, format: o.format(onScreen), interval: time.Duration(o.interval),
		wait: time.Sleep, docs: own.Docs}
	asksForHelp := len(o.words) > 0 && isHelp(o.words)
	if o.givenPassword && !asksForHelp {
		err = l.warnNoPassword()
	}
	switch {
	case err != nil:
	case asksForHelp:
		err = d.help(o.words[1:])
	case len(o.words) > 0:
		err = d.repeat(o.words, o.repeat)
	case onScreen && term.IsTerminal(int(os.Stdin.Fd())):
		err = d.prompt(os.Stdin, os.Stdout, openHistory(historyFile()))
	default:
		err = d.script(os.Stdin)
	}
	switch {
	case err == nil:
		return 0
	case !errors.Is(err, errReply):
		printError(err)
	}
	return 1
}

// format returns the format of replies.
func (o *options) format(onScreen bool) format {
	switch {
	case len(o.formats) > 0:
		return o.formats[0]
	case onScreen:
		return formatHuman
	}
	return formatRaw
}

func printError(err error) { fmt.Fprintln(os.Stderr, "cellserver cli:", err) }

// parse parses the command line. The environment has the defaults.
func (own ServerEnvironment) parse(args []string) (*options, error) {
	o := &options{}
	f, complete := o.define(own)
	f.Usage = func() { fmt.Printf(usage, f.FlagUsages()) }
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w; see cellserver cli --help", err)
	}
	if err := complete(); err != nil {
		return nil, err
	}
	o.givenPassword = f.Changed("pass") && o.password != "" && o.user == ""
	switch o.words = f.Args(); {
	case o.database < 0:
		return nil, fmt.Errorf("-n %d: must not be negative", o.database)
	case len(o.formats) > 1:
		return nil, errors.New("--raw, --no-raw and --json contradict each other: give one")
	case o.resp2 && o.resp3:
		return nil, errors.New("-2 and -3 contradict each other: give one")
	case f.Changed("repeat") && len(o.words) == 0:
		return nil, errors.New("-r needs a COMMAND; in a session, write the number before it: 5 PING")
	}
	return o, nil
}

// define defines the options. The function that it returns is to be called after the command line has been parsed.
func (o *options) define(own ServerEnvironment) (f *pflag.FlagSet, complete func() error) {
	f = pflag.NewFlagSet("cellserver cli", pflag.ContinueOnError)
	f.SortFlags = false
	f.SetInterspersed(false) // arguments of the command may begin with -, such as -1
	complete = o.Define(f, own)
	f.IntVarP(&o.database, "db", "n", 0, "number of the database")
	f.IntVarP(&o.repeat, "repeat", "r", 1, "send the command this often; -1 for ever")
	f.VarP(&o.interval, "interval", "i", "wait between two repetitions, such as 0.5, or 500ms")
	f.BoolVarP(&o.resp2, "resp2", "2", false, "use RESP2, the default without --json")
	f.BoolVarP(&o.resp3, "resp3", "3", false, "use RESP3, which distinguishes maps and sets from arrays")
	o.defineFormat(f, "raw", formatRaw, "print replies without types, the default if stdout is not a terminal")
	o.defineFormat(f, "no-raw", formatHuman, "print replies with types, the default on a terminal")
	o.defineFormat(f, "json", formatJSON, "print replies as JSON, and use RESP3")
	return f, complete
}

func (o *options) defineFormat(f *pflag.FlagSet, name string, one format, usage string) {
	f.BoolFunc(name, usage, func(string) error {
		if !slices.Contains(o.formats, one) {
			o.formats = append(o.formats, one)
		}
		return nil
	})
}

// paths are the options that name a file or a folder.
var paths = []string{"socket", "config", "cacert", "cacertdir", "cert", "key"}

// Flags describes the options, for the manual page and the completions of shells.
func Flags(own ServerEnvironment) (flags []option.Flag) {
	set, _ := new(options).define(own)
	set.VisitAll(func(f *pflag.Flag) {
		one := option.Flag{Name: f.Name, Type: f.Value.Type(), Help: f.Usage}
		switch {
		case slices.Contains(paths, f.Name):
			one.Type = option.PathType
		case f.NoOptDefVal != "":
			one.Type = ""
		}
		flags = append(flags, one)
	})
	return flags
}

const usage = `cellserver cli sends commands to a running cellserver, or to any server that speaks the Redis
protocol, as redis-cli does.

Usage: cellserver cli [options] [COMMAND [argument ...]]

%s      --help               print this

Without COMMAND, it reads commands from the terminal (quit, exit or Ctrl-D to leave), or one from
each line of stdin. help COMMAND shows what a command does, and its arguments; without a server,
it shows what this version says. MONITOR and SUBSCRIBE print what the server sends until Ctrl-C.
The exit status is 1 if a command got an error reply or the server did not answer, else 0.

A session on a terminal keeps its lines in ~/.cellserver_history, without those that have
passwords. CELLSERVERCLI_HISTFILE names another file, or /dev/null for none.

Examples:
  cellserver cli PING
  cellserver cli help CL.THROTTLE
  cellserver cli -h limits.internal -p 7000 CL.THROTTLE user123 15 30 60 1
  cellserver cli --json CL.INSPECT user123
  cellserver cli -r 10 -i 0.5 CL.THROTTLE user123 15 30 60
  cellserver cli SUBSCRIBE news
  cellserver cli --tls --cacert ca.crt --cert me.crt --key me.key -p 6380 PING
  cellserver cli -s /run/cellserver.sock -n 2 DEL "a key"
  cellserver cli < commands.txt
`

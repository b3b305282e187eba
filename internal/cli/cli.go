// Package cli implements the subcommand cellserver cli, a small redis-cli.
package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// options are the options of the command line. The letters are redis-cli's, except for -r, which is
// its --raw.
type options struct {
	Server
	resp3         bool
	raw           bool
	human         bool
	givenPassword bool     // on the command line, for the user default
	words         []string // the words of the command; none if commands are read from stdin
}

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
	if o.resp3 {
		l.protocol = 3
	}
	defer l.close()
	onScreen := term.IsTerminal(int(os.Stdout.Fd()))
	d := &runner{conn: l, out: os.Stdout, raw: !o.human && (o.raw || !onScreen)}
	if o.givenPassword {
		l.warnNoPassword()
	}
	switch {
	case len(o.words) > 0 && isHelp(o.words):
		err = d.help(o.words[1:])
	case len(o.words) > 0:
		err = d.execute(o.words)
	case onScreen && term.IsTerminal(int(os.Stdin.Fd())):
		err = d.prompt(os.Stdin, os.Stdout)
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

func printError(err error) { fmt.Fprintln(os.Stderr, "cellserver cli:", err) }

// parse parses the command line. The environment has the defaults.
func (own ServerEnvironment) parse(args []string) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("cellserver cli", pflag.ContinueOnError)
	f.SortFlags = false
	f.SetInterspersed(false) // arguments of the command may begin with -, such as -1
	complete := o.Define(f, own)
	f.IntVarP(&o.database, "db", "n", 0, "number of the database")
	f.BoolVarP(&o.resp3, "resp3", "3", false, "use RESP3, which distinguishes maps and sets from arrays")
	f.BoolVarP(&o.raw, "raw", "r", false, "print replies without types, the default if stdout is not a terminal")
	f.BoolVar(&o.human, "no-raw", false, "print replies with types, the default on a terminal")
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
	case o.raw && o.human:
		return nil, errors.New("-r (--raw) and --no-raw contradict each other: give one")
	}
	return o, nil
}

const usage = `cellserver cli sends commands to a running cellserver, or to any server that speaks the Redis
protocol, as redis-cli does.

Usage: cellserver cli [options] [COMMAND [argument ...]]

%s      --help               print this

Without COMMAND, it reads commands from the terminal (quit, exit or Ctrl-D to leave), or one from
each line of stdin. help COMMAND shows what a command does, and its arguments. The exit status is
1 if a command got an error reply or the server did not answer, and 0 otherwise.

Examples:
  cellserver cli PING
  cellserver cli help CL.THROTTLE
  cellserver cli -h limits.internal -p 7000 CL.THROTTLE user123 15 30 60 1
  cellserver cli -3 CL.INSPECT user123
  cellserver cli --tls --cacert ca.crt --cert me.crt --key me.key -p 6380 PING
  cellserver cli -s /run/cellserver.sock -n 2 DEL "a key"
  cellserver cli < commands.txt
`

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

const readyUsage = `cellserver ready tells whether a running cellserver is ready for clients: it answers PING, so it has
loaded its keys, and with --store, it has reached a server of the store at least once since it started. It
stays ready if the store fails later, because --store-fails then says what clients get.

Usage: cellserver ready [options]

%s      --help               print this

The exit status is 0 if the server is ready, and 1 otherwise.
`

// errNotReached is the result for a server that has not reached its store yet.
var errNotReached = errors.New("not ready: the server has not reached its store yet; its log says why")

// Ready runs the subcommand ready. It returns an error if the server is not ready.
func Ready(args []string, own ServerEnvironment, out io.Writer) error {
	var s Server
	f := pflag.NewFlagSet("cellserver ready", pflag.ContinueOnError)
	f.SortFlags = false
	complete := s.Define(f, own)
	f.Usage = func() { fmt.Fprintf(out, readyUsage, f.FlagUsages()) }
	if err := f.Parse(args); errors.Is(err, pflag.ErrHelp) {
		return err
	} else if err != nil {
		return fmt.Errorf("%w; see cellserver ready --help", err)
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; see cellserver ready --help", f.Arg(0))
	}
	if err := complete(); err != nil {
		return err
	}
	disableClientLog()
	l := newConnection(&s)
	defer l.close()
	if _, err := l.ask("PING"); err != nil {
		return err
	}
	store, err := l.ask("INFO", "store")
	if err != nil {
		return err
	}
	if strings.Contains(store, "store_reached:0") {
		return errNotReached
	}
	fmt.Fprintln(out, "ready")
	return nil
}

// ask sends a command, and returns the text of its reply. An error reply means that the server is not
// ready.
func (l *connection) ask(call ...string) (string, error) {
	r, err := l.call(call)
	if err == nil && r.kind == kindError {
		err = fmt.Errorf("not ready: %s", r.text)
		if bytes.HasPrefix(r.text, []byte("NOAUTH ")) {
			err = fmt.Errorf("%w -a gives a password, --user the name of its user", err)
		}
	}
	return string(r.text), err
}

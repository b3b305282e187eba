// Package cli is a small redis-cli: the subcommand cellserver cli.
package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"cellserver/internal/tlsconfig"
)

// options is what the command line of cellserver cli says. The letters are redis-cli's; -r stands
// for its --raw.
type options struct {
	host     string
	port     int
	socket   string
	password string
	database int
	resp3    bool
	raw      bool
	human    bool
	secure   *tls.Config // nil for a plain connection
	call     []string    // the words of the one call to make; none for those that are read from stdin
}

// ServerEnvironment is how the environment configures the server of the same image: it is the one to talk to
// unless the command line names another.
type ServerEnvironment struct {
	Prefix   string        // of the variables' names
	Password func() string // "" if there is none
}

// Run is the subcommand: a small redis-cli, for images that have none. It returns the exit status:
// 0 if every call succeeded, 1 if one was answered with an error, or not at all.
func Run(args []string, own ServerEnvironment) (status int) {
	o, err := own.parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return 0
	case err != nil:
		complain(err)
		return 1
	}
	quietClient()
	l := newLink(o)
	defer l.close()
	onScreen := term.IsTerminal(int(os.Stdout.Fd()))
	d := &dialogue{link: l, out: os.Stdout, raw: !o.human && (o.raw || !onScreen)}
	switch {
	case len(o.call) > 0:
		err = d.ask(o.call)
	case onScreen && term.IsTerminal(int(os.Stdin.Fd())):
		err = d.prompt(os.Stdin, os.Stdout)
	default:
		err = d.script(os.Stdin)
	}
	switch {
	case err == nil:
		return 0
	case !errors.Is(err, errAnswered):
		complain(err)
	}
	return 1
}

func complain(err error) { fmt.Fprintln(os.Stderr, "cellserver cli:", err) }

// parse reads the command line, and the environment for what it does not say.
func (own ServerEnvironment) parse(args []string) (*options, error) {
	o := &options{}
	f := pflag.NewFlagSet("cellserver cli", pflag.ContinueOnError)
	f.SortFlags = false
	f.SetInterspersed(false) // what follows the command is its own, -1 among it
	f.StringVarP(&o.host, "host", "h", "127.0.0.1", "address of the server")
	f.IntVarP(&o.port, "port", "p", own.port("PORT"), "TCP port of the server; by default from "+own.Prefix+"PORT")
	f.StringVarP(&o.socket, "socket", "s", "", "path of the server's Unix socket, instead of -h and -p")
	f.StringVarP(&o.password, "pass", "a", "",
		"password; by default from the environment: REDISCLI_AUTH, "+own.Prefix+"REQUIREPASS, or the file "+own.Prefix+
			"REQUIREPASS_FILE")
	f.IntVarP(&o.database, "db", "n", 0, "number of the database")
	f.BoolVarP(&o.resp3, "resp3", "3", false, "use RESP3, which distinguishes maps and sets from arrays")
	f.BoolVarP(&o.raw, "raw", "r", false, "print replies without types, the default if stdout is not a terminal")
	f.BoolVar(&o.human, "no-raw", false, "print replies with types, the default on a terminal")
	shakeHands := o.defineTLS(f, own)
	f.Usage = func() { fmt.Printf(usage, f.FlagUsages()) }
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w; see cellserver cli --help", err)
	}
	if !f.Changed("pass") {
		if o.password = os.Getenv("REDISCLI_AUTH"); o.password == "" {
			o.password = own.Password()
		}
	}
	if err := shakeHands(); err != nil {
		return nil, err
	}
	switch o.call = f.Args(); {
	case o.port < 1 || o.port > 65535:
		return nil, fmt.Errorf("-p %d: must be between 1 and 65535", o.port)
	case o.database < 0:
		return nil, fmt.Errorf("-n %d: must not be negative", o.database)
	case o.raw && o.human:
		return nil, errors.New("-r (--raw) and --no-raw contradict each other: give one")
	}
	return o, nil
}

// defineTLS lists the options of TLS. What it returns is to be called when they are known, and
// reads the files.
func (o *options) defineTLS(f *pflag.FlagSet, own ServerEnvironment) (shakeHands func() error) {
	var wanted bool
	var trust tlsconfig.ClientOptions
	f.BoolVar(&wanted, "tls", false, "use TLS; -p is by default from "+own.Prefix+"TLS_PORT")
	f.StringVar(&trust.CACert, "cacert", "", "PEM file of trusted authorities; the system's by default")
	f.StringVar(&trust.CACertDir, "cacertdir", "", "directory of such files")
	f.StringVar(&trust.Cert, "cert", "", "PEM file of the client's certificate")
	f.StringVar(&trust.Key, "key", "", "PEM file of its key")
	f.StringVar(&trust.ServerName, "sni", "", "the server's name in its certificate, if it is not the address")
	f.BoolVar(&trust.Insecure, "insecure", false, "accept any certificate of the server")
	return func() (err error) {
		if os.Getenv(own.Prefix+"PORT") == "0" && !slices.ContainsFunc([]string{"host", "port", "socket", "tls"}, f.Changed) {
			wanted = o.useOwn(own, &trust)
		}
		if !wanted {
			if trust != (tlsconfig.ClientOptions{}) {
				return errors.New("--cacert, --cacertdir, --cert, --key, --sni and --insecure are for TLS: give --tls, too")
			}
			return nil
		}
		if !f.Changed("port") {
			o.port = own.port("TLS_PORT")
		}
		if trust.ServerName == "" {
			trust.ServerName = o.host
		}
		o.secure, err = trust.Config()
		return err
	}
}

// useOwn finds the server that the environment configures when that has no plain port: by its Unix
// socket, or over TLS, then with the server's own certificate, and without looking at the one that
// it shows. It says whether that takes TLS.
func (o *options) useOwn(own ServerEnvironment, trust *tlsconfig.ClientOptions) (overTLS bool) {
	if o.socket = os.Getenv(own.Prefix + "UNIXSOCKET"); o.socket != "" || os.Getenv(own.Prefix+"TLS_PORT") == "" {
		return false
	}
	if *trust == (tlsconfig.ClientOptions{}) {
		*trust = tlsconfig.ClientOptions{Cert: os.Getenv(own.Prefix + "TLS_CERT_FILE"),
			Key:      os.Getenv(own.Prefix + "TLS_KEY_FILE"),
			Insecure: true}
	}
	return true
}

// port is the default of -p: in a container, where the environment configures the server, a health
// check finds it with no option. A value that is no port is for the server to complain of (or it is
// what Kubernetes makes of a Service).
func (own ServerEnvironment) port(variable string) int {
	if n, err := strconv.Atoi(os.Getenv(own.Prefix + variable)); err == nil && n > 0 && n <= 65535 {
		return n
	}
	return 6379
}

const usage = `cellserver cli sends commands to a running cellserver, or to any server that speaks the Redis
protocol, as redis-cli does.

Usage: cellserver cli [options] [COMMAND [argument ...]]

%s      --help            print this

Without COMMAND, it reads commands from the terminal (quit, exit or Ctrl-D to leave), or one from
each line of stdin. The exit status is 1 if a command got an error reply or the server did not
answer, and 0 otherwise.

Examples:
  cellserver cli PING
  cellserver cli -h limits.internal -p 7000 CL.THROTTLE user123 15 30 60 1
  cellserver cli -3 CL.INSPECT user123
  cellserver cli --tls --cacert ca.crt --cert me.crt --key me.key -p 6380 PING
  cellserver cli -s /run/cellserver.sock -n 2 DEL "a key"
  cellserver cli < commands.txt
`

// Package cli implements the subcommand cellserver cli, a small redis-cli.
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

// options are the options of the command line. The letters are redis-cli's, except for -r, which is
// its --raw.
type options struct {
	host     string
	port     int
	socket   string
	password string
	database int
	resp3    bool
	raw      bool
	human    bool
	tls      *tls.Config // nil for a plain connection
	words    []string    // the words of the command; none if commands are read from stdin
}

// ServerEnvironment describes the environment variables that configure the server. By default, the
// client connects to that server: in a container, both have the same environment.
type ServerEnvironment struct {
	Prefix   string        // of the names of the variables
	Password func() string // returns the password of the server, "" if there is none
}

// Run runs the subcommand. It returns the exit status: 0 if every command succeeded, 1 if one got
// an error reply or none.
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
	l := newConnection(o)
	defer l.close()
	onScreen := term.IsTerminal(int(os.Stdout.Fd()))
	d := &runner{conn: l, out: os.Stdout, raw: !o.human && (o.raw || !onScreen)}
	switch {
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
	configureTLS := o.defineTLS(f, own)
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
	if err := configureTLS(); err != nil {
		return nil, err
	}
	switch o.words = f.Args(); {
	case o.port < 1 || o.port > 65535:
		return nil, fmt.Errorf("-p %d: must be between 1 and 65535", o.port)
	case o.database < 0:
		return nil, fmt.Errorf("-n %d: must not be negative", o.database)
	case o.raw && o.human:
		return nil, errors.New("-r (--raw) and --no-raw contradict each other: give one")
	}
	return o, nil
}

// defineTLS defines the options of TLS. The function that it returns is to be called after the
// command line has been parsed; it reads the files.
func (o *options) defineTLS(f *pflag.FlagSet, own ServerEnvironment) (configureTLS func() error) {
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
			wanted = o.useEnvironment(own, &trust)
		}
		if !wanted {
			if trust != (tlsconfig.ClientOptions{}) {
				return errors.New("--cacert, --cacertdir, --cert, --key, --sni and --insecure require --tls")
			}
			return nil
		}
		if !f.Changed("port") {
			o.port = own.port("TLS_PORT")
		}
		if trust.ServerName == "" {
			trust.ServerName = o.host
		}
		o.tls, err = trust.Config()
		return err
	}
}

// useEnvironment selects how to connect to the server that the environment configures without a
// plain port: on its Unix socket, or over TLS. With TLS, the client uses the server's own
// certificate and does not verify the one that the server presents. It reports whether TLS is used.
func (o *options) useEnvironment(own ServerEnvironment, trust *tlsconfig.ClientOptions) (overTLS bool) {
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

// port returns the default of -p from an environment variable, so that a health check in a
// container needs no option. It ignores an invalid value: the server reports it, unless it is one
// that Kubernetes sets for a service.
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

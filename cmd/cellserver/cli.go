package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"cellserver/internal/secure"
)

// clientOptions is what the command line of cellserver cli says. The letters are redis-cli's; -r stands for its --raw.
type clientOptions struct {
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

// cli is the subcommand: a small redis-cli, for images that have none. It returns the exit status: 0 if every call
// succeeded, 1 if one was answered with an error, or not at all.
func cli(args []string) (status int) {
	o, err := parseClientOptions(args)
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

func parseClientOptions(args []string) (*clientOptions, error) {
	o := &clientOptions{}
	f := pflag.NewFlagSet("cellserver cli", pflag.ContinueOnError)
	f.SortFlags = false
	f.SetInterspersed(false) // what follows the command is its own, -1 among it
	f.StringVarP(&o.host, "host", "h", "127.0.0.1", "address of the server")
	f.IntVarP(&o.port, "port", "p", portOf("PORT"), "TCP port of the server; by default from "+prefix+"PORT")
	f.StringVarP(&o.socket, "socket", "s", "", "path of the server's Unix socket, instead of -h and -p")
	f.StringVarP(&o.password, "pass", "a", "", "password; by default from the environment: REDISCLI_AUTH, "+prefix+"REQUIREPASS, or the file "+prefix+"REQUIREPASS_FILE")
	f.IntVarP(&o.database, "db", "n", 0, "number of the database")
	f.BoolVarP(&o.resp3, "resp3", "3", false, "use RESP3, which distinguishes maps and sets from arrays")
	f.BoolVarP(&o.raw, "raw", "r", false, "print replies without types, the default if stdout is not a terminal")
	f.BoolVar(&o.human, "no-raw", false, "print replies with types, the default on a terminal")
	shakeHands := o.defineTLS(f)
	f.Usage = func() { fmt.Printf(clientUsage, f.FlagUsages()) }
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w; see cellserver cli --help", err)
	}
	if !f.Changed("pass") {
		o.password = passwordOfServer()
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

// defineTLS lists the options of TLS. What it returns is to be called when they are known, and reads the files.
func (o *clientOptions) defineTLS(f *pflag.FlagSet) (shakeHands func() error) {
	var wanted bool
	var trust secure.Client
	f.BoolVar(&wanted, "tls", false, "use TLS; -p is by default from "+prefix+"TLS_PORT")
	f.StringVar(&trust.CACert, "cacert", "", "PEM file of trusted authorities; the system's by default")
	f.StringVar(&trust.CACertDir, "cacertdir", "", "directory of such files")
	f.StringVar(&trust.Cert, "cert", "", "PEM file of the client's certificate")
	f.StringVar(&trust.Key, "key", "", "PEM file of its key")
	f.StringVar(&trust.ServerName, "sni", "", "the server's name in its certificate, if it is not the address")
	f.BoolVar(&trust.Insecure, "insecure", false, "accept any certificate of the server")
	return func() (err error) {
		if os.Getenv(prefix+"PORT") == "0" && !slices.ContainsFunc([]string{"host", "port", "socket", "tls"}, f.Changed) {
			wanted = o.ownServer(&trust)
		}
		if !wanted {
			if trust != (secure.Client{}) {
				return errors.New("--cacert, --cacertdir, --cert, --key, --sni and --insecure are for TLS: give --tls, too")
			}
			return nil
		}
		if !f.Changed("port") {
			o.port = portOf("TLS_PORT")
		}
		if trust.ServerName == "" {
			trust.ServerName = o.host
		}
		o.secure, err = trust.Config()
		return err
	}
}

// ownServer finds the server that the environment configures when that has no plain port: by its Unix socket, or over TLS, then with the
// server's own certificate, and without looking at the one that it shows. It says whether that takes TLS.
func (o *clientOptions) ownServer(trust *secure.Client) (overTLS bool) {
	if o.socket = os.Getenv(prefix + "UNIXSOCKET"); o.socket != "" || os.Getenv(prefix+"TLS_PORT") == "" {
		return false
	}
	if *trust == (secure.Client{}) {
		*trust = secure.Client{Cert: os.Getenv(prefix + "TLS_CERT_FILE"), Key: os.Getenv(prefix + "TLS_KEY_FILE"), Insecure: true}
	}
	return true
}

// portOf is the default of -p: in a container, where the environment configures the server, a health check finds it
// with no option. A value that is no port is for the server to complain of (or it is what Kubernetes makes of a Service).
func portOf(variable string) int {
	if n, err := strconv.Atoi(os.Getenv(prefix + variable)); err == nil && n > 0 && n <= 65535 {
		return n
	}
	return 6379
}

// passwordOfServer is what the environment says that a server's password is: so a container that has it there can be asked whether it is
// well. What it cannot read it need not say: the server will.
func passwordOfServer() string {
	if password := os.Getenv("REDISCLI_AUTH"); password != "" {
		return password
	}
	of := access{passwordFile: os.Getenv(prefix + "REQUIREPASS_FILE")}
	password, _ := of.readPassword(os.Getenv(prefix + "REQUIREPASS"))
	return password
}

const clientUsage = `cellserver cli sends commands to a running cellserver, or to any server that speaks the Redis
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

// dialogue makes calls and prints replies.
type dialogue struct {
	link *link
	out  io.Writer
	raw  bool
}

// errAnswered says that the server's reply, which has been printed, is an error.
var errAnswered = errors.New("answered with an error")

// ask makes a call and prints the reply.
func (d *dialogue) ask(call []string) error {
	r, err := d.link.do(call)
	if err != nil {
		return err
	}
	var b []byte
	switch {
	case startsWithAny(call, prose):
		b = appendRaw(b, r)
	case d.raw:
		b = append(appendRaw(b, r), '\n')
	default:
		b = appendHuman(b, r, "")
	}
	if _, err := d.out.Write(b); err != nil {
		return err
	}
	if r.kind == kindError {
		return errAnswered
	}
	return nil
}

// prose lists the commands whose reply is text for people, with lines of its own. As in redis-cli it is printed as it is.
var prose = []string{
	"INFO", "CLIENT INFO", "CLIENT LIST", "CLUSTER INFO", "CLUSTER NODES", "LATENCY DOCTOR", "LATENCY GRAPH", "LOLWUT",
	"MEMORY DOCTOR", "MEMORY MALLOC-STATS",
}

// startsWithAny says whether a call's first words are one of these names, in any case.
func startsWithAny(call, names []string) bool {
	for _, name := range names {
		n := strings.Count(name, " ") + 1
		if len(call) >= n && strings.EqualFold(strings.Join(call[:n], " "), name) {
			return true
		}
	}
	return false
}

// script makes the calls of a stream, one a line. An error reply does not end it, as little as in redis-cli; but a lost
// connection does, because nobody knows whether the call that was under way has been carried out.
func (d *dialogue) script(lines io.Reader) (result error) {
	for r := bufio.NewReader(lines); ; {
		line, last := r.ReadString('\n')
		call, err := splitCall(line)
		switch {
		case err != nil:
			complain(err)
			result = errAnswered
		case isGoodbye(call):
			return result
		case len(call) > 0:
			if err := d.ask(call); errors.Is(err, errAnswered) {
				result = err
			} else if err != nil {
				return err
			}
		}
		if errors.Is(last, io.EOF) {
			return result
		} else if last != nil {
			return last
		}
	}
}

// isGoodbye knows the words that end a conversation. They are the client's own and are not sent.
func isGoodbye(call []string) bool {
	return len(call) == 1 && startsWithAny(call, []string{"QUIT", "EXIT"})
}

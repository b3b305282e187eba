package cli

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"cellserver/internal/tlsconfig"
)

// ServerEnvironment describes the environment variables that configure the server. By default, the
// client connects to that server: in a container, both have the same environment.
type ServerEnvironment struct {
	Prefix   string        // of the names of the variables
	Password func() string // returns the password of the server, "" if there is none

	// Docs returns what COMMAND DOCS would reply in RESP2 about a command by its name, such as config|set, without a
	// server; nil if there is no such command.
	Docs func(name string) []byte

	// ReadConfig returns what the server's configuration file and the environment say together.
	ReadConfig func(path string) (Listening, error)
}

// Listening says where the server listens, and how a client on the same machine authenticates.
type Listening struct {
	Bind              string // the option --bind; "" for the default
	Port, TLSPort     int    // 0 for none
	Socket            string // "" for none
	CertFile, KeyFile string // of TLS
	Password          string
}

// Server says how to reach a server.
type Server struct {
	host     string
	port     int
	socket   string
	user     string
	password string
	database int
	tls      *tls.Config // nil for a plain connection
	isURL    bool        // it was given as an URL, not as options
}

// Define defines the options that say how to reach a server. The function that it returns is to be
// called after the command line has been parsed; it checks the values, and reads files.
func (s *Server) Define(f *pflag.FlagSet, own ServerEnvironment) (complete func() error) {
	f.StringVarP(&s.host, "host", "h", loopback, "address of the server; by default from "+own.Prefix+"BIND")
	f.IntVarP(&s.port, "port", "p", orUsual(own.port("PORT")), "TCP port of the server; by default from "+own.Prefix+"PORT")
	f.StringVarP(&s.socket, "socket", "s", "", "path of the server's Unix socket, instead of -h and -p")
	f.StringVar(&s.user, "user", "", "name of the user; without it, the default user")
	f.StringVarP(&s.password, "pass", "a", "",
		"password; by default from the environment: REDISCLI_AUTH, "+own.Prefix+"REQUIREPASS, or the file "+own.Prefix+
			"REQUIREPASS_FILE")
	config := f.String("config", "", "configuration file of the server, whose address, port or socket, and password are used")
	configureTLS := s.defineTLS(f, own)
	return func() error {
		server, err := own.listening(*config)
		if err != nil {
			return err
		}
		if !f.Changed("host") {
			s.host = addressOf(server.Bind)
		}
		if !f.Changed("port") {
			s.port = orUsual(server.Port)
		}
		if !f.Changed("pass") {
			if s.password = os.Getenv("REDISCLI_AUTH"); s.password == "" {
				s.password = server.Password
			}
		}
		if err := configureTLS(server); err != nil {
			return err
		}
		if s.port < 1 || s.port > 65535 {
			return fmt.Errorf("-p %d: must be between 1 and 65535", s.port)
		}
		return nil
	}
}

// ParseURL returns the server that a URL names, and the number of the database in it, -1 if there is
// none. The forms are redis://user:password@host:port/database, with rediss for TLS, and
// unix://user:password@/path?db=database.
func ParseURL(text string) (s *Server, database int, err error) {
	o, err := redis.ParseURL(text)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", withoutPassword(text), err)
	}
	s = &Server{user: o.Username, password: o.Password, tls: o.TLSConfig, isURL: true}
	if u, err := url.Parse(text); err == nil && u.Query().Get("db") == "" && (u.Scheme == "unix" || len(u.Path) < 2) {
		database = -1
	} else {
		database = o.DB
	}
	if o.Network == "unix" {
		s.socket = o.Addr
		return s, database, nil
	}
	host, port, err := net.SplitHostPort(o.Addr)
	if err == nil {
		s.host = host
		s.port, err = strconv.Atoi(port)
	}
	return s, database, err
}

// withoutPassword returns a URL as it can be shown.
func withoutPassword(text string) string {
	if u, err := url.Parse(text); err == nil {
		return u.Redacted()
	}
	return "the URL"
}

// Connection is a connection to a server for another subcommand.
type Connection struct {
	*redis.Client // it has one connection and opens no other
	inner         *connection
}

// Connect connects to the server, and authenticates.
func (s *Server) Connect() (*Connection, error) {
	disableClientLog()
	l := newConnection(s)
	if err := l.connect(); err != nil {
		return nil, err
	}
	return &Connection{l.client, l}, nil
}

// Describe returns the error to be shown for an error of the client.
func (c *Connection) Describe(err error) error {
	if errors.Is(err, errConnectionClosed) {
		return fmt.Errorf("%s has closed the connection: was it stopped?", c.Address())
	}
	return c.inner.describeError(err)
}

// Address returns the address of the server.
func (c *Connection) Address() string { return c.inner.address }

// defineTLS defines the options of TLS. The function that it returns is to be called after the
// command line has been parsed; it reads the files.
func (s *Server) defineTLS(f *pflag.FlagSet, own ServerEnvironment) (configureTLS func(server Listening) error) {
	var wanted bool
	var trust tlsconfig.ClientOptions
	f.BoolVar(&wanted, "tls", false, "use TLS; -p is by default from "+own.Prefix+"TLS_PORT")
	f.StringVar(&trust.CACert, "cacert", "", "PEM file of trusted authorities; the system's by default")
	f.StringVar(&trust.CACertDir, "cacertdir", "", "directory of such files")
	f.StringVar(&trust.Cert, "cert", "", "PEM file of the client's certificate")
	f.StringVar(&trust.Key, "key", "", "PEM file of its key")
	f.StringVar(&trust.ServerName, "sni", "", "the server's name in its certificate, if it is not the address")
	f.BoolVar(&trust.Insecure, "insecure", false, "accept any certificate of the server")
	return func(server Listening) (err error) {
		if server.Port == 0 && !slices.ContainsFunc([]string{"host", "port", "socket", "tls"}, f.Changed) {
			wanted = s.useLocal(server, &trust)
		}
		if !wanted {
			if trust != (tlsconfig.ClientOptions{}) {
				return errors.New("--cacert, --cacertdir, --cert, --key, --sni and --insecure require --tls")
			}
			return nil
		}
		if !f.Changed("port") {
			s.port = orUsual(server.TLSPort)
		}
		if trust.ServerName == "" {
			trust.ServerName = s.host
		}
		s.tls, err = trust.Config()
		return err
	}
}

// useLocal selects how to connect to a server without a plain port: on its Unix socket, or over TLS. With
// TLS, the client uses the server's own certificate and does not verify the one that the server presents. It
// reports whether TLS is used.
func (s *Server) useLocal(server Listening, trust *tlsconfig.ClientOptions) (overTLS bool) {
	if s.socket = server.Socket; s.socket != "" || server.TLSPort == 0 {
		return false
	}
	if *trust == (tlsconfig.ClientOptions{}) {
		*trust = tlsconfig.ClientOptions{Cert: server.CertFile, Key: server.KeyFile, Insecure: true}
	}
	return true
}

// listening returns what the environment says, and the configuration file if there is one.
func (own ServerEnvironment) listening(config string) (Listening, error) {
	if config != "" {
		return own.ReadConfig(config)
	}
	l := Listening{Bind: os.Getenv(own.Prefix + "BIND"), Port: own.port("PORT"),
		Socket:   os.Getenv(own.Prefix + "UNIXSOCKET"),
		CertFile: os.Getenv(own.Prefix + "TLS_CERT_FILE"), KeyFile: os.Getenv(own.Prefix + "TLS_KEY_FILE"),
		Password: own.Password()}
	if os.Getenv(own.Prefix+"TLS_PORT") != "" {
		l.TLSPort = own.port("TLS_PORT")
	}
	return l, nil
}

// loopback is the address of a server that is not told another.
const loopback = "127.0.0.1"

// addressOf returns the address at which a client on the same machine reaches a server with this --bind: over
// loopback if the server listens there, else the first address that it needs.
func addressOf(bind string) string {
	var needed, first string
	for _, word := range strings.Fields(bind) {
		host, optional := strings.CutPrefix(word, "-")
		switch host = strings.Trim(host, "[]"); host {
		case "*", "0.0.0.0", loopback:
			return loopback
		case "::*", "::":
			host = "::1"
		}
		first = cmp.Or(first, host)
		if !optional {
			needed = cmp.Or(needed, host)
		}
	}
	return cmp.Or(needed, first, loopback)
}

// usualPort is the port of a server that is not told another.
const usualPort = 6379

// orUsual returns the port, or the usual one for 0.
func orUsual(port int) int {
	if port == 0 {
		return usualPort
	}
	return port
}

// port returns a port from an environment variable, so that a health check in a container needs no option.
// It ignores an invalid value: the server reports it, unless it is one that Kubernetes sets for a service.
func (own ServerEnvironment) port(variable string) int {
	if n, err := strconv.Atoi(os.Getenv(own.Prefix + variable)); err == nil && n >= 0 && n <= 65535 {
		return n
	}
	return usualPort
}

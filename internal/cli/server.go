package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"cellserver/internal/tlsconfig"
)

// ServerEnvironment describes the environment variables that configure the server. By default, the
// client connects to that server: in a container, both have the same environment.
type ServerEnvironment struct {
	Prefix   string        // of the names of the variables
	Password func() string // returns the password of the server, "" if there is none
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
	f.StringVarP(&s.host, "host", "h", "127.0.0.1", "address of the server")
	f.IntVarP(&s.port, "port", "p", own.port("PORT"), "TCP port of the server; by default from "+own.Prefix+"PORT")
	f.StringVarP(&s.socket, "socket", "s", "", "path of the server's Unix socket, instead of -h and -p")
	f.StringVar(&s.user, "user", "", "name of the user; without it, the default user")
	f.StringVarP(&s.password, "pass", "a", "",
		"password; by default from the environment: REDISCLI_AUTH, "+own.Prefix+"REQUIREPASS, or the file "+own.Prefix+
			"REQUIREPASS_FILE")
	configureTLS := s.defineTLS(f, own)
	return func() error {
		if !f.Changed("pass") {
			if s.password = os.Getenv("REDISCLI_AUTH"); s.password == "" {
				s.password = own.Password()
			}
		}
		if err := configureTLS(); err != nil {
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
func (s *Server) defineTLS(f *pflag.FlagSet, own ServerEnvironment) (configureTLS func() error) {
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
			wanted = s.useEnvironment(own, &trust)
		}
		if !wanted {
			if trust != (tlsconfig.ClientOptions{}) {
				return errors.New("--cacert, --cacertdir, --cert, --key, --sni and --insecure require --tls")
			}
			return nil
		}
		if !f.Changed("port") {
			s.port = own.port("TLS_PORT")
		}
		if trust.ServerName == "" {
			trust.ServerName = s.host
		}
		s.tls, err = trust.Config()
		return err
	}
}

// useEnvironment selects how to connect to the server that the environment configures without a
// plain port: on its Unix socket, or over TLS. With TLS, the client uses the server's own
// certificate and does not verify the one that the server presents. It reports whether TLS is used.
func (s *Server) useEnvironment(own ServerEnvironment, trust *tlsconfig.ClientOptions) (overTLS bool) {
	if s.socket = os.Getenv(own.Prefix + "UNIXSOCKET"); s.socket != "" || os.Getenv(own.Prefix+"TLS_PORT") == "" {
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

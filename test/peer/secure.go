package peer

import (
	"crypto/tls"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"cellserver/test/certs"
)

// OverTLS is the environment variable that, set to yes, makes Start start servers with only TLS,
// and certificates on both sides. Tests that connect with Dial, or with a server's Addr and TLS,
// work with and without it.
const OverTLS = "CELLSERVER_TEST_TLS"

// secured has the clients' TLS configurations of servers that speak TLS, by address.
var secured sync.Map // string -> *tls.Config

// both are the certificates of both sides, the same for all servers.
var both struct {
	sync.Once
	own       certs.Pair
	authority string
	client    *tls.Config
}

// door returns the options that make a server listen on a port, and its clients' TLS configuration,
// or nil.
func door(t *testing.T) (args func(port int) []string, client *tls.Config) {
	if os.Getenv(OverTLS) != "yes" {
		return func(port int) []string { return []string{"--port", strconv.Itoa(port)} }, nil
	}
	both.Do(func() {
		authority := certs.NewIn(t, scratch)
		both.own, both.authority = authority.Issue(t, "server"), authority.File
		both.client = authority.Client(t, authority.Issue(t, "client"))
	})
	return func(port int) []string {
		return []string{"--port", "0", "--tls-port", strconv.Itoa(port), "--tls-cert-file", both.own.Cert, "--tls-key-file",
			both.own.Key, "--tls-ca-cert-file", both.authority}
	}, both.client
}

// Conn is a connection to a server: TCP, or TLS over it.
type Conn struct {
	net.Conn
	tcp *net.TCPConn
}

// Dial connects to a server that Start has started, or without TLS to any other address.
func Dial(addr string) (*Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	c := &Conn{conn, conn.(*net.TCPConn)}
	if config, ok := secured.Load(addr); ok {
		c.Conn = tls.Client(conn, config.(*tls.Config))
	}
	return c, nil
}

// Handshake makes the TLS handshake, if the connection has TLS. Otherwise it is made with the first
// write or read.
func (c *Conn) Handshake() error {
	if conn, ok := c.Conn.(*tls.Conn); ok {
		return conn.Handshake()
	}
	return nil
}

// SyscallConn returns the TCP connection as the operating system sees it: with TLS, its bytes are
// encrypted.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.tcp.SyscallConn() }

// CloseWrite closes the connection's sending direction.
func (c *Conn) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// SetLinger and SetReadBuffer set options of the TCP connection.
func (c *Conn) SetLinger(seconds int) error   { return c.tcp.SetLinger(seconds) }
func (c *Conn) SetReadBuffer(bytes int) error { return c.tcp.SetReadBuffer(bytes) }

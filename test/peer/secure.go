package peer

import (
	"crypto/tls"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"

	"cellserver/test/certs"
)

// OverTLS is the environment variable that, set to yes, has Start start servers that speak TLS
// only, with certificates on both sides. Tests that go to a server by Dial, or by its Addr and TLS,
// need not know.
const OverTLS = "CELLSERVER_TEST_TLS"

// secured says by address how the servers that speak TLS are spoken to.
var secured sync.Map // string -> *tls.Config

// both are the certificates of both sides, the same for all servers.
var both struct {
	sync.Once
	own       certs.Pair
	authority string
	client    *tls.Config
}

// door is how a server is told to listen on a port, and how clients come to it then: nil for
// plainly.
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

// Dial connects to a server that Start has started, or to any other address plainly.
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

// Handshake has hands shaken, if that is to be: else they are when something is said.
func (c *Conn) Handshake() error {
	if conn, ok := c.Conn.(*tls.Conn); ok {
		return conn.Handshake()
	}
	return nil
}

// CloseWrite says that nothing more will be said.
func (c *Conn) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// SetLinger and SetReadBuffer are TCP's.
func (c *Conn) SetLinger(seconds int) error   { return c.tcp.SetLinger(seconds) }
func (c *Conn) SetReadBuffer(bytes int) error { return c.tcp.SetReadBuffer(bytes) }

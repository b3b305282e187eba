package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/racetest"
	"cellserver/test/certs"
	"cellserver/test/peer"
)

// fullHeader returns the longest header that is accepted, with as many fields as fit, and then rest. net/http needs
// fifteen times the bytes of the header.
func fullHeader(rest string) string {
	fields := strings.Builder{}
	for i := 0; fields.Len() < 31<<10; i++ {
		name := strconv.FormatInt(int64(i), 36)
		fields.WriteString("a" + name + ":\r\n")
	}
	return "POST /v1 HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n" + fields.String() + rest + "\r\n"
}

// flood is many connections to a port, which send something and read the answers. A connection that ends is
// replaced, up to four times.
type flood struct {
	stopDialing context.CancelFunc
	mu          sync.Mutex
	conns       map[net.Conn]bool
	ended       bool
	group       sync.WaitGroup
}

// dialer is a net.Dialer or a tls.Dialer.
type dialer interface {
	DialContext(ctx context.Context, network, addr string) (net.Conn, error)
}

func knock(dialer dialer, addr string, n int, attack func(conn net.Conn)) *flood {
	ctx, cancel := context.WithCancel(context.Background())
	s := &flood{stopDialing: cancel, conns: make(map[net.Conn]bool)}
	for range n {
		s.group.Go(func() {
			for range 5 {
				conn, err := dialer.DialContext(ctx, "tcp", addr)
				if err != nil {
					continue // the server ended the connection in the handshake, or the flood has ended
				}
				if s.enter(conn) {
					attack(conn)
				}
				conn.Close()
			}
		})
	}
	return s
}

// enter reports whether the flood goes on. If it does, stop closes the connection.
func (s *flood) enter(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[conn] = true
	return !s.ended
}

func (s *flood) stop() {
	s.stopDialing()
	s.mu.Lock()
	s.ended = true
	for conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.group.Wait()
}

// sendAndWait sends bytes, and waits until the server ends the connection.
func sendAndWait(bytes string) func(conn net.Conn) {
	return func(conn net.Conn) {
		if _, err := io.WriteString(conn, bytes); err == nil {
			_, _ = io.Copy(io.Discard, conn)
		}
	}
}

// container is the memory of a container in which these tests run servers with a maxmemory of 64mb, in bytes, and
// unauthenticated is the maxmemory-unauthenticated that follows from it.
const (
	container       = 128 << 20
	unauthenticated = 4 << 20
)

// startInContainer starts such a server with a port for HTTP and a password. It returns the port's address, and the
// memory of the idle server.
func startInContainer(t *testing.T, port string, more ...string) (server *peer.Server, addr string, idle int) {
	t.Helper()
	args, addr := withHTTP(t, port)
	args = append(args, "--requirepass", "secret", "--maxmemory", "64mb", "--loglevel", "nothing")
	if racetest.Enabled { // the race detector needs more memory than the server
		server = peer.StartPlain(t, append(args, more...)...)
	} else {
		server, _ = peer.StartIn(t, container, append(args, more...)...)
	}
	return server, addr, server.Resident(t)
}

// TestUnauthenticatedHTTP: whatever peers that have not logged in send, a thousand of their connections hold no
// more memory than maxmemory-unauthenticated plus 16 MiB. Other clients are served meanwhile.
func TestUnauthenticatedHTTP(t *testing.T) {
	for _, c := range []struct{ name, port, what string }{
		{"headers and bodies", "--http-port", fullHeader("Content-Length: 1000000\r\n") + strings.Repeat("x", 1000)},
		{"halves of headers", "--http-port", strings.TrimSuffix(fullHeader(""), "\r\n")},
		{"bodies", "--http-port", toCalls("Content-Length: 1000000\r\n") + strings.Repeat("x", 300_000)},
		{"pipelines", "--http-port", strings.Repeat(fullHeader(""), 10)},
		{"headers and bodies", "--http-tls-port", fullHeader("Content-Length: 1000000\r\n") + strings.Repeat("x", 1000)},
		{"bodies", "--http-tls-port", toCalls("Content-Length: 1000000\r\n") + strings.Repeat("x", 300_000)},
		{"headers", "--metrics-port", fullHeader("")},
		{"bodies", "--metrics-port", fullHeader("Content-Length: 1000000\r\n") + strings.Repeat("x", 1000)},
	} {
		t.Run(c.name+" to "+c.port, func(t *testing.T) {
			var more []string
			var dial dialer = &net.Dialer{}
			if c.port == "--http-tls-port" {
				own := certs.New(t).Issue(t, "server")
				more = []string{"--tls-cert-file", own.Cert, "--tls-key-file", own.Key, "--tls-auth-clients", "no"}
				dial = &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
			}
			server, addr, idle := startInContainer(t, c.port, more...)
			w := watchWithPassword(t, server, "secret")
			conns := 1000
			if racetest.Enabled {
				conns = 100
			}
			s := knock(dial, addr, conns, sendAndWait(c.what))
			defer s.stop()
			most := 0
			for range 50 {
				w.field("process_id")
				most = max(most, server.Resident(t)-idle)
			}
			t.Logf("%d KiB more than idle; peak %d KiB", most>>10, server.Peak(t)>>10)
			if !racetest.Enabled {
				assert.Less(t, most, unauthenticated+16<<20)
				assert.Less(t, server.Peak(t), container)
			}
		})
	}
}

// poor is a user with few rights.
const poor = "on >poor ~shop:* +cl.fixed"

// TestPoorUserOfHTTP: a user that sends many long bodies, or whose calls wait, leaves memory and connections to
// gateways, to other users, and to clients of other ports.
func TestPoorUserOfHTTP(t *testing.T) {
	login := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("poor:poor")) + "\r\n"
	call := `["CL.FIXED","shop:1","1","3600","1","WAIT","3600000"]`
	for name, what := range map[string]string{
		"bodies": toCalls(login+"Content-Length: 1048576\r\n") + strings.Repeat(" ", 1<<20-1),
		"waits":  toCalls(login+"Content-Length: "+strconv.Itoa(len(call))+"\r\n") + call,
		"others": toCalls(login+"Content-Length: 1048576\r\n") + `["` + strings.Repeat(`","`, 300_000),
	} {
		t.Run(name, func(t *testing.T) {
			server, addr, _ := startInContainer(t, "--http-port")
			w := watchWithPassword(t, server, "secret")
			rules := strings.Fields("ACL SETUSER poor " + poor)
			words := make([]any, len(rules))
			for i, word := range rules {
				words[i] = word
			}
			require.NoError(t, w.Do(w.ctx, words...).Err())
			gateway := newGateway(t, addr)
			gateway.asks() // before the others come: until it is known, it makes room for strangers
			conns, rounds := 1100, 200
			if racetest.Enabled {
				conns, rounds = 100, 20
			}
			s := knock(&net.Dialer{}, addr, conns, sendAndWait(what))
			defer s.stop()
			for range rounds {
				gateway.asks()
				w.field("process_id")
			}
			t.Logf("peak %d KiB", server.Peak(t)>>10)
			if !racetest.Enabled {
				assert.Less(t, server.Peak(t), container)
			}
			until(t, func() bool { return asks(addr) }, func() string { return "a new connection is served" })
		})
	}
}

// gateway is a connection of a gateway.
type gateway struct {
	t *testing.T
	net.Conn
	answers *bufio.Reader
}

func newGateway(t *testing.T, addr string) *gateway {
	conn := request(t, addr, "")
	return &gateway{t, conn, bufio.NewReader(conn)}
}

// asks makes a request, which must be answered.
func (g *gateway) asks() {
	require.NoError(g.t, g.SetDeadline(time.Now().Add(patience)))
	_, err := io.WriteString(g, asksPolicy)
	require.NoError(g.t, err)
	response, err := http.ReadResponse(g.answers, nil)
	require.NoError(g.t, err)
	assert.Equal(g.t, http.StatusOK, response.StatusCode)
}

// asks reports whether a request of a gateway on a new connection is answered.
func asks(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, asksPolicy) // if it fails, there is no response
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	return err == nil && response.StatusCode == http.StatusOK
}

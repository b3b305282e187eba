package web_test

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"cellserver/internal/client"
	"cellserver/internal/web"
)

// port is a port whose requests name their user in the path. A path that ends with /wait is answered when the test
// says so.
type port struct {
	t        *testing.T
	server   *web.Server
	address  string
	accounts map[string]*client.Account
	memory   *client.Registry
	begun    chan struct{}
	answer   chan struct{}
	charged  atomic.Int64 // bytes that count for users and gateways
}

func newPort(t *testing.T, places int) *port {
	p := &port{t: t, memory: client.NewRegistry(slog.New(slog.DiscardHandler)), begun: make(chan struct{}, 99),
		answer: make(chan struct{})}
	p.accounts = map[string]*client.Account{"a": {Name: "a"}, "b": {Name: "b"}, "g": {Name: "g"}}
	p.memory.SetMaxMemory(client.MemoryLimit{})
	p.memory.SetMaxMemoryUnauthenticated(client.MemoryLimit{Bytes: 4 << 20})
	p.memory.UpdateLimits(0, 0)
	p.server, p.address = start(t, web.Config{MaxConns: places, Handler: http.HandlerFunc(p.serve),
		Unauthenticated: p.memory.Unauthenticated(), Turns: make(chan struct{}, 1)})
	t.Cleanup(func() { close(p.answer) })
	return p
}

func (p *port) serve(w http.ResponseWriter, r *http.Request) {
	name, rest, _ := strings.Cut(r.URL.Path[1:], "/")
	kind := web.User
	if name == "g" {
		kind = web.Gateway
	}
	switch account := p.accounts[name]; {
	case name == "leave":
		web.Forget(r)
	case account == nil:
		w.WriteHeader(http.StatusUnauthorized)
	case !web.Know(r, kind, account, func(bytes int) { p.charged.Add(int64(bytes)) }):
		w.WriteHeader(http.StatusServiceUnavailable)
	case rest != "":
		p.begun <- struct{}{}
		<-p.answer
	}
}

// ask sends a request on a connection, and returns the status of the response, or 0 if the connection is
// closed.
func (p *port) ask(conn net.Conn, path string) int {
	p.t.Helper()
	if _, err := io.WriteString(conn, "GET /"+path+" HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		return 0
	}
	answer := make([]byte, 1024)
	n, err := conn.Read(answer)
	if err != nil {
		return 0
	}
	status := string(answer[:n])[len("HTTP/1.1 "):]
	for i, text := range []string{"200", "401", "503"} {
		if strings.HasPrefix(status, text) {
			return []int{200, 401, 503}[i]
		}
	}
	require.Fail(p.t, "unexpected", status)
	return 0
}

// waitAs makes a request that waits.
func (p *port) waitAs(name string) net.Conn {
	p.t.Helper()
	conn := dial(p.t, p.address)
	_, err := io.WriteString(conn, "GET /"+name+"/wait HTTP/1.1\r\nHost: h\r\n\r\n")
	require.NoError(p.t, err)
	<-p.begun
	return conn
}

func (p *port) isClosed(conn net.Conn) bool {
	require.NoError(p.t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := conn.Read(make([]byte, 1))
	return err != nil
}

// TestUsersShare: users' waiting requests hold up to half of the places, and one user's requests no more than the
// others leave. Gateways have the rest, whatever unauthenticated peers do.
func TestUsersShare(t *testing.T) {
	p := newPort(t, 8)
	var waiting []net.Conn
	for range 4 {
		waiting = append(waiting, p.waitAs("a"))
	}
	assert.Equal(t, 503, p.ask(dial(t, p.address), "a"), "a fifth place of the users'")
	for i := range 4 {
		require.Equal(t, 200, p.ask(dial(t, p.address), "g"), i)
	}
	for range 20 { // unauthenticated peers come and go
		assert.Equal(t, 401, p.ask(dial(t, p.address), "nobody"))
	}
	assert.LessOrEqual(t, p.server.Conns(), 8)
	conn := dial(t, p.address)
	assert.Equal(t, 200, p.ask(conn, "b"), "another user gets a place of the user that has all")
	closed := 0
	for _, conn := range waiting {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		if _, err := conn.Read(make([]byte, 1)); err == io.EOF {
			closed++
		}
	}
	assert.Equal(t, 1, closed)
}

// TestUnauthenticatedPeersMakeRoom: the connection of an unauthenticated peer makes room for a new connection, even
// while the peer does not read its response. Connections of known peers do not make room.
func TestUnauthenticatedPeersMakeRoom(t *testing.T) {
	p := newPort(t, 4)
	user, gateway := dial(t, p.address), dial(t, p.address)
	require.Equal(t, 200, p.ask(user, "a"))
	require.Equal(t, 200, p.ask(gateway, "g"))
	deaf := dial(t, p.address)
	require.NoError(t, deaf.(*net.TCPConn).SetReadBuffer(4096))
	flood := strings.Repeat("GET /nobody HTTP/1.1\r\nHost: h\r\n\r\n", 100)
	for stuck := false; !stuck; { // until the server waits for this peer to read
		require.NoError(t, deaf.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
		_, err := io.WriteString(deaf, flood)
		stuck = err != nil
	}
	var new net.Conn
	for range 10 {
		new = dial(t, p.address)
		require.Equal(t, 401, p.ask(new, "nobody"))
	}
	assert.Equal(t, 200, p.ask(user, "a"))
	assert.Equal(t, 200, p.ask(gateway, "g"))
	assert.Equal(t, 401, p.ask(new, "nobody"))
}

// TestTrustedPeersAreCutLast: a connection from a gateway's address stays, also before its first request, when too many
// unauthenticated peers connect.
func TestTrustedPeersAreCutLast(t *testing.T) {
	all := client.NewRegistry(slog.New(slog.DiscardHandler))
	all.SetMaxMemory(client.MemoryLimit{})
	all.SetMaxMemoryUnauthenticated(client.MemoryLimit{Bytes: 100 << 10}) // four connections
	all.UpdateLimits(0, 0)
	trusted := true
	_, address := start(t, web.Config{Handler: echo, Unauthenticated: all.Unauthenticated(),
		Trusted: func(net.Addr) bool { was := trusted; trusted = false; return was }})
	gateway := dial(t, address)
	for range 20 {
		dial(t, address)
	}
	require.Eventually(t, func() bool { return all.Unauthenticated().Stats().Cut > 0 }, time.Minute, time.Millisecond)
	status, _, _ := exchange(t, gateway, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	assert.Equal(t, http.StatusOK, status)
}

// TestForget: a connection whose user has left counts as an unauthenticated peer's again.
func TestForget(t *testing.T) {
	p := newPort(t, 4)
	conn := dial(t, p.address)
	count := func() int { return p.memory.Unauthenticated().Stats().Connections }
	require.Equal(t, 401, p.ask(conn, "nobody"))
	assert.Equal(t, 1, count())
	for range 3 {
		require.Equal(t, 200, p.ask(conn, "a"))
		assert.Equal(t, 0, count())
		require.Equal(t, 200, p.ask(conn, "leave"))
		assert.Equal(t, 1, count())
	}
	conn.Close()
	require.Eventually(t, func() bool { return count() == 0 }, time.Minute, time.Millisecond)
	assert.Zero(t, p.memory.Unauthenticated().Stats().Bytes)
}

// TestMemoryCountsOnce: a connection counts for one client at a time, and for none when it is closed.
func TestMemoryCountsOnce(t *testing.T) {
	p := newPort(t, 4)
	conn := dial(t, p.address)
	for _, path := range []string{"a", "b", "a", "leave", "b", "a"} {
		require.Equal(t, 200, p.ask(conn, path))
		held := p.charged.Load() + p.memory.Unauthenticated().Stats().Bytes
		assert.Equal(t, int64(24<<10), held, path)
	}
	conn.Close()
	require.Eventually(t, func() bool { return p.charged.Load() == 0 }, time.Minute, time.Millisecond)
}

// TestHeadersCount: a header counts before it is parsed, and the oldest connections are cut.
func TestHeadersCount(t *testing.T) {
	p := newPort(t, 1000)
	half := "GET / HTTP/1.1\r\n" + strings.Repeat("a:\r\n", 7000)
	var conns []net.Conn
	for range 20 { // 450 KiB each
		conn := dial(t, p.address)
		conns = append(conns, conn)
		_, err := io.WriteString(conn, half)
		require.NoError(t, err)
	}
	assert.True(t, p.isClosed(conns[0]))
	assert.True(t, p.isClosed(conns[5]))
	require.Eventually(t, func() bool {
		s := p.memory.Unauthenticated().Stats()
		return s.Bytes <= 4<<20 && s.Bytes >= 3<<20
	}, time.Minute, time.Millisecond)
	assert.Equal(t, 401, p.ask(dial(t, p.address), "nobody"))
}
